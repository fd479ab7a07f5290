/* duet compare and duet demo train in several modes, then print the table and the verdict. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/lesson.h"
#include "cli/options/run_options.h"
#include "cli/results/files.h"
#include "report/compare_table.h"
#include "report/machine.h"
#include "train/compare/compare.h"
#include "train/spread.h"

/* The epochs of the chapter's program, and those of the demo, which takes less than 3 minutes on 2
 * cores. */
enum { CHAPTER_EPOCHS = 10, DEMO_EPOCHS = 3 };

/* The runs in the order of the modes; DP and DDP come with their verdicts. */
static void write_runs(const void *what, struct json_writer *w) {
    const struct comparison *c = what;
    json_array(w, "runs");
    for (int mode = 0; mode < MODE_COUNT; mode++) {
        const struct run_record *run = &c->run[mode];
        if (!run->devices && !*c->full[mode]) continue; /* the mode was left out */
        results_run(w, mode_name(mode), mode_title(mode), c->full[mode], run);
        if (c->judged[mode])
            verdict_json(w, "verdict", &c->verdict[mode], run);
        else
            json_null(w, "verdict");
        json_close(w);
    }
    json_close(w);
}

/* The verdict in lines that the browser wraps, and in a word. `text` is to be freed. */
static void judge_page(struct page_run *page, const struct comparison *c, enum run_mode mode,
                       char **text) {
    static const enum page_judgement judged[] = {[VERDICT_EQUAL] = PAGE_EQUAL,
                                                 [VERDICT_DIFFERENT] = PAGE_APART,
                                                 [VERDICT_WITHIN] = PAGE_WITHIN,
                                                 [VERDICT_BEYOND] = PAGE_APART};
    size_t bytes;
    FILE *file = open_memstream(text, &bytes);
    if (!file) return;
    verdict_print(file, 1 << 16, &c->verdict[mode], &c->run[c->reference], &c->run[mode]);
    if (fclose(file)) return;
    page->verdict = *text;
    page->judged = judged[c->verdict[mode].kind];
}

/* stopped: what ended the comparison early; NULL: nothing did. The measurements up to then are
 * written; runs that were not judged have no verdict. */
static int write_files(struct run_files *files, const struct comparison *c, const char *command,
                       const char *stopped) {
    struct page page = {.stopped = stopped};
    char *text[MODE_COUNT] = {NULL};
    for (int mode = 0; mode < MODE_COUNT; mode++) {
        const struct run_record *run = c->run[mode].devices ? &c->run[mode] : NULL;
        if (compare_leaves_out(&c->config, mode)) continue;
        struct page_run *one = &page.run[page.count++];
        *one = (struct page_run){.title = mode_title(mode),
                                 .run = run,
                                 .missing = *c->full[mode] ? c->full[mode] : "it did not finish"};
        if (run && c->judged[mode]) judge_page(one, c, mode, &text[mode]);
    }
    int code = run_files_write(files, command, write_runs, c, &page);
    for (int mode = 0; mode < MODE_COUNT; mode++)
        free(text[mode]);
    return code;
}

static void show_need(const struct comparison *c, enum run_mode mode) {
    char needs[NEED_WORDS];
    text_say(stdout, text_width(stdout), 0, 2, "%s does not fit into the memory of its devices%s",
             mode_title(mode), need_words(&c->need[mode], needs));
}

/* Prints the results of the runs, whatever the verdict is: the answer first, then the table, then
 * the circumstances. */
static void show(const struct comparison *c) {
    const struct run_record *first = &c->run[c->reference];
    struct text devices = {""}, head = {""};
    add_devices(&devices, &c->run[c->run[MODE_FSDP].devices  ? MODE_FSDP
                                  : c->run[MODE_DDP].devices ? MODE_DDP
                                  : c->run[MODE_DP].devices  ? MODE_DP
                                                             : MODE_SINGLE]);
    text_add(&head, "%s on %s, %s: %d step%s in %d epoch%s", first->model, first->dataset,
             devices.words, first->steps, first->steps > 1 ? "s" : "", first->epoch_count,
             first->epoch_count > 1 ? "s" : "");
    if ((c->config.steps - 1) / first->steps_per_epoch >= c->config.epochs)
        text_add(&head, "; for %d steps, give more --epochs", c->config.steps);
    printf("\n");
    text_wrap(stdout, text_width(stdout), 0, 2, head.words);
    const char *why = compare_leaves_out(&c->config, MODE_DP);
    if (why && c->config.modes >> MODE_DP & 1)
        text_say(stdout, text_width(stdout), 0, 2, "DP was left out: %s", why);
    for (enum run_mode mode = 0; mode < MODE_COUNT; mode++) {
        if (c->judged[mode])
            verdict_print(stdout, TEXT_USUAL, &c->verdict[mode], first, &c->run[mode]);
        if (*c->full[mode]) show_need(c, mode);
    }
    if (*c->full[MODE_SINGLE] && c->reference == MODE_DDP)
        printf("there is no other run to compare DDP with\n");
    printf("\n");
    compare_table(stdout, text_width(stdout), c->run);
    busy_line(stdout, c->run);
    printf("\n");
    batch_line(stdout, c->run);
    allreduce_lines(stdout, &c->run[MODE_DDP]);
    fflush(stdout);
}

/* 1: the comparison is to be shown, whatever compare_run returned. */
static int is_complete(const struct comparison *c, int code) {
    return code == OK || code == ERR_CHECK ||
           (code == ERR_MEMORY && c->reference < MODE_COUNT && c->run[c->reference].devices);
}

/* A comparison that ended early: the files have the runs up to then, if one made a step. The
 * failure is still reported. */
static int keep_what_there_is(struct run_files *files, const struct comparison *c,
                              const char *command, int failure) {
    struct failures all = failures_of(failure);
    if (c->reference < MODE_COUNT && c->run[c->reference].devices)
        failures_add(&all, write_files(files, c, command, all.text));
    return failures_end(&all);
}

/* What a stranger can quote: the same model, device 0's load, and the speed-up on GPUs. */
static int in_short(const struct comparison *c, const double held[2]) {
    int is_equal =
        c->verdict[MODE_DP].kind == VERDICT_EQUAL && c->verdict[MODE_DDP].kind == VERDICT_EQUAL;
    printf("\n");
    if (c->judged[MODE_DP] && c->judged[MODE_DDP])
        printf("DP and DDP train the same model as one device, %s: %d steps.\n",
               is_equal ? "to the bit" : "within rounding", c->run[MODE_DDP].steps);
    lesson_answer_print(held);
    return costs_print(1);
}

/* Three commands that work from this folder. */
static void next_commands(void) {
    const char *duet = program_invocation_name;
    printf("\nNext, each a matter of seconds:\n"
           "  the ring, drawn for slides\n"
           "    %s collective --ranks 4 --pictures pictures\n"
           "  what each device would hold and move, computed without a run\n"
           "    %s estimate --devices 4 --model resnet18\n"
           "  where the time goes, as a page for the browser\n"
           "    %s profile --steps 20 --report page.html\n",
           duet, duet, duet);
}

static int run(struct run_config *config, int chapter) {
    struct comparison *comparison = NULL; /* MODE_COUNT records: too large for a small stack */
    struct run_files files = {.config = NULL};
    const char *command = chapter ? "demo" : "compare";
    struct job_result result = {.exit_status = 0};
    int code = OK;
    CHECK_GOTO(spread_check(config, SPREAD_COMPARE), code, done);
    CHECK_GOTO(run_config_check(config), code, done);
    CHECK_GOTO(run_files_open(&files, config), code, done);
    comparison = calloc(1, sizeof *comparison);
    if (!comparison) CHECK_GOTO(fail(ERR_MEMORY, "compare: out of host memory"), code, done);
    code = compare_run(comparison, config, &result);
    if (!is_complete(comparison, code)) {
        code = keep_what_there_is(&files, comparison, command, code);
        goto done;
    }
    show(comparison);
    if (chapter) printf("\n");
    for (int mode = 0; chapter && mode < MODE_COUNT; mode++)
        if (comparison->run[mode].devices) chapter_line(stdout, &comparison->run[mode]);
    double held[2] = {0, 0}; /* used by the lesson */
    struct failures all = {0};
    failures_add(&all, code);
    if (chapter && !code) failures_add(&all, lesson_run(config, held, &result));
    failures_add(&all, write_files(&files, comparison, command, NULL)); /* even if models differ */
    code = failures_end(&all);
    if (chapter && !code && !config->model.options.own) next_commands();
    if (chapter && !code) code = in_short(comparison, held);
done:
    run_files_abandon(&files);
    if (comparison) comparison_free(comparison);
    free(comparison);
    report_error(code);
    return code && result.exit_status ? result.exit_status : error_exit_status(code);
}

int command_compare(int argc, char **argv, const struct duet_model *own) {
    struct options options = {.command = "compare"};
    struct run_config config;
    run_config_default(&config);
    run_config_own(&config, own);
    int code = spread_begin(&config);
    if (!code) code = run_options_parse(&options, argc, argv, &config);
    if (code) return report_error(code);
    return options.help ? command_usage(&options, own), 0 : run(&config, 0);
}

/* Prints what the demo trains, and how much less than the chapter. */
static void announce(const struct run_config *config) {
    const char *chapter = config->model.options.own ? "" : "d2l's multi-GPU chapter, three ways: ";
    struct text text = {""};
    text_add(&text, "%s%s, ", chapter, config->model.name);
    if (config->steps)
        text_add(&text, "at most %d step%s of ", config->steps, config->steps > 1 ? "s" : "");
    text_add(&text, "%d epoch%s", config->epochs, config->epochs > 1 ? "s" : "");
    if (config->epochs < CHAPTER_EPOCHS || config->steps)
        text_add(&text, " instead of the chapter's %d (--epochs %d gives those)", CHAPTER_EPOCHS,
                 CHAPTER_EPOCHS);
    text_wrap(stdout, text_width(stdout), 0, 2, text.words);
    printf("\n");
    fflush(stdout);
}

int command_demo(int argc, char **argv, const struct duet_model *own) {
    struct options options = {.command = "demo"};
    struct run_config config;
    run_config_default(&config);
    run_config_own(&config, own);
    config.epochs = 0; /* stands for: not given */
    int code = run_options_parse(&options, argc, argv, &config);
    if (code) return report_error(code);
    if (options.help) return command_usage(&options, own), 0;
    if (!config.epochs) config.epochs = DEMO_EPOCHS;
    announce(&config);
    return run(&config, 1);
}
