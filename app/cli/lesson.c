/* Prints the lesson at the end of the demo: see lesson.h. Every number in it is measured. */
#include "cli/lesson.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "report/findings.h"
#include "report/table.h"
#include "report/text.h"
#include "report/values.h"
#include "train/estimate/retime.h"
#include "train/shared_data.h"

enum { LESSON_DEVICES = 4, LESSON_STEPS = 6 };

static void settings(struct run_config *config, const struct run_config *demo) {
    run_config_default(config);
    int gpus = !strcmp(demo->device, "cuda");
    snprintf(config->device, sizeof config->device, "%s", demo->device);
    snprintf(config->model.name, sizeof config->model.name, "wide");
    snprintf(config->data.name, sizeof config->data.name, "random");
    config->ddp.bucket_cap_mb = 1;
    config->update.optimizer = OPTIMIZER_ADAM;
    config->devices = !gpus ? LESSON_DEVICES : demo->devices < 2 ? 2 : demo->devices;
    config->steps = demo->steps && demo->steps < LESSON_STEPS ? demo->steps : LESSON_STEPS;
    config->clock = demo->clock;
    if (*config->clock.gpu) config->devices = demo->devices < 2 ? 2 : demo->devices;
    config->timeout = demo->timeout;
    config->seed = demo->seed;
    config->spans = config->quiet = config->warned = 1;
    config->evaluate = 0;
}

/* ---- the table ---- */

static void row(struct table *t, const char *name, enum value value, int cause,
                const struct run_record *dp, const struct run_record *ddp) {
    const double of[3] = {device_value(dp, 0, value, cause), others_value(dp, value, cause),
                          mean_value(ddp, 0, ddp->devices, value, cause)};
    struct table_row *row = table_add(t, ROW_VALUES, name);
    for (int i = 0; i < 3; i++)
        bytes_words(of[i], row->cell[i]);
}

static double peak(const struct run_record *r) {
    return device_value(r, 0, VALUE_PEAK, MEM_CAUSE_COUNT);
}

static void show(const struct run_record *dp, const struct run_record *ddp) {
    const struct profiled runs = {.dp = dp, .ddp = ddp};
    struct table t = {.columns = 3, .head = {"DP device 0", "DP others", "DDP each rank"}};
    row(&t, "memory at its peak", VALUE_PEAK, MEM_CAUSE_COUNT, dp, ddp);
    row(&t, "  gathered outputs, gradient", VALUE_PEAK, MEM_GATHERED, dp, ddp);
    row(&t, "  Adam's two moments", VALUE_PEAK, MEM_OPTIMIZER, dp, ddp);
    row(&t, "bytes in and out, per step", VALUE_LINKS, 0, dp, ddp);
    table_print(stdout, text_width(stdout), &t);
    profile_findings_print(stdout, text_width(stdout), &runs);
}

void lesson_answer_print(const double held[2]) {
    char first[32], others[32];
    if (!held[1]) return;
    text_say(stdout, text_width(stdout), 0, 0,
             "With 2000 outputs and Adam, device 0 of DP holds %.1f times the memory of every "
             "other: %s instead of %s.",
             held[0] / held[1], bytes_words(held[0], first), bytes_words(held[1], others));
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
    settings(&config, demo);
    if (config.devices < 2) return OK;               /* on one device DP costs nothing */
    struct run_record *two = calloc(2, sizeof *two); /* DP, DDP: too large for a small stack */
    if (!two) return fail(ERR_MEMORY, "demo: out of host memory");
    printf("\n");
    text_say(stdout, text_width(stdout), 0, 0,
             "Where DataParallel hurts: 2000 outputs, Adam, %d devices, %d step%s of `duet profile "
             "--optimizer adam`:",
             config.devices, config.steps, config.steps == 1 ? "" : "s");
    fflush(stdout);
    int code = *config.clock.gpu ? retime_check(&config) : OK;
    if (!code) code = shared_data_open(&config);
    if (!code) code = runs(&config, &two[0], &two[1], result);
    if (!code)
        held[0] = peak(&two[0]), held[1] = others_value(&two[0], VALUE_PEAK, MEM_CAUSE_COUNT);
    shared_data_close(&config);
    record_free(&two[0]);
    record_free(&two[1]);
    free(two);
    if (code != ERR_MEMORY || result->signal) return code;
    text_wrap(stdout, text_width(stdout), 0, 0, error_message());
    result->exit_status = 0;
    return OK;
}
