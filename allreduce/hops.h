/* Hops draw a collective as people do, from the plans that really run.
 *
 * A plan says what each rank does in turn (plan.h). A drawing says what all ranks do at the same
 * time: in each hop, which ranges go from which ranks to which. hops_of_plans turns all ranks'
 * plans of one call into such a list of moves.
 *
 *     ring, 4 ranks, chunks 0 .. 3             hop 1   rank 0 --chunk 0--> rank 1, which adds it
 *                                                      rank 1 --chunk 1--> rank 2, which adds it
 *     hop h = 1 .. 6: chunk c goes from                ...
 *     rank c + h - 1 to rank c + h             hop 6   rank 1 --chunk 0--> rank 2, which keeps it
 *
 * The hop of a move is logical time: 1 + the hop of the latest move that it depends on. It depends
 * on the step whose flag its own step awaits, on moves that wrote what it reads, and on moves that
 * read or wrote what it overwrites. The order of a rank's steps does not count as a dependency. So
 * the slices of a pipelined chunk have the same hop, and they are joined into one move. All moves
 * of one hop could be in flight at the same time. The number of hops is the length of the longest
 * chain of moves over links.
 *
 * A move within one rank (from == to) crosses no link. It has the hop of the latest move that it
 * depends on, and follows that hop's moves over links. Moves of hop 0 are the first.
 *
 * To replay a call, start with rank r's input in its DATA (each element already multiplied by the
 * call's scale); SCRATCH is empty. Carry out the moves in the order of the list, each as a whole.
 * Then every rank's DATA holds its result, except for the rounding of sums: a step that adds the
 * terms of all ranks adds in fold order (base/fold.h), which the list does not show. */
#ifndef ALLREDUCE_HOPS_H
#define ALLREDUCE_HOPS_H

#include "allreduce/plan.h"

enum hop_action {
    HOP_COPY,   /* destination = source */
    HOP_REDUCE, /* destination += source */
};

/* Where a range is on a rank: PLAN_DATA or PLAN_SCRATCH. Plans of process groups, which have other
 * buffers too, are not drawn. */
enum { HOP_BUFFERS = PLAN_SCRATCH + 1 };

struct hop_move {
    int hop;                         /* 1 .. hops.hops; a move within one rank also 0 */
    int16_t from, to;                /* ranks; if equal, the move crosses no link */
    int16_t by;                      /* the rank whose step moves it, by a load or a store */
    uint8_t action;                  /* enum hop_action */
    uint8_t from_buffer, to_buffer;  /* enum plan_buffer */
    int step;                        /* the first step of rank `by` in this move */
    int order;                       /* number of moves before it in the unsorted list */
    uint64_t from_offset, to_offset; /* elements */
    uint64_t count;                  /* elements, at least 1 */
};

struct hop_chunk {
    uint64_t offset, count; /* elements of DATA */
};

struct hops {
    const char *name;            /* plan_name */
    int n;                       /* ranks */
    int hops;                    /* 0: no move crosses a link */
    uint64_t count;              /* elements of the call */
    uint64_t sizes[HOP_BUFFERS]; /* elements of each buffer on a rank */
    struct hop_move *moves;      /* owned; [move_count], in an order that can be replayed */
    int move_count;
    /* DATA, cut wherever a move's range begins or ends: each move takes whole chunks. */
    struct hop_chunk *chunks; /* owned; [chunk_count], in the order of their offsets */
    int chunk_count;
    int move_capacity;
};

/* Makes the hops of the call whose plans are plans[0 .. n); hops_free frees them. ERR_FAILED: the
 * plans do not fit together, or a rank waits forever. ERR_USAGE: more than HOPS_MOST_MOVES moves.
 * ERR_MEMORY. After a failure *hops is zeroed. */
enum { HOPS_MOST_MOVES = 1 << 20 };
int hops_of_plans(struct hops *hops, const struct plan *plans, int n);

/* Makes the hops of an allreduce over n ranks, cut as `config` says (NULL: the default). ERR_USAGE
 * as for plan_build. */
int hops_of_call(struct hops *hops, enum allreduce_algorithm algorithm, int n, size_t count,
                 const struct plan_config *config);
void hops_free(struct hops *hops); /* NULL and zeroed are fine */

/* A replay with sets of ranks. It tracks which ranks' inputs each piece of memory holds. */
struct hops_state;

/* Makes the state before the first move, when each rank holds its own term. The hops are borrowed
 * and must outlive the state. After ERR_MEMORY *out is NULL. */
int hops_state_init(struct hops_state **out, const struct hops *hops);
void hops_state_free(struct hops_state *state); /* NULL is fine */

/* Carries out the remaining moves up to the end of hop `hop`. ERR_FAILED: a move adds a term to a
 * sum that already has it, or reads memory that holds nothing. ERR_MEMORY. */
int hops_state_run(struct hops_state *state, int hop);

/* The set of ranks whose terms are in chunk c of the rank's result; 0: the chunk is empty. */
uint64_t hops_state_terms(const struct hops_state *state, int rank, int chunk);

#endif
