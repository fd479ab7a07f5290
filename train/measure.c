/* Measurement: what each device moved, how long each phase took, how much memory it held. All of it
 * is summed from what the device layer counted; nothing is estimated. */
#include <string.h>

#include "base/error.h"
#include "train/session.h"

/* What this process has moved so far into and out of each device of the run. */
static void sum_traffic(const struct session *s, uint64_t *in, uint64_t *out) {
    memset(in, 0, MAX_DEVICES * sizeof *in);
    memset(out, 0, MAX_DEVICES * sizeof *out);
    for (int i = 0; i < s->device_count; i++) {
        const struct traffic *t = device_traffic(s->device[i]);
        for (int d = 0; d < s->devices; d++) {
            in[d] += traffic_into(t, d);
            out[d] += traffic_out_of(t, d);
        }
    }
}

void measure_mark(struct session *s) {
    sum_traffic(s, s->mark_in, s->mark_out);
}

void measure_count(struct session *s) {
    uint64_t in[MAX_DEVICES], out[MAX_DEVICES];
    sum_traffic(s, in, out);
    for (int d = 0; d < s->devices; d++) {
        s->bytes_in[d] += in[d] - s->mark_in[d];
        s->bytes_out[d] += out[d] - s->mark_out[d];
    }
}

static int is_training(int phase) {
    return phase != PHASE_NONE && phase != PHASE_EVALUATE && phase != PHASE_PROOF;
}

static void add_span(struct device_record *d, const struct span *span) {
    int64_t ns = span_busy_ns(span);
    d->phase_bytes[span->phase] += span->bytes;
    d->phase_moves[span->phase] += span->bytes > 0;
    if (phase_is_of_host(span->phase)) { /* meanwhile the device has nothing to do */
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

static void empty_log(struct session *s, struct span_log *log, int device, int into_record) {
    struct run_record *r = s->record;
    for (size_t i = 0; into_record && i < log->count; i++) {
        add_span(&r->device[device], &log->spans[i]);
        step_times_add(&s->step_times[device], &log->spans[i], s->config->passes, s->first_step);
        if (log->spans[i].step < s->first_step + TRACE_STEPS) span_add(&r->kept, &log->spans[i]);
    }
    if (into_record) r->spans_lost += (int64_t)log->dropped;
    log->count = log->dropped = 0;
}

/* Empties the span logs of this process's devices; into_record 0: their spans are discarded. */
static void empty_logs(struct session *s, int into_record) {
    for (int i = 0; i < s->device_count; i++) {
        empty_log(s, stream_spans(device_compute(s->device[i])), s->first_device + i, into_record);
        empty_log(s, stream_spans(device_comm(s->device[i])), s->first_device + i, into_record);
        empty_log(s, stream_spans(device_copy(s->device[i])), s->first_device + i, into_record);
        empty_log(s, device_launch_spans(s->device[i]), s->first_device + i, into_record);
    }
    empty_log(s, &s->loads, s->first_device, into_record);
    if (s->strategy->waits) empty_log(s, s->strategy->waits(s), 0, into_record);
}

void measure_start(struct session *s) {
    empty_logs(s, 0);
}

void measure_spans(struct session *s) {
    empty_logs(s, 1);
}

/* What each rank contributes: the record of its device, and what it moved between any devices. */
struct brought {
    struct device_record device;
    int64_t spans_lost;
    uint64_t in[MAX_DEVICES], out[MAX_DEVICES];
};

/* Whoever imagines ranks runs them one after another and adds up their records (estimate.c). */
static int add_own(struct session *s, const struct brought *mine) {
    for (int d = 0; d < s->devices; d++) {
        s->record->device[d].bytes_in = mine->in[d];
        s->record->device[d].bytes_out = mine->out[d];
    }
    return OK;
}

int measure_finish(struct session *s) {
    struct run_record *r = s->record;
    struct brought mine, all[MAX_DEVICES];
    for (int i = 0; i < s->device_count; i++) {
        struct device_record *d = &r->device[s->first_device + i];
        d->device = s->first_device + i;
        d->memory = device_ledger(s->device[i]);
        step_times_sum_up(&s->step_times[d->device], d);
    }
    r->spans_lost += (int64_t)r->kept.dropped;
    mine.device = r->device[s->first_device];
    mine.spans_lost = r->spans_lost;
    memcpy(mine.in, s->bytes_in, sizeof mine.in);
    memcpy(mine.out, s->bytes_out, sizeof mine.out);
    all[0] = mine;
    if (comm_is_imagined(s->comm)) return add_own(s, &mine);
    if (s->comm) CHECK(comm_gather(s->comm, &mine, sizeof mine, all));
    for (int k = 1; k < s->ranks; k++) {
        r->device[k] = all[k].device;
        r->spans_lost += all[k].spans_lost;
    }
    for (int d = 0; d < s->devices; d++) {
        r->device[d].bytes_in = r->device[d].bytes_out = 0;
        for (int k = 0; k < s->ranks; k++) {
            r->device[d].bytes_in += all[k].in[d];
            r->device[d].bytes_out += all[k].out[d];
        }
    }
    return OK;
}
