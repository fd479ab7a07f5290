/* Plans: an allreduce written down as a list of integers.
 *
 * For each rank an algorithm lists the steps in order. A plan uses no memory and no device, so it
 * can be read, checked and drawn before anything runs.
 *
 *     step  =  await flags  ->  move or add one range of elements  ->  post flags
 *
 * Executors run such lists. The host executor has one process per rank and shared memory
 * (host/executor.h); allreduce/cuda runs on GPUs. The tests' executor runs all ranks in one thread,
 * as the reference for the others (tests/allreduce/reference.h). Another test explores every order
 * in which the steps of all ranks can interleave.
 *
 * Memory. Each rank has DATA (`count` elements, input and output in place) and SCRATCH. Offsets
 * count elements from the start of the call's DATA, or from the start of the call's half of
 * SCRATCH. Every rank can read and write the DATA and SCRATCH of every other rank.
 *
 * Flags. A rank holds, in its own memory, one flag for each (kind, peer). Each flag has one
 * writer and one reader:
 *
 *     rank w                                     rank r
 *     post KIND to r:  writes the epoch  --->    flag [KIND][w]  --->  await KIND from w:
 *                                                                      until flag >= epoch
 *
 * A flag only grows. Its values are epochs: 1 .. plan->epochs within a call, on top of a base that
 * is 0 in the first call and grows by plan->epochs with each call, on every rank alike. A wait ends
 * at this epoch or any later one, so a fast peer may already have posted more, even in its next
 * call.
 *
 * Two calls in a row need no barrier between them, because every algorithm keeps three rules:
 *   1. A rank leaves a call only when nobody will touch its DATA in this call any more.
 *   2. Nobody touches a rank's DATA before that rank has posted a flag in this call.
 *   3. The result depends on every rank's input. A rank that leaves call k therefore knows that
 *      every rank has entered call k, and so has left call k-1. Call k uses half k mod 2 of every
 *      SCRATCH, which was last used in call k-2, and all ranks have left that one. So scratch
 *      needs no "done" flag. (Empty calls are not counted.) */
#ifndef ALLREDUCE_PLAN_H
#define ALLREDUCE_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "base/fold.h"

/* Every algorithm that has a plan: its name, its word, whether it adds in fold order (base/fold.h),
 * and whether it uses SCRATCH. Names, words, declarations of builders and messages come from this
 * list. plan_WORD in plans/WORD.c builds the plan, and select.c has its cost.
 *
 *     NAIVE     rank 0 takes all inputs, adds them and sends the sum back
 *     ONESHOT   every rank reads all inputs and adds them itself
 *     DIRECT    each rank owns a slice: it reads n inputs and writes n outputs there
 *     RING      reduce-scatter, then all-gather, around a ring
 *     TREE      two binary trees, each with half of the data
 *     FUSED     rank 0 reads n inputs and writes n outputs: ranks on one processor */
#define ALLREDUCE_PLANS(PLAN)    \
    PLAN(NAIVE, naive, 1, 1)     \
    PLAN(ONESHOT, oneshot, 1, 1) \
    PLAN(DIRECT, direct, 1, 0)   \
    PLAN(RING, ring, 0, 0)       \
    PLAN(TREE, tree, 0, 0)       \
    PLAN(FUSED, fused, 1, 0)

#define ALLREDUCE_CONSTANT(NAME, word, in_fold_order, uses_scratch) ALLREDUCE_##NAME,
// clang-format off
enum allreduce_algorithm {
    ALLREDUCE_AUTO, /* select.h chooses one of the others; AUTO has no plan */
    ALLREDUCE_PLANS(ALLREDUCE_CONSTANT)
    ALLREDUCE_NCCL, /* NVIDIA's library, on GPUs; runs no plan */
    ALLREDUCE_MPI,  /* MPI's own, over several machines; runs no plan */
    ALLREDUCE_ALGORITHM_COUNT
};
// clang-format on

/* The collective of a plan. The two that only copy (plans/copies.c) and the reduce-scatter
 * (plans/reduce_scatter.c) also have plans in place. Process groups have plans for all of them,
 * from INPUT to OUTPUT (group/plans/). */
enum collective {
    COLLECTIVE_ALL_REDUCE, /* the only one with a choice of algorithms */
    COLLECTIVE_BARRIER,
    COLLECTIVE_BROADCAST,
    COLLECTIVE_REDUCE,
    COLLECTIVE_ALL_GATHER,
    COLLECTIVE_REDUCE_SCATTER,
    COLLECTIVE_GATHER,
    COLLECTIVE_SCATTER,
    COLLECTIVE_ALL_TO_ALL,
    COLLECTIVE_SEND,
    COLLECTIVE_COUNT
};
const char *collective_name(enum collective what); /* "allreduce", "all_gather": static storage */

/* For options: "auto|naive|oneshot|direct|ring|tree|fused|nccl|mpi". */
#define ALLREDUCE_OR_WORD(NAME, word, in_fold_order, uses_scratch) "|" #word
#define ALLREDUCE_WORDS "auto" ALLREDUCE_PLANS(ALLREDUCE_OR_WORD) "|nccl|mpi"

/* "auto", "naive", ...: static storage. */
const char *allreduce_algorithm_name(enum allreduce_algorithm algorithm);

/* The algorithm with that name. ERR_USAGE lists the names. */
int allreduce_algorithm_parse(const char *word, enum allreduce_algorithm *out);

/* 1 if plan_build knows the algorithm: all but AUTO, NCCL and MPI. */
int allreduce_has_plan(enum allreduce_algorithm algorithm);

/* 1 if the algorithm adds in fold order. Such algorithms give the same bits for any number of
 * ranks. Ring, tree, NCCL and MPI add in their own orders; over 2 ranks all orders give the same
 * bits.
 */
int allreduce_keeps_order(enum allreduce_algorithm algorithm);

/* 1 if plans of the algorithm use SCRATCH; AUTO may choose one that does. */
int allreduce_uses_scratch(enum allreduce_algorithm algorithm);

enum plan_op {
    PLAN_NONE,        /* moves nothing, only awaits and posts flags */
    PLAN_COPY,        /* every rank of dest_ranks gets the source range */
    PLAN_REDUCE,      /* own dest += source */
    PLAN_REDUCE_COPY, /* own dest += source, and the result also goes to the other dest_ranks */
    PLAN_SUM,         /* dest_ranks get the sum of all n ranks' source ranges, in fold order */
    PLAN_SUM_OWN,     /* the same, but this rank's own term is in its INPUT, at source_offset */
};
/* "+" and "sum" stand for the call's operation. Collectives of process groups also have product,
 * minimum and maximum. */

static inline int plan_op_sums(int op) {
    return op == PLAN_SUM || op == PLAN_SUM_OWN;
}

/* INPUT and OUTPUT belong to a rank, and no other rank can access them. Plans of process groups
 * copy from INPUT to OUTPUT, through DATA, a window of fixed size (group/plans/windows.h). */
enum plan_buffer { PLAN_DATA, PLAN_SCRATCH, PLAN_INPUT, PLAN_OUTPUT, PLAN_BUFFERS };

/* Kinds of flags. The file of each algorithm says what its flags mean there. */
enum plan_flag {
    PLAN_READY,  /* I have entered this call; my input may be read */
    PLAN_DONE,   /* I shall not touch your data in this call any more */
    PLAN_SLICE,  /* ring: you may take this many slices from my data */
    PLAN_UP_A,   /* tree A, to the parent: this many slices of my subtree's sum are ready */
    PLAN_UP_B,   /* tree B, to the parent */
    PLAN_DOWN_A, /* tree A, to a child: this many slices of your data hold the result */
    PLAN_DOWN_B, /* tree B, to a child */
    PLAN_SENT,   /* send: this many pieces of all messages to you are in your mailbox */
    PLAN_TAKEN,  /* send, back to the sender: I have space for this many pieces */
    PLAN_SHOWN,  /* eager calls: my block is in my slot (group/plans/slots.c) */
    PLAN_LEFT,   /* eager calls: I have left the calls that last used this part of the slots */
    PLAN_FLAG_KINDS
};
const char *plan_flag_name(enum plan_flag kind); /* "ready", ...: static storage */

/* Each rank's term is multiplied by the call's scale when it is first read. The product is rounded
 * before it is added. */
enum {
    PLAN_SCALE_SOURCE = 1, /* the source range holds terms that are not scaled yet */
    PLAN_SCALE_DEST = 2,   /* the same for the rank's own range in a REDUCE */
};

/* Sets of ranks are bits: rank r is 1 << r. If a set is empty, the step does not wait, or does not
 * post; epoch 0 never occurs. */
struct plan_step {
    uint8_t op;             /* enum plan_op */
    uint8_t scale;          /* PLAN_SCALE_SOURCE | PLAN_SCALE_DEST */
    uint8_t source_buffer;  /* enum plan_buffer */
    uint8_t dest_buffer;    /* enum plan_buffer */
    uint8_t wait_kind;      /* enum plan_flag */
    uint8_t post_kind;      /* enum plan_flag */
    int16_t source_rank;    /* for COPY, REDUCE, REDUCE_COPY; a SUM reads all */
    uint32_t wait_epoch;    /* relative to the call's base */
    uint32_t post_epoch;    /* relative to the call's base */
    uint64_t wait_ranks;    /* the ranks whose flags are awaited */
    uint64_t post_ranks;    /* the ranks whose flags are written */
    uint64_t dest_ranks;    /* the ranks whose memory is written */
    uint64_t source_offset; /* elements */
    uint64_t dest_offset;   /* elements */
    uint64_t length;        /* elements; 0: nothing is moved */
};

/* How data are cut. All sizes count elements. */
struct plan_config {
    size_t align;         /* ranges are cut at multiples of this; 16 floats are a cache line */
    size_t slice;         /* the longest slice of a pipeline */
    size_t pipeline_from; /* calls of at least this many elements are pipelined */
    int slices;           /* the fewest slices of a pipelined chunk (ring) or half (tree) */
    size_t scratch;       /* one half of SCRATCH: at least n, better n times align */
};

/* align 16, slice 65536 (256 KiB), pipeline_from 262144 (1 MiB), slices 4, scratch 131072
 * (512 KiB). */
struct plan_config plan_config_default(void);

/* One rank's list of steps. After plan_build any number of threads may read it. */
struct plan {
    enum collective what;
    enum allreduce_algorithm algorithm; /* for an all-reduce; else AUTO */
    int n, rank;
    size_t count;            /* elements of the call */
    size_t scratch;          /* elements that the steps use in one half, at most config.scratch */
    size_t data;             /* elements of DATA: `count`, or those of the window */
    size_t input, output;    /* elements of INPUT and OUTPUT; 0: the plan has none */
    uint32_t credits;        /* start values of TAKEN and LEFT in send and eager calls, else 0 */
    uint32_t epochs;         /* each call adds this to the base, on every rank */
    struct plan_step *steps; /* owned */
    int step_count, step_capacity;
    int error; /* the first failure while building the plan */
};

/* The word of the plan's algorithm, or the name of its collective: static storage. */
const char *plan_name(const struct plan *plan);

/* Builds the list of `rank` among n ranks (1 .. MAX_DEVICES) for `count` elements; a count of 0
 * gives no steps. plan_free frees it. ERR_USAGE: n, rank, config or algorithm (AUTO, NCCL, MPI) is
 * wrong. ERR_MEMORY. After a failure *plan is as after plan_free. */
int plan_build(struct plan *plan, enum allreduce_algorithm algorithm, int n, int rank, size_t count,
               const struct plan_config *config);
void plan_free(struct plan *plan); /* NULL and zeroed are fine */

/* Build the plans of the collectives that only copy. An all-gather has `blocks` blocks of `block`
 * elements, at least one for each rank; block b goes from rank b mod n to all. A broadcast sends
 * `count` elements from rank 0 to all. Neither uses the scale of a call. */
int plan_build_all_gather(struct plan *plan, int n, int rank, size_t blocks, size_t block);
int plan_build_broadcast(struct plan *plan, int n, int rank, size_t count);

/* The order in which ring or tree adds element `at` of `count` over n >= 2 ranks. *piece is the
 * number of elements from there with the same order. ERR_FAILED: another algorithm. */
int plan_order(enum allreduce_algorithm algorithm, int n, size_t count, size_t at,
               struct sum_piece *piece);
/* Builds a reduce-scatter in place, with n blocks of `block` elements. Block r on rank r becomes
 * the sum of block r on all ranks, in fold order. Its other blocks do not change. */
int plan_build_reduce_scatter(struct plan *plan, int n, int rank, size_t block);

/* The sets of other ranks whose memory a step of `rank` loads from and stores to. A step moves
 * `length` floats over the link to each of them. */
uint64_t plan_step_loads(const struct plan_step *step, int n, int rank);
uint64_t plan_step_stores(const struct plan_step *step, int rank);

/* Adds the bytes that this rank's steps move between ranks to bytes[source][dest], row-major over n
 * ranks, which may be NULL. Returns their sum. */
uint64_t plan_traffic(const struct plan *plan, uint64_t *bytes /* [n][n] */);

/* ---- sets of ranks ---- */

static inline uint64_t rank_bit(int rank) {
    return (uint64_t)1 << rank;
}
static inline uint64_t rank_all(int n) {
    return n >= 64 ? ~(uint64_t)0 : rank_bit(n) - 1;
}
static inline uint64_t rank_others(int n, int rank) {
    return rank_all(n) & ~rank_bit(rank);
}

/* The position of a rank in tree `which` (0: A, 1: B) over n ranks; plans/tree.c draws both. */
struct tree_node {
    int parent; /* -1: this rank is the root */
    int children, child[2];
};
struct tree_node plan_tree_node(int which, int n, int rank);

#endif
