/* The timeline of a modelled step has the spans of a run, in its order on each lane: the clock
 * moves times and nothing else. */
#include <stdio.h>
#include <string.h>

#include "clock/run.h"
#include "comm/comm.h"
#include "tests/harness/harness.h"
#include "train/estimate/estimate.h"
#include "train/estimate/modelled.h"
#include "train/run.h"

enum { STEP = 2 }; /* the buckets are laid out by then */

static struct run_config config_of(enum run_mode mode, const char *model) {
    struct run_config c;
    run_config_default(&c);
    c.mode = mode;
    c.devices = 2;
    c.batch_size = 32;
    c.steps = MODELLED_STEPS;
    c.quiet = c.warned = 1;
    snprintf(c.model.name, sizeof c.model.name, "%s", model);
    snprintf(c.data.name, sizeof c.data.name, "random");
    c.model.options.sample = (struct sample_shape){1, 28, 28};
    return c;
}

/* The names of what a lane ran in the step, one behind the other: kernels, copies and sums. */
static void names(const struct span_log *log, int device, int lane, char *text, size_t bytes) {
    size_t used = 0;
    *text = 0;
    for (size_t i = 0; i < log->count; i++) {
        const struct span *s = &log->spans[i];
        if (s->waiting || s->device != device || s->lane != lane || s->step != STEP) continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s|", s->name);
        cr_assert(used < bytes);
    }
}

/* A dry run keeps its spans as it issues them: that is the order of a run on each stream. */
static void check(struct run_config *c, int comm_spans) {
    static char want[1 << 16], got[1 << 16];
    struct modelled m;
    struct hardware *h;
    struct clock_result result;
    struct span_log spans;
    struct clock_config clock = {.host = CLOCK_PYTORCH, .what_if = what_if_none()};
    c->dry = 1;
    snprintf(c->files.trace, sizeof c->files.trace, "kept");
    span_log_init(&spans, 1);
    cr_assert(!hardware_open(&h, NULL));
    cr_assert(!hardware_find_gpu(h, "gpu", "v100", &clock.gpu));
    cr_assert(!hardware_find_machine(h, "machine", "dgx1", &clock.machine));
    cr_assert(!modelled_open(&m, c));
    const struct program *programs;
    int count;
    cr_assert(!schedule_programs(m.schedule, &programs, &count));
    cr_assert(!modelled_time(&m, &clock, &result, &spans));
    cr_assert(result.step_ns > 0);
    for (int d = 0; d < m.record->devices; d++)
        for (int lane = 0; lane <= LANE_COPY; lane++) {
            size_t used = 0;
            *want = 0;
            for (int p = 0; p < count; p++)
                for (int i = 0; i < programs[p].count; i++) {
                    const struct scheduled *e = &programs[p].list[i];
                    int runs = e->kind == SCHEDULED_KERNEL || e->kind == SCHEDULED_COPY ||
                               e->kind == SCHEDULED_GROUP;
                    if (!runs || e->facts.device != d || e->facts.lane != lane) continue;
                    if (e->facts.step != STEP) continue;
                    used += (size_t)snprintf(want + used, sizeof want - used, "%s|", e->facts.name);
                }
            names(&spans, d, lane, got, sizeof got);
            if (lane == LANE_COMM) cr_assert((*got != 0) == comm_spans);
            cr_assert(!strcmp(got, want), "device %d, lane %d:\n%s\n%s", d, lane, want, got);
        }
    /* the same command, the same times */
    struct clock_result again;
    cr_assert(!modelled_time(&m, &clock, &again, NULL));
    cr_assert(!memcmp(&result, &again, sizeof result));
    modelled_close(&m);
    hardware_free(h);
    span_log_free(&spans);
}

Test(clock_order, single_dp_and_ddp, .timeout = 60) {
    struct run_config c = config_of(MODE_SINGLE, "lenet");
    check(&c, 0);
    c = config_of(MODE_DP, "lenet");
    check(&c, 0);
    c.dp.loss_in_forward = 1;
    check(&c, 0);
    c.dp.loss_in_forward = 0;
    c.dp.sharded_reduce = 1;
    check(&c, 0);
    c = config_of(MODE_DDP, "lenet");
    check(&c, 1);
    c.ddp.no_overlap = 1;
    check(&c, 1);
}

/* Also where the data set has no further full batch: 6400 random samples, by default. */
Test(clock_order, a_step_is_that_of_a_full_batch) {
    int64_t ns[2];
    for (int i = 0; i < 2; i++) {
        struct run_config c = config_of(MODE_DP, "resnet18");
        struct clock_config clock = {.host = CLOCK_DUET, .what_if = what_if_none()};
        struct clock_result result;
        struct modelled m;
        struct hardware *h;
        c.dry = 1;
        c.batch_size = i ? 2048 : 256;
        cr_assert(!hardware_open(&h, NULL));
        cr_assert(!hardware_find_gpu(h, "gpu", "v100", &clock.gpu));
        cr_assert(!hardware_find_machine(h, "machine", "dgx1", &clock.machine));
        cr_assert(!modelled_open(&m, &c));
        cr_assert(!modelled_time(&m, &clock, &result, NULL));
        ns[i] = result.step_ns;
        modelled_close(&m);
        hardware_free(h);
    }
    cr_assert(ns[1] > 4 * ns[0], "%lld, %lld", (long long)ns[0], (long long)ns[1]);
}

Test(clock_order, accumulation_and_sync_batch_norm, .timeout = 60) {
    struct run_config c = config_of(MODE_DDP, "resnet18");
    c.update.passes = 2;
    check(&c, 1);
    c.update.passes = 1;
    c.model.options.sync_bn = 1;
    check(&c, 1);
}
