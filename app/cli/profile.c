/* duet profile runs a few steps of DP, of DP with the loss in forward, and of DDP, and prints a
 * table for each. */
#include <stdio.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/estimate/ways.h"
#include "cli/options/run_options.h"
#include "cli/results/files.h"
#include "report/findings.h"
#include "report/machine.h"
#include "report/profile_table.h"
#include "report/text.h"
#include "train/compare/compare.h"
#include "train/job.h"
#include "train/shared_data.h"
#include "train/spread.h"

enum { DEFAULT_STEPS = 50 };

/* The profile has ended with `code`. The files get the modes that ran until then; if no step was
 * made, the old files stay. */
static int write_files(struct run_files *files, const struct run_config *config,
                       const struct ways *ways, int code) {
    struct failures all = failures_of(code);
    int early = code && code != ERR_MEMORY, any = 0;
    struct page page = {.stopped = early ? all.text : NULL};
    for (int i = WAY_DP; i < WAYS; i++) {
        if (compare_leaves_out(config, way_mode(i))) continue;
        page.run[page.count++] =
            (struct page_run){.title = way_name(i),
                              .run = way_run(ways, i),
                              .missing = *ways->full[i] ? ways->full[i] : NULL};
        any |= way_run(ways, i) != NULL;
    }
    if (any || !early)
        failures_add(&all, run_files_write(files, "profile", ways_write, ways, &page));
    return failures_end(&all);
}

/* The answer, then a table for each mode; DP with the loss in forward only with --details. */
static void show(const struct ways *p, const struct run_config *config,
                 const struct run_config *base, int width) {
    const struct run_record *first = NULL;
    struct text head = {""};
    for (int i = WAYS - 1; i >= WAY_DP; i--)
        if (way_run(p, i)) first = way_run(p, i);
    if (!first) return;
    text_add(&head, "%s on %s, ", base->model.name, base->data.name);
    add_devices(&head, first);
    text_wrap(stdout, width, 0, 2, head.words);
    const struct profiled profiled = ways_profiled(p, config->details);
    profile_findings_print(stdout, width, &profiled);
    for (int i = WAY_DP; i < WAYS; i++) {
        char title[WAY_TITLE];
        if (!way_run(p, i) || (i == WAY_LOSS_IN_FORWARD && !config->details && way_run(p, WAY_DP)))
            continue;
        printf("\n");
        profile_table(stdout, width, way_title(i, config, title), way_run(p, i), config->details);
    }
    if (!config->details) printf("\n--details: DP with the loss in forward, and all rows\n");
    ways_show_beside_pytorch(p, config);
    fflush(stdout);
}

/* Runs DP, DP with the loss in forward and DDP with the settings of `config`. ERR_MEMORY: one of
 * them did not fit; the others still ran. */
static int profile_ways(const struct run_config *config, struct ways *p, int width,
                        struct job_result *result) {
    struct run_config base = *config;
    const char *why = compare_leaves_out(config, MODE_DP);
    int full = -1;
    if (why && config->spread <= 1) text_say(stdout, width, 0, 2, "DP is left out: %s", why);
    CHECK(job_try_first(&base, result));
    for (int i = WAY_DP; i < WAYS; i++) {
        way_apply(i, &base);
        if (compare_leaves_out(config, base.mode)) continue;
        int code = job_run_titled(way_name(i), &base, &p->run[i], result);
        base.warned = 1; /* do not warn again */
        if (code == ERR_MEMORY && !result->signal) {
            way_note_full(p, full = i, &base, width);
            continue;
        }
        if (code && !p->run[i].steps) record_free(&p->run[i]); /* the record is empty */
        CHECK(code);
        /* all ways use the kind that the first job found; the launcher does not look for GPUs */
        snprintf(base.device, sizeof base.device, "%s", p->run[i].kind);
        warn_of_run(way_name(i), &p->run[i]);
    }
    int counted = ways_count_as_pytorch(p, config);
    if (config->as_pytorch) CHECK(counted); /* otherwise the findings omit PyTorch's memory */
    show(p, config, &base, width);
    if (full < 0) return OK;
    ways_show_what_fits(p, config, width);
    fflush(stdout);
    return fail(ERR_MEMORY,
                "%s: out of memory: %s: use a smaller batch or model, or a larger --device-memory",
                way_name(full), "see above for what was held and what fits");
}

static int profile(const struct run_config *config, struct ways *ways, int width,
                   struct job_result *result) {
    struct run_config base = *config;
    base.spans = base.unremarked = base.fold_elsewhere = 1;
    base.evaluate = 0;
    base.stoppable = run_writes_results(config);
    if (!base.steps) base.steps = DEFAULT_STEPS;
    run_config_without_files(&base);
    int code = shared_data_open(&base);
    if (!code) code = profile_ways(&base, ways, width, result);
    shared_data_close(&base);
    return code;
}

int command_profile(int argc, char **argv, const struct duet_model *own) {
    struct options options = {.command = "profile"};
    struct run_config config;
    struct ways *ways = NULL;
    struct run_files files = {.config = NULL};
    struct job_result result = {.exit_status = 0};
    int width = text_width(stdout), code;
    run_config_default(&config);
    run_config_own(&config, own);
    CHECK_GOTO(spread_begin(&config), code, done);
    CHECK_GOTO(run_options_parse(&options, argc, argv, &config), code, done);
    if (options.help) return command_usage(&options, own), 0;
    CHECK_GOTO(spread_check(&config, SPREAD_PROFILE), code, done);
    CHECK_GOTO(run_config_check(&config), code, done);
    CHECK_GOTO(run_files_open(&files, &config), code, done);
    ways = ways_new(&config);
    CHECK_GOTO(ways ? OK : ERR_MEMORY, code, done);
    code = profile(&config, ways, width, &result);
    code = write_files(&files, &config, ways, code);
done:
    run_files_abandon(&files);
    ways_free(ways);
    report_error(code);
    return code && result.exit_status ? result.exit_status : error_exit_status(code);
}
