/* The lesson at the end of the demo: see lesson.h. Every number in it is measured. */
#include "cli/lesson.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "device/visible.h"
#include "report/table.h"
#include "report/text.h"
#include "train/estimate/retime.h"
#include "train/shared_data.h"

enum { LESSON_DEVICES = 4, LESSON_STEPS = 6 };

/* Emulated ones. 1: there are too few, as CUDA_VISIBLE_DEVICES says. */
static int lesson_devices(void) {
    struct visible_devices visible;
    return !visible_devices(&visible) && visible.count < LESSON_DEVICES ? visible.count
                                                                        : LESSON_DEVICES;
}

static void settings(struct run_config *config, const struct run_config *demo) {
    run_config_default(config);
    int gpus = !strcmp(demo->device, "cuda");
    snprintf(config->device, sizeof config->device, "%s", demo->device);
    snprintf(config->model.name, sizeof config->model.name, "wide");
    snprintf(config->data.name, sizeof config->data.name, "random");
    config->ddp.bucket_cap_mb = 1;
    config->update.optimizer = OPTIMIZER_ADAM;
    config->devices = !gpus ? lesson_devices() : demo->devices < 2 ? 2 : demo->devices;
    config->steps = demo->steps && demo->steps < LESSON_STEPS ? demo->steps : LESSON_STEPS;
    config->clock = demo->clock;
    if (*config->clock.gpu) config->devices = demo->devices < 2 ? 2 : demo->devices;
    config->timeout = demo->timeout;
    config->seed = demo->seed;
    config->spans = config->quiet = config->warned = 1;
    config->evaluate = 0;
}

/* ---- the table ---- */

typedef double measure(const struct run_record *run, int device);

static double peak(const struct run_record *r, int d) {
    return (double)r->device[d].memory.total_peak;
}
static double outputs(const struct run_record *r, int d) {
    return (double)r->device[d].memory.at_peak[MEM_GATHERED];
}
static double optimizer(const struct run_record *r, int d) {
    return (double)r->device[d].memory.at_peak[MEM_OPTIMIZER];
}
static double moved(const struct run_record *r, int d) {
    return record_per_step(r, (double)(r->device[d].bytes_in + r->device[d].bytes_out));
}
static double busy(const struct run_record *r, int d) {
    return record_per_step(r, (double)r->device[d].busy_ns);
}

static double mean(const struct run_record *r, measure *value, int first) {
    double sum = 0;
    for (int d = first; d < r->devices; d++)
        sum += value(r, d);
    return sum / (r->devices - first);
}

static void row(const char *name, measure *value, int is_time, const struct run_record *dp,
                const struct run_record *ddp) {
    const double of[3] = {value(dp, 0), mean(dp, value, 1), mean(ddp, value, 0)};
    char cells[3][TABLE_CELL];
    for (int i = 0; i < 3; i++) {
        if (is_time)
            snprintf(cells[i], TABLE_CELL, "%.1f", of[i] * 1e-6);
        else
            bytes_words(of[i], cells[i]);
    }
    table_row(stdout, text_width(stdout), name, cells, 3);
}

static void show(const struct run_record *dp, const struct run_record *ddp) {
    struct text text = {.used = 0};
    char heads[3][TABLE_CELL] = {"DP device 0", "DP others", "DDP each rank"};
    char less[32], more[32];
    table_row(stdout, text_width(stdout), "", heads, 3);
    row("memory at its peak", peak, 0, dp, ddp);
    row("  gathered outputs, gradient", outputs, 0, dp, ddp);
    row("  Adam's two moments", optimizer, 0, dp, ddp);
    row("bytes over links, per step", moved, 0, dp, ddp);
    row(*dp->modelled ? "modelled busy ms per step" : "busy ms per step", busy, 1, dp, ddp);
    text_add(&text,
             "DP gathers all outputs on device 0 and computes the loss, its gradient and the "
             "update there. In DDP each rank does so for its own samples: device 0's peak changes "
             "by %s, that of the others by %s: every rank holds Adam's moments and the buckets "
             "of allreduce.",
             signed_bytes(peak(ddp, 0) - peak(dp, 0), less),
             signed_bytes(mean(ddp, peak, 1) - mean(dp, peak, 1), more));
    text_wrap(stdout, text_width(stdout), 0, 0, text.words);
}

void lesson_answer_print(const double held[2]) {
    struct text text = {.used = 0};
    char first[32], others[32];
    if (!held[1]) return;
    text_add(&text,
             "With 2000 outputs and Adam, device 0 of DP holds %.1f times the memory of each "
             "other: %s instead of %s.",
             held[0] / held[1], bytes_words(held[0], first), bytes_words(held[1], others));
    text_wrap(stdout, text_width(stdout), 0, 0, text.words);
}

/* ---- the runs ---- */

static int runs(struct run_config *config, struct run_record *dp, struct run_record *ddp,
                struct job_result *result) {
    config->mode = MODE_DP;
    CHECK(job_run_titled("DP", config, dp, result));
    config->mode = MODE_DDP;
    CHECK(job_run_titled("DDP", config, ddp, result));
    show(dp, ddp);
    return OK;
}

int lesson_run(const struct run_config *demo, double held[2], struct job_result *result) {
    struct run_config config;
    struct text text = {.used = 0};
    settings(&config, demo);
    if (config.devices < 2) return OK;               /* DP hurts nobody there */
    struct run_record *two = calloc(2, sizeof *two); /* DP, DDP: too large for a small stack */
    if (!two) return fail(ERR_MEMORY, "demo: no host memory");
    text_add(&text,
             "Where DataParallel hurts: 2000 outputs, Adam, %d devices, %d step%s of `duet profile "
             "--optimizer adam`:",
             config.devices, config.steps, config.steps == 1 ? "" : "s");
    printf("\n");
    text_wrap(stdout, text_width(stdout), 0, 0, text.words);
    fflush(stdout);
    int code = *config.clock.gpu ? retime_check(&config) : OK;
    if (!code) code = shared_data_open(&config);
    if (!code) code = runs(&config, &two[0], &two[1], result);
    if (!code) held[0] = peak(&two[0], 0), held[1] = mean(&two[0], peak, 1);
    shared_data_close(&config);
    record_free(&two[0]);
    record_free(&two[1]);
    free(two);
    if (code != ERR_MEMORY || result->signal) return code;
    text_wrap(stdout, text_width(stdout), 0, 0, error_message());
    result->exit_status = 0;
    return OK;
}
