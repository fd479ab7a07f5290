/* A drawing of a collective: the chunks that move between ranks in each hop, what the ranks hold
 * afterwards, and the bytes that each rank moves. The bytes are counted in the plan and computed
 * with a formula. `duet collective` prints and writes the drawing.
 *
 *     hop 1 of 6
 *       rank 0 --chunk 0--> rank 1 +        rank 2 --chunk 2--> rank 3 +
 *       rank 1 --chunk 1--> rank 2 +        rank 3 --chunk 3--> rank 0 +
 *
 * All data is taken from the plans that run (allreduce/plan.h). DataParallel's own collectives have
 * no plans: they are copies and additions that the leading device enqueues (scatter_gather/). */
#ifndef REPORT_COLLECTIVE_COLLECTIVE_H
#define REPORT_COLLECTIVE_COLLECTIVE_H

#include <stdio.h>

#include "allreduce/formula.h"
#include "allreduce/hops.h"

/* The words of the drawings: the algorithms of allreduce, then the other collectives. NULL beyond
 * the end of the list. */
const char *collective_word(int i);

struct drawing {
    const char *word, *what;        /* of collective_word; "allreduce", "reduce-scatter" */
    int n;                          /* ranks */
    size_t count, align;            /* elements of the call; alignment of its parts */
    struct plan plans[MAX_DEVICES]; /* [n] owned */
    struct hops hops;
    uint64_t *traffic;       /* [n][n] bytes from rank to rank, counted from the plans; owned */
    struct formula *formula; /* [n] owned */
};

/* Makes the drawing for `count` elements in each of n ranks, split as the library splits them.
 * ERR_USAGE: a wrong word or n, or too large a plan; ERR_FAILED: the plans are wrong; ERR_MEMORY.
 * After a failure *c is zeroed. */
int collective_make(struct drawing *c, const char *word, int n, size_t count);
void collective_free(struct drawing *c); /* zeroed is fine */

/* Bytes into and out of a rank, counted in the plans. */
uint64_t collective_in(const struct drawing *c, int rank);
uint64_t collective_out(const struct drawing *c, int rank);

/* Finds the chunks of DATA that a move writes, or reads if it writes elsewhere. Returns 0 if it
 * touches no DATA. */
int hops_chunks_of(const struct hops *h, const struct hop_move *m, int *first, int *last);

/* Returns 1 if every rank moves exactly the bytes of its formula. */
int collective_is_equal(const struct drawing *c);

/* Prints the drawing in 80 columns: who sends what to whom, and the bytes, on one screen. full 1
 * omits nothing, however long, and also prints what each rank holds after each hop. ERR_FAILED: the
 * replay finds a mistake; ERR_MEMORY. */
int collective_print(FILE *file, const struct drawing *c, int full);

/* Prints only the last part, the bytes. */
void collective_print_bytes(FILE *file, const struct drawing *c, int full);

#endif
