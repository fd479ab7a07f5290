/* Values of parameters: values computed from parameters only, as rows.c explains; and the
 * tape's record of a parameter. */
#ifndef NN_TAPE_ROWS_H
#define NN_TAPE_ROWS_H

#include "nn/tape/tape.h"

struct param_use {
    int total, left;      /* in a walk: contributions in all, and those still to come */
    float *segment_grads; /* used more than once: one gradient for each segment */
};

/* Those of a pass. */
struct tape_rows {
    struct segments other; /* one sample per segment; the batch's segments while inside */
    int inside;            /* 1: results have one row for each segment */
    struct computed_param **computed;
    int count, capacity;
};

void tape_begin_rows(duet_tape *t);
void tape_free_rows(duet_tape *t);
/* From here on, or until here, results have one row for each segment. */
void tape_swap_rows(duet_tape *t);
/* x (segments, ..), whose rows are equal, as one more parameter of the pass: its index; -1: the
 * tape has the error. */
int tape_computed(duet_tape *t, duet_var *x);
struct param *tape_computed_at(const duet_tape *t, int i);
/* How many parameters the pass has, with values computed from parameters; and the capacity. */
int tape_param_count(const duet_tape *t);
int tape_grow_params(duet_tape *t, int count);

#endif
