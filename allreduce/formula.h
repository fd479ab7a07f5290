/* Formulas for the bytes that a collective moves into and out of each rank, without its plan.
 *
 * The textbook's formulas hold for parts of equal length. Duet's parts end at multiples of `align`
 * elements, so the last ones may be shorter or empty. Each algorithm therefore has two formulas:
 * the textbook's, and the exact one for the lengths of its parts, which a plan must match to the
 * byte. With S bytes of data in each of n ranks, and c[i] bytes in part i of n:
 *
 *     algorithm    textbook, each rank     exactly into rank r         exactly out of rank r
 *     naive        rank 0: (n-1) S; else S                    the same
 *     fused        rank 0: (n-1) S; else S                    the same
 *     oneshot      (n-1) S                                    the same
 *     direct       2 (n-1)/n S             S + (n-2) c[r]              S + (n-2) c[r]
 *     ring         2 (n-1)/n S             2 S - c[r] - c[r+1]         2 S - c[r+1] - c[r+2]
 *     tree         at most 2 S             half of S in each tree, once per neighbour
 *     all-gather   (n-1)/n S               S - c[r]                    (n-1) c[r]
 *     broadcast    rank 0: 0, else S       the same                    rank 0: (n-1) S, else 0
 *
 * Process groups (group/plans/windows.h; S is one block, the root and the sender are rank 0, the
 * receiver is rank 1) move blocks whole, so there both are the same:
 *
 *     BROADCAST, SCATTER         rank 0 sends (n-1) S, the others receive S
 *     REDUCE, GATHER             rank 0 receives (n-1) S, the others send S
 *     ALL_GATHER, ALL_TO_ALL,
 *     REDUCE_SCATTER             each rank receives and sends (n-1) S
 *     SEND                       S
 *
 * In every allreduce a rank receives as many bytes as it sends, except for a ring with chunks of
 * unequal length. So the numbers for naive and fused hold in each direction. */
#ifndef ALLREDUCE_FORMULA_H
#define ALLREDUCE_FORMULA_H

#include "allreduce/plan.h"

struct formula {
    uint64_t in, out;   /* bytes, exactly */
    double textbook_in; /* bytes; for a tree, the maximum over the ranks */
    double textbook_out;
    const char *in_words; /* "2S - c[r] - c[r+1]"; static storage */
    const char *out_words;
    const char *textbook_words; /* "2(n-1)/n S" */
    int at_most;                /* 1: the textbook's formula is a bound */
};

/* The formula for `rank` among n ranks and `count` elements, cut at multiples of `align`. With n =
 * 1 or count = 0 nothing moves. Returns 0 and a zeroed *out if the algorithm has no formula. */
int formula_of(enum allreduce_algorithm algorithm, int n, int rank, size_t count, size_t align,
               struct formula *out);

/* The same for an all-gather and a reduce-scatter, with one block for each rank, and for a
 * broadcast in place. */
void formula_of_other(enum collective what, int n, int rank, size_t count, struct formula *out);

#endif
