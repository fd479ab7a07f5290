/* Spans: the one stream of facts about time.
 *
 * Every kernel, copy and wait reports one span to the log of the stream (or thread) that ran it.
 * Profile, compare's time by phase and the Chrome trace are readers of these logs; nothing else in
 * the house measures time. A log has one writer; it is read when the writer is done (after a sync).
 * Spans are plain data without pointers, so a rank can hand its log to the launcher as bytes. */
#ifndef TRACE_SPAN_H
#define TRACE_SPAN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The phases of a step, docs/design.md section 2, in the order in which reports list them. */
enum phase {
    PHASE_NONE,
    PHASE_INPUT,     /* the batch travels from the host to the device that holds it first */
    PHASE_SCATTER,   /* DP: device 0 hands each device its share of the batch */
    PHASE_REPLICATE, /* DP: device 0 hands each device the parameters */
    PHASE_FORWARD,
    PHASE_GATHER, /* DP: device 0 takes in every device's output */
    PHASE_LOSS,
    PHASE_SCATTER_GRAD, /* DP: device 0 hands each device its share of dL/dy */
    PHASE_BACKWARD,
    PHASE_REDUCE,    /* DP: device 0 sums every device's gradients */
    PHASE_ALLREDUCE, /* DDP: buckets of gradients are summed on every rank */
    PHASE_OPTIMIZER,
    PHASE_EVALUATE, /* forward passes over the test set */
    PHASE_PROOF,    /* hashes for the verdict of equal bits: not part of training */
    PHASE_COUNT
};
const char *phase_name(enum phase phase); /* "forward", "scatter_grad", ...: static storage */

/* Where on its device a span ran. LANE_HOST: a thread of the program waiting or preparing. */
enum lane { LANE_COMPUTE, LANE_COMM, LANE_HOST, LANE_COUNT };
const char *lane_name(enum lane lane);

struct span {
    int64_t start_ns, end_ns; /* base/clock.h: one axis for all processes of the machine */
    uint64_t bytes;           /* moved over a link (copies, collectives); 0 for kernels */
    double flops;             /* floating point operations of a kernel; 0 for the rest */
    int32_t step;             /* global step, from 0; -1 outside of steps */
    int16_t rank, device;
    uint8_t lane, phase; /* enum lane, enum phase */
    uint8_t waiting;     /* 1: nothing was computed or moved, only waited for */
    /* "conv2d forward", "allreduce bucket 1", "wait": cut, always ended by 0 */
    char name[29];
};

struct span_log {
    struct span *spans; /* owned */
    size_t count, capacity;
    size_t dropped; /* spans lost because the host had no memory for them */
    int on;         /* 0: span_add returns at once */
};

void span_log_init(struct span_log *log, int on);
void span_log_free(struct span_log *log); /* NULL and zeroed are fine */

/* Copies *span to the end of the log; nothing when the log is NULL or off. One writer at a time. */
void span_add(struct span_log *log, const struct span *span);

/* Total busy (waiting == 0) nanoseconds of each phase in spans[0..count): sums of lengths, lane
 * by lane, for device `device` (-1: all). Spans of one lane do not overlap. */
void span_sum_phases(const struct span *spans, size_t count, int device, int lane,
                     int64_t ns[PHASE_COUNT]);

#ifdef __cplusplus
}
#endif
#endif
