/* Spans: when each kernel, copy and wait began and ended.
 *
 * Each of them adds one span to the log of the stream or thread that ran it. The profile, the times
 * of compare and the Chrome trace all read these logs, so they cannot disagree. A log has one
 * writer and is read after the writer is done, after a sync. Spans have no pointers, so a rank
 * sends its log to the launcher as bytes. */
#ifndef TRACE_SPAN_H
#define TRACE_SPAN_H

#include <stddef.h>
#include <stdint.h>

/* The phases of a step (docs/design.md section 2), in the order in which reports list them. */
enum phase {
    PHASE_NONE,
    PHASE_LOADER,    /* the host waits for the loader to prepare a batch */
    PHASE_INPUT,     /* the batch is copied from the host to a device */
    PHASE_SCATTER,   /* DP: device 0 sends each device its share of the batch */
    PHASE_REPLICATE, /* DP: device 0 sends each device the parameters */
    PHASE_FORWARD,
    PHASE_GATHER,       /* DP: device 0 collects every device's output */
    PHASE_LOSS,         /* the loss and its gradient with respect to the outputs, dL/dy */
    PHASE_SCATTER_GRAD, /* DP: device 0 sends each device its share of dL/dy */
    PHASE_BACKWARD,
    PHASE_REDUCE,    /* DP: device 0 sums every device's gradients */
    PHASE_ALLREDUCE, /* DDP: buckets of gradients are summed on every rank */
    PHASE_OPTIMIZER,
    PHASE_EVALUATE, /* forward passes over the test set */
    PHASE_PROOF,    /* hashes for the check of equal bits: not part of training */
    PHASE_COUNT
};
/* 1: a thread of the program works or waits, independently of its device. */
static inline int phase_is_of_host(int phase) {
    return phase == PHASE_LOADER;
}
const char *phase_name(enum phase phase); /* "forward", "scatter_grad", ...: static storage */

/* The lane of its device on which a span ran. LANE_COPY copies batches to the device while kernels
 * run. LANE_HOST is a thread of the program that waits or prepares. */
enum lane { LANE_COMPUTE, LANE_COMM, LANE_COPY, LANE_HOST, LANE_COUNT };
const char *lane_name(enum lane lane);

/* The two ends of a copy or a collective: the devices that it reads and those that it writes, as
 * bit sets with 1 << d for device d. All are zero in a kernel or a wait. */
enum { SPAN_FROM_HOST = 1, SPAN_TO_HOST = 2, SPAN_COLLECTIVE = 4 };
struct span_ends {
    uint64_t sources, destinations;
    /* Host memory can be an end, too. SPAN_COLLECTIVE: in the same step the other devices have the
     * same number of spans with this name. */
    uint8_t kind;
};

struct span {
    int64_t start_ns, end_ns; /* now_ns of base/clock.h: the same clock in all processes */
    /* CPU time that the span took on an emulated device's compute lane, at most end - start; 0: not
     * measured, so wall time counts. Devices that share cores take turns, so a kernel's wall time
     * includes other devices' turns, but its CPU time does not. */
    int64_t cpu_ns;
    uint64_t bytes;                 /* moved over a link by a copy or collective; 0 for kernels */
    double flops;                   /* floating point operations of a kernel; else 0 */
    uint64_t sources, destinations; /* as in struct span_ends */
    int32_t step;                   /* global step, from 0; -1 outside steps */
    int16_t rank, device;
    uint8_t lane, phase; /* enum lane, enum phase */
    uint8_t waiting;     /* 1: the lane only waited */
    uint8_t ends_kind;   /* kind of struct span_ends */
    /* "conv2d forward", "allreduce bucket 1", "wait"; cut to fit, always with a final 0 */
    char name[28];
};

static inline void span_set_ends(struct span *span, const struct span_ends *ends) {
    span->sources = ends->sources;
    span->destinations = ends->destinations;
    span->ends_kind = ends->kind;
}

/* How long the device was busy with a span, which profile and compare add up. */
static inline int64_t span_busy_ns(const struct span *span) {
    return span->cpu_ns ? span->cpu_ns : span->end_ns - span->start_ns;
}

struct span_log {
    struct span *spans; /* owned */
    size_t count, capacity;
    size_t dropped; /* spans lost because host memory ran out */
    int on;         /* 0: span_add does nothing */
};

void span_log_init(struct span_log *log, int on);
void span_log_free(struct span_log *log); /* NULL and zeroed are fine */

/* Appends a copy of *span; does nothing if the log is NULL or off. If host memory runs out, it
 * counts the span in `dropped`, since a measurement must not end a run. One writer at a time. */
void span_add(struct span_log *log, const struct span *span);

#endif
