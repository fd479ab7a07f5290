/* Inside allreduce/, GPUs only: what the two executors of GPUs share, one object of each rank.
 *
 *     cuda/executor.c   which of the two; their common life; memory of the GPU written from the side
 *     cuda/calls.c      calls under way: how far ahead the host may be, who is waited for, letting go
 *     cuda/stepwise.c   ranks that share a GPU
 *     cuda/spin.c       a GPU for each rank
 *
 * From the side. Flags are cleared and read, plans are brought over and waits are let go on the
 * device's service stream, which never waits for another rank, so all this works while the
 * calls' own stream stands still. */
#ifndef ALLREDUCE_CUDA_EXECUTOR_H
#define ALLREDUCE_CUDA_EXECUTOR_H

#include "allreduce/cuda/step.h"
#include "allreduce/executor.h"
#include "device/cuda/cuda.h"

/* Calls that are not known to be done, oldest first, to be found at [number % CUDA_CALLS]. */
enum { CUDA_CALLS = 64, CUDA_MARKS = 4 };
struct cuda_call {
    cudaEvent_t begun, ended; /* around all that the call enqueues */
    int complete;             /* `ended` has been recorded */
    const struct plan *plan;
    uint64_t base;
    int bucket;
    long step;
};
struct cuda_calls {
    struct cuda_call call[CUDA_CALLS];
    uint64_t oldest, next;
    cudaEvent_t mark[CUDA_MARKS]; /* within a long call */
    uint64_t marks;
    int since_mark; /* operations */

    /* Looking after the wait that the stream stands in, while the host waits for the stream. */
    struct cuda_watch watch;
    int64_t looked_ns;
    struct cuda_flag *seen;         /* pinned: channel 0 of the own flags, as read last */
    uint64_t waiting_call;          /* what `wait` is about; */
    int waiting_step, waiting_peer; /* peer -1: nothing */
    struct comm_distant_wait wait;
};

struct spin; /* cuda/spin.c's own */

struct executor {
    const struct executor_ranks *ranks;
    struct cuda_device *device;
    struct cuda_stream *stream; /* the one that calls were put on; NULL before the first */
    struct cuda_calls calls;
    struct spin *spin; /* NULL: stepwise */
    int stuck;         /* release did not empty the stream: nothing it may reach is given back */
};

extern const struct executor_ops cuda_stepwise_ops, cuda_spin_ops;

/* ---- cuda/executor.c ---- */

int cuda_executor_open(struct executor **out, const struct executor_ranks *ranks);
void cuda_executor_close(struct executor *executor); /* NULL is fine */

/* Bytes of the device's memory, written on the service stream; done when they return. */
int cuda_fill(struct cuda_device *device, void *memory, int byte, size_t bytes);
int cuda_upload(struct cuda_device *device, void *memory, const void *pinned, size_t bytes);

static inline struct cuda_flag *cuda_flags_of(const struct executor *e, int rank) {
    return (struct cuda_flag *)e->ranks->flags[rank];
}

/* ---- cuda/calls.c ---- */

int cuda_calls_open(struct executor *e);
void cuda_calls_close(struct executor *e);

/* From here on the device's waits look after this executor: when it is whole. unwatch: before
 * anything of it goes. */
void cuda_calls_watch(struct executor *e);
void cuda_calls_unwatch(struct executor *e);

/* Before and behind what a call enqueues. begin: the job's failure, if there is one; and waits
 * where the host is too far ahead. mark: between two operations of a long call, for the same
 * reason. */
int cuda_calls_begin(struct executor *e, struct cuda_stream *stream,
                     const struct executor_call *call);
int cuda_calls_mark(struct executor *e, struct cuda_stream *stream, int operations);
int cuda_calls_end(struct executor *e, struct cuda_stream *stream);

int cuda_calls_release(struct executor *e); /* executor_ops.release */

/* The stream has failed by something that is no CUDA error: later calls on it say the thread's
 * present text again. Returns code. */
int cuda_calls_fail(struct executor *e, int code);

/* ---- cuda/spin.c ---- */

/* What the kernels have left on the host's page: OK, or their failure. */
int cuda_spin_look(struct executor *e);

/* Tells the kernels to end: those that run and those that come. */
void cuda_spin_stop(struct executor *e);

#endif
