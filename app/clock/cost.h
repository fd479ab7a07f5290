/* All costs of the model, in the order of a step: those of an eager program of PyTorch, with its
 * operations, its lock and NCCL. clock/run.c knows only times and dependencies. docs/clock.md lists
 * each parameter with its default and source. */
#ifndef CLOCK_COST_H
#define CLOCK_COST_H

#include "clock/hardware.h"
#include "trace/schedule.h"

/* The precision of an eager program. */
enum clock_precision {
    CLOCK_AS_PYTORCH, /* float32; convolutions, but not products, in TF32 if the GPU has it */
    CLOCK_FP32,
    CLOCK_TF32, /* TF32 in convolutions and products */
    CLOCK_AMP   /* autocast: bfloat16 or float16, with weights and gradients of float32 */
};

/* The kind of model, on which the stated error of a time depends (clock/trust.h). */
enum clock_kind {
    CLOCK_OTHER,
    CLOCK_DENSE,
    CLOCK_GROUPED,
    CLOCK_DEPTHWISE,
    CLOCK_CONCATENATION,
    CLOCK_TRANSFORMER,
    CLOCK_KINDS
};
enum clock_way { CLOCK_SINGLE, CLOCK_DP, CLOCK_DDP, CLOCK_FSDP, CLOCK_WAYS };

/* --what-if: factors on parts of the model; 1 changes nothing. */
enum what_if_part {
    IF_LINK,    /* rates of links and allreduces */
    IF_LAUNCH,  /* host cost of each launch; 0: launches are free */
    IF_COMPUTE, /* speed of products and convolutions */
    IF_MEMORY,  /* bandwidth of the GPU's memory */
    IF_GIL,     /* 0: the threads of DataParallel share no lock */
    IF_PARTS
};
struct what_if {
    double by[IF_PARTS];
};

struct clock_config {
    const struct gpu_spec *gpu;
    const struct machine *machine;
    enum clock_precision precision;
    int devices;              /* devices per node */
    double nodes;             /* identical nodes, only one of which is simulated; 0: one */
    int tensors;              /* parameter tensors of the model */
    uint64_t parameter_bytes; /* bytes of all parameters */
    int pageable;             /* 1: batches are in host memory that is not pinned */
    enum phase last_phase;    /* the measured step ends with this phase; PHASE_NONE: a whole step */
    enum clock_kind kind;
    enum clock_way way;
    double given; /* a factor on all kernels, from a measured time on one GPU; 0: none */
    struct what_if what_if;
};

/* No change. */
struct what_if what_if_none(void);

/* Returns 1 if the entry is after last_phase, and so takes no time. */
int cost_leaves_out(const struct clock_config *c, const struct scheduled *entry);
/* The time of a kernel on an otherwise idle GPU. */
int64_t cost_kernel_ns(const struct clock_config *c, const struct scheduled *kernel);
/* What bounds the kernel: "flops", "memory" or "launches". */
const char *cost_bound(const struct clock_config *c, const struct scheduled *kernel);

/* The time that the host is busy before an entry reaches its stream, and the time until the entry
 * may begin there. */
int64_t cost_issue_ns(const struct clock_config *c, const struct scheduled *entry);
int64_t cost_start_ns(const struct clock_config *c, const struct scheduled *entry);
/* Returns 1 if the thread holds the interpreter's lock meanwhile. */
int cost_holds_lock(const struct clock_config *c, const struct scheduled *entry);

/* The bytes of a copy, or of a part of a group, that cross each link. */
double cost_moved_bytes(const struct clock_config *c, const struct scheduled *entry);

/* The time of NCCL's collective over the ranks of all c->nodes nodes, from the arrival of the last
 * rank. bytes is as in schedule_collective. */
int64_t cost_sum(const struct clock_config *c, int ranks, uint64_t bytes,
                 enum scheduled_collective what);

#endif
