/* All costs of the model, in the order of a step. clock/run.c knows only times and who waits for
 * whom. docs/clock.md has each parameter with its default and source. */
#ifndef CLOCK_COST_H
#define CLOCK_COST_H

#include "clock/hardware.h"
#include "trace/schedule.h"

enum clock_host {
    CLOCK_DUET,   /* a launch is a call of a C program, and no lock is shared */
    CLOCK_PYTORCH /* an eager Python program: operations, its lock, NCCL */
};

/* What an eager program computes in. */
enum clock_precision {
    CLOCK_AS_PYTORCH, /* float32; convolutions in TF32 where the GPU has it, products not */
    CLOCK_FP32,
    CLOCK_TF32, /* convolutions and products */
    CLOCK_AMP   /* autocast: bfloat16 or float16, with weights and gradients of float32 */
};

/* What the stated error of a time depends on (clock/trust.h). */
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
    IF_LINK,    /* rates of links and sums */
    IF_LAUNCH,  /* costs of the host for each launch; 0: launches are free */
    IF_COMPUTE, /* rate of products and convolutions */
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
    enum clock_host host;
    enum clock_precision precision;
    int devices;              /* of a node */
    double nodes;             /* alike, of which one is run; 0: there is one */
    int tensors;              /* parameter tensors of the model */
    uint64_t parameter_bytes; /* of all of them */
    int pageable;             /* batches are in host memory that is not pinned */
    enum phase last_phase;    /* the measured step ends with it; PHASE_NONE: it is a whole one */
    enum clock_kind kind;
    enum clock_way way;
    double given;       /* a factor on all kernels, from one GPU's given time; 0: none */
    double given_error; /* with two given times: their distance from the prediction, in percent; -1:
                         * one time, of another batch, whose error is that of any other time */
    struct what_if what_if;
};

/* No change. */
struct what_if what_if_none(void);

/* 1: the entry comes after last_phase, and takes no time. */
int cost_leaves_out(const struct clock_config *c, const struct scheduled *entry);
/* How long a kernel runs on an otherwise idle GPU. */
int64_t cost_kernel_ns(const struct clock_config *c, const struct scheduled *kernel);
/* What bounds it: "flops", "memory" or "launches". */
const char *cost_bound(const struct clock_config *c, const struct scheduled *kernel);

/* How long the host is busy before an entry reaches its stream, and how long until it may begin
 * there. */
int64_t cost_issue_ns(const struct clock_config *c, const struct scheduled *entry);
int64_t cost_start_ns(const struct clock_config *c, const struct scheduled *entry);
/* 1: the thread holds the interpreter's lock meanwhile. */
int cost_holds_lock(const struct clock_config *c, const struct scheduled *entry);

/* Bytes of a copy or of a part of a group that cross each link. */
double cost_moved_bytes(const struct clock_config *c, const struct scheduled *entry);

/* How long a call that the ranks of all c->nodes nodes make together takes as NCCL makes it, from
 * the moment when the last one comes. bytes: as of schedule_collective. */
int64_t cost_sum(const struct clock_config *c, int ranks, uint64_t bytes,
                 enum scheduled_collective what);

#endif
