/* See modelled.h. */
#include "train/estimate/modelled.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "clock/run.h"
#include "clock/trust.h"
#include "train/estimate/estimate.h"

int modelled_open(struct modelled *m, const struct run_config *config) {
    struct run_config c = *config;
    memset(m, 0, sizeof *m);
    CHECK(record_new(&m->record));
    CHECK(schedule_new(&m->schedule));
    c.schedule = m->schedule;
    c.fold_elsewhere = 1; /* the times are those of PyTorch, which follows no allreduce */
    c.steps = MODELLED_STEPS;
    c.device_memory_count = 0; /* no limit: modes that do not fit also get a row */
    /* all steps have full batches */
    c.data.drop_last = 1;
    estimate_enlarge(&c, (int64_t)(MODELLED_STEPS + 1) * c.batch_size * c.update.passes);
    m->pageable = c.data.no_pin_memory;
    return estimate_run(&c, m->record);
}

void modelled_close(struct modelled *m) {
    schedule_free(m->schedule);
    record_delete(m->record);
    memset(m, 0, sizeof *m);
}

static void describe_programs(const struct modelled *m, const struct program *programs, int count,
                              struct clock_config *clock) {
    const struct run_record *r = m->record;
    int unpublished = (clock->precision == CLOCK_FP32 && clock->gpu->tensor > 0) ||
                      (clock->precision == CLOCK_AMP && clock->gpu->half == 0);
    clock->kind =
        unpublished ? CLOCK_OTHER : trust_kind(programs, count, r->batch_size / r->devices);
    clock->way = r->devices == 1 && clock->nodes <= 1 ? CLOCK_SINGLE
                 : r->mode == MODE_DP                 ? CLOCK_DP
                 : r->mode == MODE_FSDP               ? CLOCK_FSDP
                                                      : CLOCK_DDP;
    clock->devices = r->devices;
    clock->tensors = r->parameters;
    clock->parameter_bytes = r->parameter_count * sizeof(float);
    clock->pageable = m->pageable;
}

int modelled_time(const struct modelled *m, struct clock_config *clock, struct clock_result *result,
                  struct span_log *spans) {
    struct span_log own, *log = spans ? spans : &own;
    const struct program *programs;
    int count;
    CHECK(schedule_programs(m->schedule, &programs, &count));
    describe_programs(m, programs, count, clock);
    if (!spans) span_log_init(&own, 1);
    int code = clock_run(clock, programs, count, log);
    if (!code && log->dropped) code = fail(ERR_MEMORY, "modelled times: out of host memory");
    if (!code) clock_result(log, result);
    if (!spans) span_log_free(&own);
    return code;
}

/* A part of a step may be bound by the host, so it takes some rounds. */
int modelled_give(const struct modelled *m, struct clock_config *clock, double ms) {
    enum { ROUNDS = 12 };
    double now = 0;
    struct clock_result result;
    clock->given = 1;
    for (int i = 0; i < ROUNDS && fabs(now - ms) > 1e-4 * ms; i++) {
        if (i) clock->given *= ms / now;
        CHECK(modelled_time(m, clock, &result, NULL));
        now = (double)result.step_ns * 1e-6;
    }
    if (fabs(now - ms) < 0.02 * ms) return OK;
    return fail(ERR_USAGE,
                "--measured: %g ms: the host needs %.2f: check the time, the batch and --machine",
                ms, now);
}

const char *modelled_bound(const struct modelled *m, const struct clock_config *clock,
                           const struct clock_result *result, enum phase phase,
                           double *operations) {
    static const char *const names[] = {"flops", "memory", "launches", "link"};
    enum { LINK = 3 };
    double ns[] = {0, 0, 0, (double)result->phase_ns[phase]};
    const struct program *programs;
    int count, most = LINK;
    *operations = 0;
    if (schedule_programs(m->schedule, &programs, &count)) return names[LINK];
    for (int p = 0; p < count; p++)
        for (int i = 0; i < programs[p].count; i++) {
            const struct scheduled *e = &programs[p].list[i];
            if (e->kind != SCHEDULED_KERNEL || e->facts.phase != phase) continue;
            if (e->facts.device || e->facts.step != result->step) continue;
            const char *by = cost_bound(clock, e);
            *operations += e->work.eager + e->work.additions;
            double one = (double)cost_kernel_ns(clock, e);
            ns[*by == 'f' ? 0 : *by == 'm' ? 1 : 2] += one;
            ns[LINK] -= one;
        }
    for (int i = 0; i < LINK; i++)
        if (ns[i] > ns[most]) most = i;
    return names[most];
}
