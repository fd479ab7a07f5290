/* How a call runs: a table of functions for each way to run a plan.
 *
 *     host       emulated devices: a function on the stream that waits, moves and posts      host/executor.c
 *     stepwise   GPUs that ranks share: a kernel a step, waits and posts by the stream       cuda/stepwise.c
 *     spin       a GPU for each rank: one kernel runs the whole plan                         cuda/spin.c
 *     nccl       NVIDIA's library, by name alone: no plan                                    cuda/nccl.c
 *
 * allreduce.c shares memory between ranks, keeps buffers and plans, and counts calls; it does
 * not know how a flag looks or who moves a byte. Which table a job takes depends on the kind of
 * its devices, on the algorithm and on who shares a GPU, so all ranks choose alike, once, when
 * the object is made.
 *
 * A build without CUDA links cuda_absent.c, in which `cuda_executors` is NULL; one with CUDA
 * links the other
 * *cuda* files (the Makefile does it by name, as for device/). */
#ifndef ALLREDUCE_EXECUTOR_H
#define ALLREDUCE_EXECUTOR_H

#include "allreduce/plan.h"
#include "allreduce/select.h"
#include "comm/comm.h"
#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What one rank sees of all ranks; all arrays have n entries, own memory included. */
struct executor_ranks {
    int n, rank;
    struct comm *comm; /* NULL: a world of one */
    struct device *device;
    void *flags[MAX_DEVICES];    /* rank r's flags; how they lie there is the executor's affair */
    float *scratch[MAX_DEVICES]; /* rank r's scratch: two halves, */
    size_t half;                 /* so many elements apart */
    int link[MAX_DEVICES];       /* rank r's device number, for the traffic */
    struct traffic *traffic;     /* of this rank's device; NULL: not counted */
};

/* One call: the same on all ranks but for the plan, which is the rank's own. */
struct executor_call {
    const struct plan *plan; /* NULL where the executor runs none */
    void *kept;              /* what keep_plan made of it */
    float *const *data;      /* [n]: every rank's buffer; stays while it is registered */
    size_t offset, count;    /* where the call's data lies in it, elements */
    uint64_t base;           /* of the epochs */
    int half;                /* of scratch: 0 or 1, by turns */
    float scale;
    int bucket;
    long step;
    uint64_t moved; /* bytes over links by this rank, for the span */
};

struct executor; /* an executor's own state: one rank, one object */

/* Called by the one thread that uses the object. `name`, the executor's, is shown to people. */
struct executor_ops {
    const char *name;
    /* 0: the executor needs no plan (a library's own collective): call->plan is NULL */
    int runs_plans;
    int shares_device; /* 1: ranks take turns on one processor: a figure per link means nothing */

    /* Not collective; ranks stays where it is until close. */
    int (*open)(struct executor **out, const struct executor_ranks *ranks);

    /* A plan is kept for good: before its first call the executor may bring it where it needs
     * it. NULL: nothing to do. drop: before close. */
    int (*keep_plan)(struct executor *executor, const struct plan *plan, void **kept);
    void (*drop_plan)(struct executor *executor, void *kept);

    /* Puts one call on the stream, with one span of that name, and charges its traffic. Failures
     * that come later come out of the stream. */
    int (*enqueue)(struct executor *executor, struct stream *stream,
                   const struct executor_call *call, const char *span_name);

    /* After a failure of the job: what waits on this rank's streams goes on at once; results are
     * worth nothing. Returns 1 once the streams are empty, 0 if they are not after a second or
     * two. NULL: nothing can be stuck. */
    int (*release)(struct executor *executor);

    /* the stream has been waited for, or has been released */
    void (*close)(struct executor *executor);
};

/* What a choice is made by: the same on all ranks. */
struct executor_question {
    struct device *device; /* this rank's */
    enum allreduce_algorithm algorithm;
    int n, rank;
    const struct memory_handle *handle[MAX_DEVICES]; /* rank r's memory: tells who shares a GPU */
};

/* The executors of one kind of device. */
struct executor_kind {
    size_t (*flags_bytes)(int n);
    /* not 0: halves are whole multiples of so many elements, with as many to spare */
    size_t scratch_pad;

    /* Zeroes the flags in this device's memory, which the host may not be able to touch. Done
     * when it returns. */
    int (*clear)(struct device *device, void *flags, size_t bytes);

    /* Which one, and the figures of the link that `auto` chooses by (NULL-safe default: as
     * given). ERR_FAILED: none can serve these ranks. */
    int (*choose)(const struct executor_question *question, const struct executor_ops **ops,
                  struct allreduce_link *link);
    void (*libraries)(char *text, size_t bytes); /* as allreduce_libraries; NULL: none */
};
extern const struct executor_kind host_executors; /* host/executor.c */
/* cuda/executor.c, or NULL from cuda_absent.c */
extern const struct executor_kind *const cuda_executors;
const struct executor_kind *executor_kind(enum device_kind kind); /* NULL: not built in */

/* Remote loads and stores of one step, charged as copies are. */
void executor_charge(const struct executor_ranks *ranks, const struct plan_step *step);

#ifdef __cplusplus
}
#endif
#endif
