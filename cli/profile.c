/* duet profile: a few steps each of DP, of DP with the loss in forward and of DDP; one table for
 * each. */
#include <math.h>
#include <stdio.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/results.h"
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

/* What became of the kinds; full[i] is the error of one that did not fit into its devices' memory,
 * "" of the others. */
struct profiles {
    struct run_record run[KINDS]; /* devices 0: it was left out, or did not fit */
    char full[KINDS][ERROR_BYTES];
};

/* Kind by kind, in each first what is beyond the spread of the steps, the largest first. */
static void write_excess(struct json_writer *w, const struct run_record *run) {
    static const char *const kind_names[] = {"memory_bytes", "link_bytes_a_step", "ns_a_step"};
    struct excess list[EXCESS_MAX];
    json_array(w, "device_0_excess");
    for (int kind = EXCESS_MEMORY; kind <= EXCESS_TIME; kind++) {
        int n = profile_excess(run, kind, list);
        for (int i = 0; i < n; i++) {
            json_object(w, NULL);
            json_string(w, "kind", kind_names[kind]);
            json_string(w, "name", list[i].name);
            json_number(w, "amount", list[i].amount);
            json_number(w, "spread", kind == EXCESS_TIME ? list[i].spread : NAN);
            json_boolean(w, "within_spread", list[i].within_spread);
            json_close(w);
        }
    }
    json_close(w);
}

static int write_json(struct atomic_file *file, const struct profiles *p) {
    struct json_writer w;
    if (!file->file) return OK;
    CHECK(results_start(&w, file->file, "profile"));
    json_array(&w, "runs");
    for (int i = 0; i < KINDS; i++) {
        if (!p->run[i].devices && !*p->full[i]) continue; /* left out */
        results_run(&w, kinds[i].key, kinds[i].title, p->full[i], &p->run[i]);
        if (!*p->full[i]) write_excess(&w, &p->run[i]);
        json_close(&w);
    }
    json_close(&w);
    return results_end(&w, file);
}

static int write_trace(struct atomic_file *file, const char *path, const struct run_record *runs) {
    struct trace_run list[KINDS];
    int count = 0;
    for (int i = 0; i < KINDS; i++)
        if (runs[i].devices) list[count++] = (struct trace_run){kinds[i].title, &runs[i]};
    return chrome_trace_write(file, path, list, count);
}

/* ---- the runs ---- */

/* Prints which kinds fit into the memory that the devices have. */
static void show_what_fits(const struct profiles *p, int width) {
    text_wrap(stdout, width, 0, 2, "what fits where");
    for (int i = 0; i < KINDS; i++) {
        const struct run_record *r = &p->run[i];
        struct text text = {.used = 0};
        char most[32], all[32];
        uint64_t peak = 0, capacity = 0;
        if (!r->devices && !*p->full[i]) continue;
        for (int d = 0; d < r->devices; d++)
            if (r->device[d].memory.total_peak > peak) {
                peak = r->device[d].memory.total_peak;
                capacity = r->device[d].memory.capacity;
            }
        if (*p->full[i])
            text_add(&text, "%s: does not fit", kinds[i].title);
        else
            text_add(&text, "%s: fits, with at most %s of %s on a device", kinds[i].title,
                     format_bytes(peak, most, sizeof most),
                     format_bytes(capacity, all, sizeof all));
        text_wrap(stdout, width, 2, 4, text.words);
    }
}

static void show_findings(const struct profiles *p, int width) {
    const struct run_record *ran[KINDS];
    for (int i = 0; i < KINDS; i++)
        ran[i] = p->run[i].devices ? &p->run[i] : NULL;
    printf("\n");
    profile_findings(stdout, width, &(struct profiled){ran[0], ran[1], ran[2]});
}

/* Says what the kind that did not fit held when it asked for more, by cause, and forgets the
 * failure, so that the other kinds go on. */
static void note_full(struct profiles *p, int i, int width) {
    struct text text = {.used = 0};
    snprintf(p->full[i], sizeof p->full[i], "%s", error_message());
    record_free(&p->run[i]);
    text_add(&text, "%s", p->full[i]);
    printf("\n%s does not fit:\n", kinds[i].title);
    text_wrap(stdout, width, 2, 2, text.words);
    fflush(stdout);
}

/* Runs the three kinds with the settings of `config`. ERR_MEMORY: one of them did not fit; the
 * others ran all the same. */
static int profile_kinds(const struct run_config *config, struct profiles *p,
                         struct job_result *result) {
    struct run_config base = *config;
    const char *why = compare_leaves_out(config, MODE_DP);
    int first = 1, full = -1, width = text_width(stdout);
    if (why) printf("DP is left out: %s\n", why);
    CHECK(job_try_nccl(&base, result));
    for (int i = 0; i < KINDS; i++) {
        if (compare_leaves_out(config, kinds[i].mode)) continue;
        base.mode = kinds[i].mode;
        base.loss_in_forward = kinds[i].loss_in_forward;
        char title[64];
        int code = job_run_titled(kinds[i].title, &base, &p->run[i], result);
        base.warned = 1; /* once is enough */
        if (code == ERR_MEMORY && !result->signal) {
            note_full(p, full = i, width);
            continue;
        }
        CHECK(code);
        if (first) { /* only now, since a job looks for GPUs and the launcher does not */
            printf("%s%s on %s, ", full < 0 ? "" : "\n", base.model, base.dataset);
            device_words(stdout, &p->run[i]);
            printf("\n");
            snprintf(base.device, sizeof base.device, "%s", p->run[i].kind); /* for all the same */
        }
        first = 0;
        printf("\n");
        profile_table(stdout, width, title_of(i, config, title), &p->run[i]);
        fflush(stdout);
        warn_not_finite(kinds[i].title, &p->run[i]);
    }
    show_findings(p, width);
    if (full < 0) return OK;
    show_what_fits(p, width);
    fflush(stdout);
    return fail(ERR_MEMORY,
                "%s: out of memory: %s: use a smaller batch or model, or a larger --device-memory",
                kinds[full].title, "what was held, and what fits, stands above");
}

static int profile(const struct run_config *config, struct profiles *profiles,
                   struct job_result *result) {
    struct run_config base = *config;
    base.spans = base.quiet = 1;
    base.evaluate = 0;
    if (!base.steps) base.steps = DEFAULT_STEPS;
    run_config_without_files(&base);
    int code = shared_data_open(&base);
    if (!code) code = profile_kinds(&base, profiles, result);
    shared_data_close(&base);
    return code;
}

int command_profile(int argc, char **argv) {
    struct run_config config;
    struct profiles profiles = {0};
    struct atomic_file json = {0}, trace = {0};
    struct job_result result = {.exit_status = 0};
    int help = 0, code;
    run_config_default(&config);
    CHECK_GOTO(flags_parse_all_modes(argc, argv, &config, &help, "profile"), code, done);
    if (help) return flags_help("profile"), 0;
    CHECK_GOTO(run_config_check(&config), code, done);
    if (*config.json) CHECK_GOTO(atomic_open(&json, config.json), code, done);
    if (*config.trace) CHECK_GOTO(atomic_open(&trace, config.trace), code, done);
    code = profile(&config, &profiles, &result);
    if (code && code != ERR_MEMORY) goto done;
    struct failures all = {0}; /* a file that cannot be written must not cost the other */
    failures_add(&all, code);
    failures_add(&all, write_json(&json, &profiles));
    failures_add(&all, write_trace(&trace, config.trace, profiles.run));
    code = failures_end(&all);
done:
    atomic_abandon(&json);
    atomic_abandon(&trace);
    for (int i = 0; i < KINDS; i++)
        record_free(&profiles.run[i]);
    report_error(code);
    return code && result.exit_status ? result.exit_status : error_exit_status(code);
}
