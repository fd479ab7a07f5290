/* The calls in flight on one rank's stream, as the host sees them. Every executor of GPUs keeps
 * one such ring.
 *
 * How far the host may run ahead. If a stream's queue is full, a launch blocks inside the driver,
 * which has no deadline. The queue does not empty while the stream waits for a rank that never
 * answers. So the host runs at most a few steps ahead. Before it enqueues more, it waits here,
 * where the wait can be interrupted.
 *
 * Which peer is awaited. A stream that waits does not say why, and CUDA knows nothing of peers. So
 * while the host waits for its device, it now and then checks whether the stream has reached the
 * oldest call, and which peer's flag is missing. comm/ then treats that wait like a wait on the
 * host, with the same deadline and the same messages after an abort or when a peer has left.
 *
 * Release. After a failure the executor satisfies every wait on its own streams, so that they run
 * empty; their results are then invalid.
 *
 * Only the thread of the executor uses the ring. But any thread that waits for the device may call
 * `look` and `release` of the device's watch, under the watch's lock. */
#ifndef ALLREDUCE_CUDA_UNDER_WAY_H
#define ALLREDUCE_CUDA_UNDER_WAY_H

#include "allreduce/executor.h"
#include "device/cuda/cuda.h"

/* The most calls in flight, and the events within long calls. */
enum { CUDA_CALLS = 64, CUDA_MARKS = 4 };

struct cuda_call {
    cudaEvent_t begun, ended; /* recorded before and after everything that the call enqueues */
    int complete;             /* 1: `ended` was recorded for this call, not for an earlier one */
    const struct plan *plan;  /* NULL if the executor runs none */
    uint64_t base;            /* base of the call's epochs */
    enum collective what;
    int bucket;
    long step;
};

/* The target of the oldest call's wait. */
struct cuda_awaited {
    uint64_t call; /* number of the call */
    int step;      /* step of its plan */
    int peer;      /* the rank that is awaited, -1 if unknown */
};
enum cuda_awaits {
    CUDA_AWAITS_NOBODY,
    CUDA_AWAITS_PEER,
    CUDA_AWAITS_UNSEEN, /* the flags could not be read now; the next poll tries again */
};

struct cuda_calls;

/* The functions that differ from executor to executor. None of them may wait. */
struct cuda_calls_ops {
    /* Returns a failure that the executor itself has found, with its message, or OK. `waiting` is
     * as in struct cuda_watch. NULL: it finds none. */
    int (*look)(struct cuda_calls *calls, int waiting);

    /* Finds the peer that `call`, which the stream has reached, waits for. Fills in step and peer
     * for CUDA_AWAITS_PEER. NULL: the executor's own waits keep the deadline. */
    enum cuda_awaits (*awaited)(struct cuda_calls *calls, const struct cuda_call *call,
                                struct cuda_awaited *out);

    /* Satisfies all waits of this rank after the job has failed. It may be called repeatedly. */
    void (*release)(struct cuda_calls *calls);

    /* Returns 1 once only the stream remains to be waited for. NULL: always. */
    int (*is_released)(struct cuda_calls *calls);
};

/* The first member of every executor of GPUs. */
struct cuda_calls {
    const struct cuda_calls_ops *ops;
    const struct executor_ranks *ranks;
    struct cuda_device *device;
    struct cuda_stream *stream; /* the stream of the calls; NULL before the first */
    struct cuda_flag *seen;     /* awaited.h: pinned, this rank's flags as last read; NULL: none */
    int stuck; /* release did not empty the stream, so memory that it may reach must not be freed */

    /* Call number k is at call[k % CUDA_CALLS]; oldest .. next - 1 are not known to be done. */
    struct cuda_call call[CUDA_CALLS];
    uint64_t oldest, next;
    cudaEvent_t mark[CUDA_MARKS]; /* recorded in turn within long calls */
    uint64_t marks;               /* recorded so far */
    int since_mark;               /* operations enqueued after the last mark */

    struct cuda_watch watch;
    int64_t looked_ns;           /* when the oldest call was last polled */
    struct cuda_awaited awaited; /* what `wait` describes; call UINT64_MAX: nothing */
    struct wait wait;
};

/* Fills `calls`, which is zeroed, and makes its events. After a failure call cuda_calls_close. The
 * arguments must outlive it. */
int cuda_calls_open(struct cuda_calls *calls, const struct executor_ranks *ranks,
                    const struct cuda_calls_ops *ops);
void cuda_calls_close(struct cuda_calls *calls); /* zeroed or half-built is fine; unwatches */

/* After watch the device's waits check these calls; the executor must be complete. Call unwatch
 * before anything of the executor is freed; it may be called twice. */
void cuda_calls_watch(struct cuda_calls *calls);
void cuda_calls_unwatch(struct cuda_calls *calls);

/* They surround the work that a call enqueues. begin returns the job's failure, if any, and waits
 * if the host is too far ahead. mark is called between two operations of a long call and waits for
 * the same reason; `operations` were enqueued since the last mark. */
int cuda_calls_begin(struct cuda_calls *calls, struct cuda_stream *stream,
                     const struct executor_call *call);
int cuda_calls_mark(struct cuda_calls *calls, struct cuda_stream *stream, int operations);
int cuda_calls_end(struct cuda_calls *calls, struct cuda_stream *stream);

static inline struct executor *executor_of(struct cuda_calls *calls) {
    return (struct executor *)calls;
}

/* executor_ops.release of every executor of GPUs. */
int cuda_calls_release(struct executor *executor);

/* Waits, at most two seconds, for the stream to run empty and for is_released. 1: both happened. */
int cuda_calls_drain(struct cuda_calls *calls);

/* Marks the stream as failed for a reason other than a CUDA error. Later calls on it fail with the
 * thread's current error message. Returns code. */
int cuda_calls_fail(struct cuda_calls *calls, int code);

#endif
