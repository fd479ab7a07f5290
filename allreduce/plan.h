/* Plans: an allreduce as a list of integers.
 *
 * An algorithm is told once, as the ordered list of steps each rank takes: which range of which
 * rank's memory is read, which is written, which flag is awaited before and which is posted
 * after. Nothing here touches memory or a device. Executors run such a list: one thread standing
 * for all ranks (reference.h, the judge), a process per rank over shared memory
 * (host/executor.h), GPU kernels (cuda_*.c); and a test explores every order in which the steps
 * of all ranks can interleave.
 *
 *     step  =  wait for flags  ->  move or add one range  ->  post flags
 *
 * Memory. Each rank has DATA (`count` elements, in place: input and output) and SCRATCH. Offsets
 * are in elements from the start of the call's DATA, or of the call's half of SCRATCH.
 *
 * Flags. A rank holds, in its own memory, one flag for each (kind, peer): flag [kind][w] of rank
 * r is written by rank w alone and read by rank r alone. "Post kind to r" of rank w writes it,
 * "wait kind from w" of rank r reads it. A flag only grows: values are epochs, 1 .. plan->epochs
 * within a call, added to a base that is 0 in the first call and grows by plan->epochs in each,
 * on every rank alike. A wait is for "at least", so a fast peer that has posted more, even in
 * its next call, disturbs nobody.
 *
 * Two calls in a row. Three facts, which every algorithm here keeps, make them safe without a
 * barrier between them:
 *   1. A rank leaves a call only when nobody will touch its DATA in this call any more.
 *   2. Nobody touches a rank's DATA before that rank has posted something in this call.
 *   3. The result depends on every rank's input, so when a rank leaves call k every rank has entered k, and
 *      so has left k-1. Call k uses half k mod 2 of every SCRATCH: the last who touched that half did so in
 *      call k-2, which all have left. No scratch needs a "done" flag. (Empty calls are not counted.) */
#ifndef ALLREDUCE_PLAN_H
#define ALLREDUCE_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"

#ifdef __cplusplus
extern "C" {
#endif

enum allreduce_algorithm {
    ALLREDUCE_AUTO,    /* allreduce/select.h chooses one of the others; no plan of its own */
    ALLREDUCE_NAIVE,   /* all to rank 0, summed there, and back: the textbook's first version */
    ALLREDUCE_ONESHOT, /* everyone reads all inputs */
    ALLREDUCE_DIRECT,  /* the owner of a slice reads n inputs and writes n outputs */
    ALLREDUCE_RING,    /* reduce-scatter, then all-gather, around a ring */
    ALLREDUCE_TREE,    /* two binary trees, half the data each */
    /* rank 0 reads n inputs and writes n outputs: for ranks that share one processor */
    ALLREDUCE_FUSED,
    ALLREDUCE_NCCL, /* the library's, on GPUs: no plan of its own here */
    ALLREDUCE_ALGORITHM_COUNT
};
const char *
/* "auto", "naive", ...: static storage */
allreduce_algorithm_name(enum allreduce_algorithm algorithm);

/* The algorithm of that name. ERR_USAGE lists the names. */
int allreduce_algorithm_parse(const char *word, enum allreduce_algorithm *out);

/* 1 if plan_build knows it: not AUTO, not NCCL. */
int allreduce_has_plan(enum allreduce_algorithm algorithm);

/* 1 if the algorithm adds in fold order (base/fold.h), so that its bits are those of
 * every other that does, for any number of ranks. Ring, tree and NCCL have orders of their own;
 * over 2 ranks all orders agree. */
int allreduce_keeps_order(enum allreduce_algorithm algorithm);

enum plan_op {
    PLAN_NONE,        /* only waits and posts */
    PLAN_COPY,        /* every rank of dest_ranks gets source */
    PLAN_REDUCE,      /* own dest += source */
    PLAN_REDUCE_COPY, /* own dest += source, and the result goes to the other dest_ranks too */
    PLAN_SUM,         /* the source range of all n ranks, added in fold order, goes to dest_ranks */
};

enum plan_buffer { PLAN_DATA, PLAN_SCRATCH };

/* Kinds of flags. What each means is said where it is used. */
enum plan_flag {
    PLAN_READY,  /* I am in this call: my input may be read */
    PLAN_DONE,   /* I shall not touch your data in this call any more */
    PLAN_SLICE,  /* ring: this many slices are in my data for you to take */
    PLAN_UP_A,   /* tree A, to the parent: slices of my subtree's sum */
    PLAN_UP_B,   /* tree B */
    PLAN_DOWN_A, /* tree A, to the children: slices of the result, already in your data */
    PLAN_DOWN_B, /* tree B */
    PLAN_FLAG_KINDS
};
const char *plan_flag_name(enum plan_flag kind); /* "ready", ...: static storage */

/* The first read of each rank's own term multiplies it by the call's scale: rounded, then added. */
enum { PLAN_SCALE_SOURCE = 1, PLAN_SCALE_DEST = 2 }; /* DEST: the own term of a REDUCE */

/* Sets of ranks are bits: rank r is 1 << r. Epoch 0 never occurs; an empty set means no wait or
 * no post. */
struct plan_step {
    uint8_t op;                         /* enum plan_op */
    uint8_t scale;                      /* PLAN_SCALE_... */
    uint8_t source_buffer, dest_buffer; /* enum plan_buffer */
    uint8_t wait_kind, post_kind;       /* enum plan_flag */
    int16_t source_rank;                /* COPY, REDUCE, REDUCE_COPY; SUM reads all */
    uint32_t wait_epoch, post_epoch;    /* relative to the call's base */
    uint64_t wait_ranks, post_ranks, dest_ranks;
    uint64_t source_offset, dest_offset, length; /* elements */
};

struct plan_config {
    /* ranges are cut at multiples of this many elements; 16 (one cache line of floats) */
    size_t align;
    size_t slice; /* the longest slice of a pipeline, in elements */
    /* at least so many in a chunk (ring) or half (tree) from pipeline_from on; below 1 */
    int slices;
    size_t pipeline_from; /* elements of the whole call */
    size_t scratch;       /* elements in one half of SCRATCH; at least n, better n times align */
};

/* 16; 65536 (256 KiB); 4; 262144 (1 MiB); 131072 (512 KiB). */
struct plan_config plan_config_default(void);

/* One rank's list. Plain data after plan_build; read by any number of threads. */
struct plan {
    enum allreduce_algorithm algorithm;
    int n, rank;
    size_t count;
    /* elements of scratch (one half) that the steps use, at most config.scratch */
    size_t scratch;
    uint32_t epochs;         /* how far a call moves the base: the same on every rank */
    struct plan_step *steps; /* owned */
    int step_count, step_capacity;
    int error; /* building: the first failure */
};

/* The list of `rank` among n ranks (1 .. MAX_DEVICES) for `count` elements; count 0: no steps.
 * ERR_USAGE: bad n, rank, config or algorithm (AUTO included); ERR_MEMORY. On failure *plan is
 * as after plan_free. */
int plan_build(struct plan *plan, enum allreduce_algorithm algorithm, int n, int rank, size_t count,
               const struct plan_config *config);
void plan_free(struct plan *plan); /* NULL and zeroed are fine */

/* Bytes (4 an element) that this rank's steps move between different ranks: bytes[source][dest]
 * += ... for each remote load and store, row-major over n ranks; returns their sum. bytes may be
 * NULL. */
uint64_t plan_traffic(const struct plan *plan, uint64_t *bytes);

/* ---- for the algorithms, one file each ---- */

struct range {
    size_t offset, length;
};
/* Part i of `parts` of `whole`: all but the last non-empty one of equal length, cut at multiples
 * of align. */
struct range range_part(struct range whole, int parts, int i, size_t align);

/* How many slices a pipelined range of `length` elements takes in a call of `count` elements. */
int plan_slices(const struct plan_config *config, size_t count, size_t length);

/* Appends a step; a failure stays in plan->error. */
void plan_add(struct plan *plan, const struct plan_step *step);

static inline uint64_t rank_bit(int rank) {
    return (uint64_t)1 << rank;
}
static inline uint64_t rank_all(int n) {
    return n >= 64 ? ~(uint64_t)0 : rank_bit(n) - 1;
}
static inline uint64_t rank_others(int n, int rank) {
    return rank_all(n) & ~rank_bit(rank);
}

void plan_naive(struct plan *plan, const struct plan_config *config);
void plan_oneshot(struct plan *plan, const struct plan_config *config);
void plan_direct(struct plan *plan, const struct plan_config *config);
void plan_ring(struct plan *plan, const struct plan_config *config);
void plan_tree(struct plan *plan, const struct plan_config *config);
void plan_fused(struct plan *plan, const struct plan_config *config);

/* The shape of the two trees over n ranks, for tests and drawings: which 0 or 1. */
struct tree_node {
    int parent; /* -1: the root */
    int children, child[2];
};
struct tree_node plan_tree_node(int which, int n, int rank);

#ifdef __cplusplus
}
#endif
#endif
