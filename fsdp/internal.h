/* The inside of a sharded model, for the files of this folder. */
#ifndef FSDP_INTERNAL_H
#define FSDP_INTERNAL_H

#include "allreduce/allreduce.h"
#include "ddp/buffers.h"
#include "fsdp/fsdp.h"
#include "fsdp/units.h"

enum { NO_UNIT = -1 };

/* Device memory in which a whole unit lies, values or gradients. Its events order the two streams
 * that work on it. */
struct slot {
    float *data;          /* owned */
    int unit;             /* that lies here, or is on its way; NO_UNIT: none */
    int waited;           /* 1: compute has waited until it had come */
    int summing;          /* of gradients: 1: a reduce-scatter reads it */
    struct event *left;   /* compute to comm: what compute has done with it */
    struct event *filled; /* comm to compute: the unit has come, or its sum has gone */
};

/* All slots of a kind, and the object that knows their memory in other ranks. */
enum { VALUES, GRADS };
struct slots {
    struct allreduce *collectives;
    struct slot *slot; /* [count], at most one for each unit; owned */
    int count;
};

/* The units in the order in which a pass entered them. */
struct order {
    int *unit;
    int count, capacity;
};

struct unit_state {
    struct slot *values, *grads; /* grads NULL: none of it is trained, or before the first turn */
    int pending;                 /* gradients that are not ready yet */
    int reduced;                 /* 1: its sum of this step has been enqueued */
    int stays;                   /* 1: it is used again after others */
};

struct fsdp {
    struct comm *comm;
    struct group *group;
    struct device *device;
    struct duet_params *owner;
    struct param_set *params; /* of the owner */
    struct fsdp_config config;
    struct fsdp_units units;
    struct unit_state *unit; /* [units] */
    struct param_set shard;
    struct slots slots[2];       /* VALUES, GRADS */
    struct ddp_buffers *buffers; /* NULL: there are none to broadcast */
    struct grad_reducer reducer;
    float scale;
    int rank, ranks;

    int shared;          /* slots that units take in turn, of values and of gradients each */
    int whole_values;    /* 1: each unit has a slot of values of its own */
    int whole_grads;     /* 1: the same of gradients */
    int shards_in_slots; /* 1: the shards of the values are their blocks in these slots */
    struct event *all;   /* comm to compute: the last sum of a step */

    int32_t step;          /* for spans and errors; -1: none was */
    int backward;          /* 1: the pass is on its way back */
    int expecting;         /* 1: the backward of this pass is to be summed */
    int learned;           /* 1: the units that stay are known */
    int moves;             /* 1: they get their slots when the next step begins */
    int current[2];        /* the units that the op under way uses */
    struct order order[2]; /* forward and backward */
    int proved;     /* 1: state.c has gathered units; the next pass gathers them anew all the same,
                     * so that a proof changes nothing of what is measured */
    int at;         /* the index of the next unit in order[backward] */
    char *is_ready; /* [parameters] */
};

/* ---- fsdp.c ---- */

/* Every public function and every function of the reducer ends with it. */
int fsdp_ended(struct fsdp *f, int code);

/* An all-gather of blocks in a slot. Bytes that move for a proof are no part of training, and are
 * not counted. */
int fsdp_gather(struct fsdp *f, int kind, float *data, size_t block, int unit);

/* Enqueues that the unit comes to its slot, and that compute waits for it. */
int fsdp_fetch(struct fsdp *f, int unit);
int fsdp_await(struct fsdp *f, int unit);
/* The values in the slots are out of date: the shards have changed. */
void fsdp_forget(struct fsdp *f);
/* The same of values and gradients, if somebody but an optimizer has written into the shards. */
void fsdp_notice_writes(struct fsdp *f);

/* The functions of struct grad_reducer. */
int fsdp_enter(void *context, int32_t step, int opens, int reduces);
int fsdp_use(void *context, const struct param *w, const struct param *b, int backward);
int fsdp_ready(void *context, int index);
int fsdp_finish(void *context);

/* ---- layout.c ---- */

/* All device memory, and where each parameter lies in it. Collective. */
int fsdp_make_layout(struct fsdp *f);
void fsdp_free_layout(struct fsdp *f);
/* All slots of a kind, in place of those before; what they held is lost. Collective: waits. */
int fsdp_open_slots(struct fsdp *f, int kind);
/* Says where the whole parameters lie. */
void fsdp_show(struct fsdp *f);
/* This rank's block of a unit in a slot: of the trained part, or of the frozen part. */
float *fsdp_block(const struct fsdp *f, const struct slot *slot, int unit, int frozen);

/* ---- state.c: of a sharded param_set ---- */

int fsdp_bring(void *context, int index, int grad);
int fsdp_gather_state(void *context, const float *state, int each, float *whole);

#endif
