/* A drawing of a collective: the chunks that move between ranks in each hop and what the ranks hold
 * after it, and the bytes that each rank moves. The bytes are counted from the plan and by
 * formula. `duet collective` prints and writes it.
 *
 *     hop 1 of 6
 *       rank 0 --chunk 0--> rank 1 +        rank 2 --chunk 2--> rank 3 +
 *       rank 1 --chunk 1--> rank 2 +        rank 3 --chunk 3--> rank 0 +
 *
 * All of it comes from the plans that run (allreduce/plan.h). DataParallel's own collectives have
 * no plans: they are copies and additions that the leading device enqueues (scatter_gather/). */
#ifndef REPORT_COLLECTIVE_COLLECTIVE_H
#define REPORT_COLLECTIVE_COLLECTIVE_H

#include <stdio.h>

#include "allreduce/formula.h"
#include "allreduce/hops.h"

enum { COLLECTIVE_WORD = 24 }; /* bytes of a word, with its zero byte */

/* What can be drawn: the algorithms of allreduce, the collectives that copy, then all of process
 * groups: "group-reduce-scatter". Writes the i-th into word; returns NULL beyond the end of the
 * list. */
const char *collective_word(int i, char word[COLLECTIVE_WORD]);

struct drawing {
    char word[COLLECTIVE_WORD];     /* of collective_word */
    char what[48];                  /* "allreduce", "REDUCE_SCATTER of a process group" */
    int n;                          /* ranks */
    size_t count, align;            /* elements of the call; where parts are cut */
    struct plan plans[MAX_DEVICES]; /* [n] owned */
    struct hops hops;
    uint64_t *traffic;       /* [n][n] bytes from rank to rank, counted from the plans; owned */
    struct formula *formula; /* [n] owned */
    int has_formula;
};

/* Makes all of it for `count` elements in each of n ranks, cut as the library cuts them. ERR_USAGE:
 * the word, n, or too large a plan; ERR_FAILED: the plans are wrong; ERR_MEMORY. After a failure
 * *c is zeroed. */
int collective_make(struct drawing *c, const char *word, int n, size_t count);
void collective_free(struct drawing *c); /* zeroed is fine */

/* Bytes into and out of a rank, counted from the plans. */
uint64_t collective_in(const struct drawing *c, int rank);
uint64_t collective_out(const struct drawing *c, int rank);

/* The chunks of DATA that a move fills, or, where it writes elsewhere, those that it takes; 0: it
 * touches no DATA. */
int hops_chunks_of(const struct hops *h, const struct hop_move *m, int *first, int *last);

/* 1 if every rank moves exactly the bytes of its formula, or if there is no formula. */
int collective_is_equal(const struct drawing *c);

/* Prints the drawing on 80 columns: who sends what to whom, and the bytes, on one screen. full 1:
 * also what each rank holds after each hop, and nothing is left out, however long it gets.
 * ERR_FAILED: the replay finds a mistake; ERR_MEMORY. */
int collective_print(FILE *file, const struct drawing *c, int full);

/* Its last part: the bytes. */
void collective_print_bytes(FILE *file, const struct drawing *c, int full);

#endif
