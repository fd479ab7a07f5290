/* Measures each device's traffic, memory and time by phase. All values are sums of the device
 * layer's counts; nothing is estimated. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "train/session.h"

void measure_mark(struct session *s) {
    memset(&s->mark, 0, sizeof s->mark);
    for (int i = 0; i < s->device_count; i++)
        traffic_join(&s->mark, device_traffic(s->device[i]));
}

void measure_count(struct session *s) {
    for (int i = 0; i < s->device_count; i++)
        traffic_join(&s->moved, device_traffic(s->device[i]));
    traffic_leave(&s->moved, &s->mark);
}

static int is_training(int phase) {
    return phase != PHASE_NONE && phase != PHASE_EVALUATE && phase != PHASE_PROOF;
}

void measure_add_span(struct device_record *d, const struct span *span) {
    int64_t ns = span_busy_ns(span);
    d->phase_bytes[span->phase] += span->bytes;
    if (phase_is_of_host(span->phase)) { /* the device is idle meanwhile */
        d->phase_ns[span->phase] += ns;
        return;
    }
    if (span->lane == LANE_COMM || span->lane == LANE_COPY) {
        if (!span->waiting) *(span->lane == LANE_COMM ? &d->comm_ns : &d->copy_ns) += ns;
        return;
    }
    if (span->waiting) {
        if (is_training(span->phase)) d->wait_ns += ns;
        return;
    }
    d->phase_ns[span->phase] += ns;
    if (is_training(span->phase) || span->phase == PHASE_PROOF)
        d->no_core_ns += span->end_ns - span->start_ns - ns;
    if (!is_training(span->phase)) return;
    d->busy_ns += ns;
    d->flops += span->flops;
    d->kernels += !span->bytes;
}

/* The next span in which the lane worked; NULL: there is none. */
static const struct span *next_of(const struct span_log *log, size_t *at, int device,
                                  enum lane lane) {
    while (*at < log->count) {
        const struct span *span = &log->spans[(*at)++];
        if (span->device == device && span->lane == lane && !span->waiting) return span;
    }
    return NULL;
}

static int64_t overlap_ns(const struct span *a, const struct span *b) {
    int64_t start = a->start_ns > b->start_ns ? a->start_ns : b->start_ns;
    int64_t end = a->end_ns < b->end_ns ? a->end_ns : b->end_ns;
    return end > start ? end - start : 0;
}

int64_t measure_exposed(const struct span_log *comm, const struct span_log *compute, int device,
                        int32_t step) {
    size_t at = 0, at_kernel = 0;
    int64_t ns = 0;
    const struct span *kernel = next_of(compute, &at_kernel, device, LANE_COMPUTE), *sum;
    while ((sum = next_of(comm, &at, device, LANE_COMM))) {
        if (step >= 0 && sum->step != step) continue;
        ns += sum->end_ns - sum->start_ns;
        while (kernel && kernel->start_ns < sum->end_ns) {
            ns -= overlap_ns(sum, kernel);
            if (kernel->end_ns > sum->end_ns) break; /* the kernel may overlap the next sum, too */
            kernel = next_of(compute, &at_kernel, device, LANE_COMPUTE);
        }
    }
    return ns;
}

static void empty_log(struct session *s, struct span_log *log, int device, int into_record) {
    struct run_record *r = s->record;
    for (size_t i = 0; into_record && i < log->count; i++) {
        measure_add_span(&r->device[device], &log->spans[i]);
        step_times_add(&s->step_times[device], &log->spans[i], s->first_step);
        if (log->spans[i].step < s->first_step + s->steps_kept) span_add(&r->kept, &log->spans[i]);
    }
    if (into_record) r->spans_lost += (int64_t)log->dropped;
    log->count = log->dropped = 0;
}

void measure_spans(struct session *s, int into_record) {
    for (int i = 0; i < s->device_count; i++) {
        const int device = s->first_device + i;
        if (into_record)
            s->record->device[device].exposed_ns +=
                measure_exposed(stream_spans(device_comm(s->device[i])),
                                stream_spans(device_compute(s->device[i])), device, -1);
        empty_log(s, stream_spans(device_compute(s->device[i])), device, into_record);
        empty_log(s, stream_spans(device_comm(s->device[i])), device, into_record);
        empty_log(s, stream_spans(device_copy(s->device[i])), device, into_record);
    }
    empty_log(s, &s->loads, s->first_device, into_record);
    if (s->strategy->waits) empty_log(s, s->strategy->waits(s), 0, into_record);
}

/* What each rank contributes: the record of its device, how many of its spans were lost, and the
 * parameters without a gradient (ddp_unfinished). */
struct brought {
    struct device_record device;
    int64_t spans_lost;
    char unreduced[256];
};

/* Sums what every rank moved over each link into the record. Imagined ranks run one after another,
 * and estimate.c adds up their records. */
static int gather_traffic(struct session *s) {
    struct traffic *sum = s->record->traffic = calloc(1, sizeof *sum);
    if (!sum) return fail(ERR_MEMORY, "traffic: out of host memory");
    if (!s->comm || comm_is_imagined(s->comm)) {
        *sum = s->moved;
        return OK;
    }
    struct traffic *all = malloc((size_t)s->ranks * sizeof *all);
    int code = all ? OK : fail(ERR_MEMORY, "traffic: out of host memory");
    if (!code) code = comm_gather(s->comm, &s->moved, sizeof s->moved, all);
    for (int k = 0; !code && k < s->ranks; k++)
        traffic_join(sum, &all[k]);
    free(all);
    return code;
}

int measure_finish(struct session *s) {
    struct run_record *r = s->record;
    struct brought mine, *all = NULL; /* [ranks] */
    int code = OK;
    for (int i = 0; i < s->device_count; i++) {
        struct device_record *d = &r->device[s->first_device + i];
        d->device = s->first_device + i;
        d->memory = device_ledger(s->device[i]);
        d->clock_error_ns = device_clock_error_ns(s->device[i]);
        step_times_sum_up(&s->step_times[d->device], d);
    }
    r->spans_lost += (int64_t)r->kept.dropped;
    mine.device = r->device[s->first_device];
    mine.spans_lost = r->spans_lost;
    memcpy(mine.unreduced, r->unreduced, sizeof mine.unreduced);
    int alone = !s->comm || comm_is_imagined(s->comm);
    all = calloc((size_t)s->ranks, sizeof *all);
    if (!all) return fail(ERR_MEMORY, "measurements of the devices: out of host memory");
    all[0] = mine;
    if (!alone) CHECK_GOTO(comm_gather(s->comm, &mine, sizeof mine, all), code, out);
    for (int k = 1; !alone && k < s->ranks; k++) {
        r->device[k] = all[k].device;
        r->spans_lost += all[k].spans_lost;
    }
    *r->unreduced = 0;
    for (int k = s->ranks - 1; k >= 0; k--) /* the first rank that has some reports for all */
        if (*all[k].unreduced)
            snprintf(r->unreduced, sizeof r->unreduced, "rank %d: %.200s", k, all[k].unreduced);
    CHECK_GOTO(gather_traffic(s), code, out);
    for (int d = 0; d < s->devices; d++) {
        r->device[d].bytes_in = traffic_into(r->traffic, d);
        r->device[d].bytes_out = traffic_out_of(r->traffic, d);
    }
out:
    free(all);
    return code;
}
