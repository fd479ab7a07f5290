/* The inside of a duet_ddp. program.c has its step; join.c has what a rank does when its batches
 * have run out. */
#ifndef DDP_PROGRAM_H
#define DDP_PROGRAM_H

#include "ddp/hooks.h"
#include "ddp/state.h"

struct duet_ddp {
    struct ddp *ddp;
    struct duet_params *params;
    struct grad_reducer reducer;
    struct hooks hooks;
    int join;
    int32_t step;     /* for spans and errors */
    int sync_buffers; /* 1: the next pass begins with rank 0's buffers */
};

/* duet_params_grad hands out the gradients where they are now. */
void program_show_gradients(struct duet_params *params);

/* ---- join.c ---- */

/* ERR_USAGE: with these parameters no rank can be shadowed. */
int program_check_join(const struct duet_ddp *d);

/* Collective. With join all ranks get the buffers of the highest rank that has batches, not those
 * of rank 0. */
int program_join_buffers(struct duet_ddp *d);

#endif
