/* duet train runs one mode as a job: one process for single and DP, one per device for DDP. */
#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/options/run_options.h"
#include "cli/results/files.h"
#include "report/text.h"
#include "train/files/resume.h"
#include "train/job.h"
#include "train/spread.h"

/* Prints what is about to be trained. */
static void describe_config(const struct run_config *config) {
    int w = run_devices(config), v = run_virtual_devices(config);
    struct text text = {""};
    char virtual[16] = "off", share[32];
    if (config->quiet) return;
    if (v) snprintf(virtual, sizeof virtual, "%d", v);
    text_add(&text, "%s: %s on %s, batch global %d = %s per device x %d", mode_title(config->mode),
             config->model.name, config->data.name, config->batch_size,
             share_words(config->batch_size, w, !v && config->mode == MODE_DP, share), w);
    if (config->update.passes > 1)
        text_add(&text, ", %d batches per update", config->update.passes);
    text_add(&text, ", %s lr %g, virtual devices %s", optimizer_name(config->update.optimizer),
             config->update.lr, virtual);
    text_wrap(stdout, text_width(stdout), 0, 2, text.words);
    fflush(stdout);
}

/* The result: the last losses and accuracy, how long the user waited for the whole command, and how
 * much of that was training. */
static void say_result(const struct run_config *config, const struct run_record *record) {
    double accuracy = record_last_accuracy(record);
    if (config->quiet) return;
    printf("%-6s ", mode_title(config->mode));
    if (record->steps)
        printf("step %d  loss %.4f  ", record->first_step + record->steps,
               record->losses[record->steps - 1]);
    if (accuracy >= 0)
        printf("valid_loss %.4f  test acc %.4f\n%-6s ", record_last_valid_loss(record), accuracy,
               mode_title(config->mode));
    if (*record->modelled)
        printf("training %.4g s, modelled: %s\n", record->training_seconds, record->modelled);
    else
        printf("wall %.2f s, training %.2f s\n", (double)(now_ns() - config->started_ns) * 1e-9,
               record->training_seconds);
    fflush(stdout);
}

static void write_run(const void *what, struct json_writer *w) {
    const struct run_record *record = what;
    json_array(w, "runs");
    results_run(w, mode_name(record->mode), mode_title(record->mode), NULL, record);
    json_close(w);
    json_close(w);
}

/* stopped: what ended the run early; NULL: nothing did. */
static int write_files(struct run_files *files, const struct run_record *record,
                       const char *stopped) {
    struct page page = {.stopped = stopped, .count = 1};
    page.run[0] = (struct page_run){.title = mode_title(record->mode), .run = record};
    return run_files_write(files, "train", write_run, record, &page);
}

int command_train(int argc, char **argv, const struct duet_model *own) {
    struct options options = {.command = "train"};
    struct run_config config;
    struct run_record *record = NULL;
    struct job_result result = {.exit_status = 0};
    struct run_files files = {.config = NULL};
    struct failures all = {0};
    int code;
    run_config_default(&config);
    run_config_own(&config, own);
    CHECK_GOTO(spread_begin(&config), code, done);
    CHECK_GOTO(run_options_parse(&options, argc, argv, &config), code, done);
    if (options.help) return command_usage(&options, own), 0;
    CHECK_GOTO(spread_check(&config, SPREAD_TRAIN), code, done);
    CHECK_GOTO(run_config_check(&config), code, done);
    CHECK_GOTO(resume_check_files(&config), code, done);
    CHECK_GOTO(run_files_open(&files, &config), code, done);
    config.spans = run_keeps_spans(&config);
    config.stoppable = 1;
    CHECK_GOTO(record_new(&record), code, done);
    describe_config(&config);
    code = job_run(&config, record, &result);
    if (code && !result.unwritten && !result.stopped) goto done;
    failures_add(&all, code); /* a failure of one file must not prevent the other */
    warn_of_run(NULL, record);
    say_result(&config, record);
    /* if a run stops before its first step, keep the old files */
    if (record->steps || !result.stopped)
        failures_add(&all, write_files(&files, record, result.stopped ? all.text : NULL));
    code = failures_end(&all);
done:
    run_files_abandon(&files);
    record_delete(record);
    int status = report_error(code);
    return code && result.exit_status ? result.exit_status : status;
}
