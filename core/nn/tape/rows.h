/* Values computed from parameters only, which rows.c explains, and the tape's record of a
 * parameter. */
#ifndef NN_TAPE_ROWS_H
#define NN_TAPE_ROWS_H

#include "nn/tape/tape.h"

struct param_use {
    int total, left;      /* in a walk: contributions in all, and still missing */
    float *segment_grads; /* if used more than once: one gradient for each segment */
};

/* The values of parameters in a pass. */
struct tape_rows {
    struct segments other; /* one sample per segment; the batch's segments while inside */
    int inside;            /* 1: results have one row for each segment */
    struct computed_param **computed;
    int count, capacity;
};

/* Begins or ends a part of the pass in which results have one row for each segment. */
void tape_swap_rows(duet_tape *t);
/* Adds x (segments, ..), whose rows are equal, as a parameter of the pass. Returns its index, or -1
 * with the error in the tape. */
int tape_computed(duet_tape *t, duet_var *x);
struct param *tape_computed_at(const duet_tape *t, int i);
/* The number of parameters in the pass, with values computed from them, and the capacity; both in
 * tape.c. */
int tape_param_count(const duet_tape *t);
int tape_grow_params(duet_tape *t, int count);

#endif
