/* The executor contract: how a call of allreduce runs. An executor is a table of functions.
 *
 *     name       devices                 a call is                            file
 *     host       emulated                a function on the stream             host/executor.c
 *     stepwise   GPUs that ranks share   a kernel for each step of the plan   cuda/stepwise.c
 *     spin       a GPU for each rank     one kernel that runs the plan        cuda/spin_executor.c
 *     staged     GPUs without P2P        the plan, on copies in the host      cuda/staged.c
 *     nccl       GPUs without P2P or on several machines, or if requested
 *                                        NVIDIA's library, without a plan     cuda/nccl.c
 *     mpi        emulated, of several machines   MPI's collectives        group/mpi/executor.c
 *
 * allreduce.c, memory.c and enqueue.c share memory between the ranks, keep buffers and plans, and
 * count calls. They do not know the layout of a flag or who moves a byte. The executors do, and
 * they depend only on this header and the plan. The executor of a job depends on the kind of its
 * devices, on the algorithm and on which ranks share a GPU. All ranks choose the same one, once,
 * when the object is made. */
#ifndef ALLREDUCE_EXECUTOR_H
#define ALLREDUCE_EXECUTOR_H

#include "allreduce/element.h"
#include "allreduce/plan.h"
#include "allreduce/select.h"
#include "comm/comm.h"
#include "device/device.h"

/* One rank's view of all ranks. Arrays have n entries, this rank's own memory included. */
struct executor_ranks {
    int n, rank;
    struct comm *comm;           /* NULL: a world of one rank */
    struct device *device;       /* this rank's */
    void *flags[MAX_DEVICES];    /* rank r's flags, in the executor's layout */
    float *scratch[MAX_DEVICES]; /* rank r's scratch: two consecutive halves */
    size_t half;                 /* elements in one half of scratch */
    int link[MAX_DEVICES];       /* rank r's device number, for the traffic */
    struct traffic *traffic;     /* of this rank's device; NULL: traffic is not counted */
    enum allreduce_algorithm asked;
};

/* One call. All fields but the plan, its bytes and the mappings are the same on all ranks. */
struct executor_call {
    const struct plan *plan; /* this rank's plan; NULL if the executor runs none */
    void *kept;              /* keep_plan's form of the plan; NULL without keep_plan */
    float *const *data;      /* [n]: each rank's registered buffer, as this rank reaches it */
    size_t offset, count;    /* the call's data in that buffer, elements */
    uint64_t base;           /* added to the plan's epochs */
    int half;                /* which half of scratch; calls alternate between 0 and 1 */
    double scale;            /* each term is multiplied by it and rounded before it is added */
    int bucket;              /* for errors; -1: unknown */
    long step;               /* for errors; -1: unknown */
    uint64_t moved;          /* bytes over links by this rank, for the span */
    enum collective what;    /* for executors without plans */
    size_t block;            /* for an all-gather or a reduce-scatter, elements */

    /* Only for process groups, on the host's executor: data and scratch hold elements of this type.
     * If zeroed, the call sums floats in place. */
    struct arithmetic how;
    const void *input; /* the plan's INPUT and OUTPUT: host memory of this rank */
    void *output;
    int past_caches;    /* 1: copies to OUTPUT bypass the caches */
    uint64_t signature; /* for eager calls: identifies the call's arguments */
    uint64_t more;      /* for messages: what they carry besides the signature */
};

struct executor; /* an executor's own state on one rank, for one object */

/* An executor. Only the thread that uses the allreduce object calls its functions. */
struct executor_ops {
    const char *name;                /* shown to people */
    int runs_plans;                  /* 0: it runs a library's collectives; call->plan is NULL */
    enum allreduce_algorithm itself; /* without plans: the algorithm that AUTO stands for */
    int maps_peers; /* 1: the executor loads from and stores to the peers' device memory */

    /* Collective. `ranks` stays valid until close. */
    int (*open)(struct executor **out, const struct executor_ranks *ranks);

    /* Collective, for an executor that keeps its own form of each registered buffer. `data` is this
     * rank's buffer of `count` elements. close removes them. NULL: not needed. */
    int (*add_buffer)(struct executor *executor, float *data, size_t count);

    /* Called before a plan's first use, so that the executor can convert it to its own form, *kept.
     * drop_plan frees that before close. Both NULL: the executor runs plans directly. */
    int (*keep_plan)(struct executor *executor, const struct plan *plan, void **kept);
    void (*drop_plan)(struct executor *executor, void *kept);

    /* Enqueues one call on the stream, with one span of that name, and charges its traffic. The
     * stream reports later failures. */
    int (*enqueue)(struct executor *executor, struct stream *stream,
                   const struct executor_call *call, const char *span_name);

    /* Called after a failure of the job. It ends all waits on this rank's streams at once; results
     * are then invalid. Returns 1 once the streams are empty, 0 if they are not after a second or
     * two. NULL: nothing can be stuck. */
    int (*release)(struct executor *executor);

    /* The stream is idle by then, after a sync or a release. */
    void (*close)(struct executor *executor);
};

/* The facts on which the choice of an executor depends. */
struct executor_question {
    struct device *device; /* this rank's */
    enum allreduce_algorithm algorithm;
    int any_order; /* 1: `auto` may take an algorithm that does not keep the fold order */
    int n, rank;
    struct comm *comm;                               /* NULL: a world of one rank */
    const struct memory_handle *handle[MAX_DEVICES]; /* rank r's memory; shows who shares a GPU */
};

/* The executors of one kind of device, and what they need from the slab. */
struct executor_kind {
    size_t (*flags_bytes)(int n); /* size of one rank's flags */

    /* If not 0, half of scratch is a multiple of this many elements, plus this many spare ones. */
    size_t scratch_pad;

    /* Zeroes the flags in this device's memory, which the host may be unable to write. They are
     * zero when it returns. */
    int (*clear)(struct device *device, void *flags, size_t bytes);

    /* Collective. On GPUs each pair of ranks tests once whether they can access each other's memory
     * as the driver claims; device_reaches and device_p2p_fault then return the result. Must run
     * before any mapping of a peer's memory. ERR_FAILED: a trial never ended. NULL: not needed. */
    int (*meet)(struct comm *comm, struct device *device);

    /* Collective. Sets *ops, and also *link if its figures, those of emulated devices, do not
     * apply. ERR_USAGE, ERR_FAILED: no executor can serve these ranks. */
    int (*choose)(const struct executor_question *question, const struct executor_ops **ops,
                  struct allreduce_link *link);

    void (*libraries)(char *text, size_t bytes); /* as allreduce_libraries; NULL: it uses none */
};

extern const struct executor_kind host_executors;        /* host/executor.c */
extern const struct executor_kind *const cuda_executors; /* cuda/; NULL in a build without CUDA */
/* Those of ranks on several machines come with their network: comm_executors. */

/* For executors. Charges the bytes that a step loads from and stores to other ranks' memory. */
void executor_charge(const struct executor_ranks *ranks, const struct plan_step *step);

#endif
