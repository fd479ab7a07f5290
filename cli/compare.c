/* duet compare and duet demo: three jobs, one table, the verdict. */
#include <stdio.h>
#include <string.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "report/compare_table.h"
#include "train/compare.h"

static int write_json(struct atomic_file *file, const struct comparison *c) {
    struct json_writer w;
    if (!file->file) return OK;
    json_start(&w, file->file);
    json_object(&w, NULL);
    for (int mode = 0; mode < MODE_COUNT; mode++) record_write(&c->run[mode], &w, mode_name(mode), 0);
    verdict_json(&w, "verdict_dp", &c->verdict[MODE_DP], &c->run[MODE_DP]);
    verdict_json(&w, "verdict_ddp", &c->verdict[MODE_DDP], &c->run[MODE_DDP]);
    json_close(&w);
    CHECK(json_finish(&w, c->config.json));
    return atomic_commit(file);
}

/* Everything after the three runs: shown also when the verdict is bad. */
static void show(const struct comparison *c) {
    const struct run_record *single = &c->run[MODE_SINGLE];
    printf("\n%s on %s, %s devices: %d steps in %d epoch%s\n", single->model, single->dataset, single->kind, single->steps, single->epoch_count,
           single->epoch_count > 1 ? "s" : "");
    batch_line(stdout, c->run);
    if (*c->run[MODE_DDP].choice) printf("allreduce: %s; buckets of %s bytes\n", c->run[MODE_DDP].choice, c->run[MODE_DDP].buckets);
    printf("\n");
    compare_table(stdout, c->run);
    printf("\n");
    verdict_print(stdout, &c->verdict[MODE_DP], single, &c->run[MODE_DP]);
    verdict_print(stdout, &c->verdict[MODE_DDP], single, &c->run[MODE_DDP]);
    fflush(stdout);
}

static int run(struct run_config *config, int chapter) {
    struct comparison comparison = {0};
    struct atomic_file json = {0};
    struct job_result result = {.exit_status = 0};
    int code = OK;
    CHECK_GOTO(run_config_check(config), code, done);
    if (*config->json) CHECK_GOTO(atomic_open(&json, config->json), code, done);
    code = compare_run(&comparison, config, &result);
    if (code && code != ERR_CHECK) goto done;
    show(&comparison);
    if (chapter) printf("\n");
    for (int mode = 0; chapter && mode < MODE_COUNT; mode++) {
        printf("%-7s", mode_title(mode));
        chapter_line(stdout, &comparison.run[mode]);
    }
    if (*config->json) {
        char text[512];
        snprintf(text, sizeof text, "%s", error_message());
        int written = write_json(&json, &comparison);
        if (written && !code) code = written;
        else if (code) fail(code, "%s", text);
    }
done:
    atomic_abandon(&json);
    comparison_free(&comparison);
    report_error(code);
    return code && result.exit_status ? result.exit_status : error_exit_status(code);
}

static int read_words(int argc, char **argv, struct run_config *config, int *help) {
    CHECK(flags_parse(argc, argv, config, help));
    config->mode = MODE_DP; /* so that checks count the devices */
    return OK;
}

int command_compare(int argc, char **argv) {
    struct run_config config;
    int help = 0;
    run_config_default(&config);
    int code = read_words(argc, argv, &config, &help);
    if (code) return report_error(code);
    return help ? flags_help(), 0 : run(&config, 0);
}

int command_demo(int argc, char **argv) {
    struct run_config config;
    int help = 0;
    run_config_default(&config);
    config.epochs = 0; /* not given */
    int code = read_words(argc, argv, &config, &help);
    if (code) return report_error(code);
    if (help) return flags_help(), 0;
    if (!config.epochs) {
        config.epochs = 3;
        printf("d2l's LeNet, from scratch, three ways; 3 epochs here instead of the chapter's 10 (--epochs 10 gives those)\n\n");
        fflush(stdout);
    }
    return run(&config, 1);
}
