/* duet profile: a few steps each of DP, of DP with the loss in forward and of DDP; one table for
 * each. */
#include <stdio.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "report/chrome_trace.h"
#include "report/excess.h"
#include "report/findings.h"
#include "report/profile_table.h"
#include "report/table.h"
#include "report/text.h"
#include "train/compare.h"
#include "train/job.h"
#include "train/shared_data.h"

enum { KINDS = 3, DEFAULT_STEPS = 50 };

static const struct {
    const char *title, *key;
    enum run_mode mode;
    int loss_in_forward;
} kinds[KINDS] = {{"DP", "dp", MODE_DP, 0},
                  {"DP, loss in forward", "dp_loss_in_forward", MODE_DP, 1},
                  {"DDP", "ddp", MODE_DDP, 0}};

/* "DP, output device 1, sharded reduce" */
static const char *title_of(int kind, const struct run_config *config, char text[64]) {
    int dp = kinds[kind].mode == MODE_DP, n = snprintf(text, 64, "%s", kinds[kind].title);
    if (dp && config->output_device)
        n += snprintf(text + n, 64 - (size_t)n, ", output device %d", config->output_device);
    if (dp && config->sharded_reduce) snprintf(text + n, 64 - (size_t)n, ", sharded reduce");
    return text;
}

static void write_excess(struct json_writer *w, const struct run_record *run) {
    static const char *const heads[] = {"memory_bytes", "link_bytes_a_step", "ns_a_step"};
    struct excess list[EXCESS_MAX];
    json_object(w, "device_0_excess");
    for (int kind = EXCESS_MEMORY; kind <= EXCESS_TIME; kind++) {
        int n = profile_excess(run, kind, list);
        json_object(w, heads[kind]);
        for (int i = 0; i < n; i++)
            if (!list[i].within_spread) json_number(w, list[i].name, list[i].amount);
        json_close(w);
        if (kind != EXCESS_TIME) continue;
        json_object(w, "ns_a_step_spread");
        for (int i = 0; i < n; i++)
            json_number(w, list[i].name, list[i].spread);
        json_close(w);
        json_object(w, "ns_a_step_within_the_spread");
        for (int i = 0; i < n; i++)
            if (list[i].within_spread) json_number(w, list[i].name, list[i].amount);
        json_close(w);
    }
    json_close(w);
}

static int write_json(struct atomic_file *file, const char *path, const struct run_record *runs) {
    struct json_writer w;
    if (!file->file) return OK;
    json_start(&w, file->file);
    json_object(&w, NULL);
    for (int i = 0; i < KINDS; i++) {
        if (!runs[i].devices) continue; /* left out */
        json_object(&w, kinds[i].key);
        record_write(&runs[i], &w, "run", 0);
        write_excess(&w, &runs[i]);
        json_close(&w);
    }
    json_close(&w);
    CHECK(json_finish(&w, path));
    return atomic_commit(file);
}

static int write_trace(struct atomic_file *file, const char *path, const struct run_record *runs) {
    struct trace_run list[KINDS];
    int count = 0;
    for (int i = 0; i < KINDS; i++)
        if (runs[i].devices) list[count++] = (struct trace_run){kinds[i].title, &runs[i]};
    return chrome_trace_write(file, path, list, count);
}

/* Runs the three kinds with the settings of `config`. */
static int profile_kinds(const struct run_config *config, struct run_record *runs,
                         struct job_result *result) {
    struct run_config base = *config;
    const char *why = compare_leaves_out(config, MODE_DP);
    int first = 1;
    if (why) printf("DP is left out: %s\n", why);
    CHECK(job_try_nccl(&base, result));
    for (int i = 0; i < KINDS; i++) {
        if (compare_leaves_out(config, kinds[i].mode)) continue;
        base.mode = kinds[i].mode;
        base.loss_in_forward = kinds[i].loss_in_forward;
        char title[64];
        CHECK(job_run_titled(kinds[i].title, &base, &runs[i], result));
        base.warned = 1; /* once is enough */
        if (first) {     /* only now, since a job looks for GPUs and the launcher does not */
            printf("%s on %s, ", base.model, base.dataset);
            device_words(stdout, &runs[i]);
            printf("\n");
            snprintf(base.device, sizeof base.device, "%s", runs[i].kind); /* the same for all */
        }
        first = 0;
        printf("\n");
        profile_table(stdout, text_width(stdout), title_of(i, config, title), &runs[i]);
        fflush(stdout);
        warn_not_finite(kinds[i].title, &runs[i]);
    }
    const struct run_record *ran[KINDS];
    for (int i = 0; i < KINDS; i++)
        ran[i] = runs[i].devices ? &runs[i] : NULL;
    printf("\n");
    profile_findings(stdout, text_width(stdout), &(struct profiled){ran[0], ran[1], ran[2]});
    return OK;
}

static int profile(const struct run_config *config, struct run_record *runs,
                   struct job_result *result) {
    struct run_config base = *config;
    base.spans = base.quiet = 1;
    base.evaluate = 0;
    if (!base.steps) base.steps = DEFAULT_STEPS;
    run_config_without_files(&base);
    int code = shared_data_open(&base);
    if (!code) code = profile_kinds(&base, runs, result);
    shared_data_close(&base);
    return code;
}

int command_profile(int argc, char **argv) {
    struct run_config config;
    struct run_record runs[KINDS] = {{.devices = 0}};
    struct atomic_file json = {0}, trace = {0};
    struct job_result result = {.exit_status = 0};
    int help = 0, code;
    run_config_default(&config);
    CHECK_GOTO(flags_parse_all_modes(argc, argv, &config, &help, "profile"), code, done);
    if (help) return flags_help("profile"), 0;
    CHECK_GOTO(run_config_check(&config), code, done);
    if (*config.json) CHECK_GOTO(atomic_open(&json, config.json), code, done);
    if (*config.trace) CHECK_GOTO(atomic_open(&trace, config.trace), code, done);
    CHECK_GOTO(profile(&config, runs, &result), code, done);
    struct failures all = {0}; /* a file that cannot be written must not cost the other */
    failures_add(&all, write_json(&json, config.json, runs));
    failures_add(&all, write_trace(&trace, config.trace, runs));
    code = failures_end(&all);
done:
    atomic_abandon(&json);
    atomic_abandon(&trace);
    for (int i = 0; i < KINDS; i++)
        record_free(&runs[i]);
    report_error(code);
    return code && result.exit_status ? result.exit_status : error_exit_status(code);
}
