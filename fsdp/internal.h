/* The inside of a sharded model, for the files in this folder. */
#ifndef FSDP_INTERNAL_H
#define FSDP_INTERNAL_H

#include "allreduce/allreduce.h"
#include "ddp/buffers.h"
#include "fsdp/fsdp.h"
#include "fsdp/units.h"

enum { NO_UNIT = -1 };

/* Device memory for a whole unit, values or gradients. Its events order the two streams that use
 * it. */
struct slot {
    float *data;          /* owned */
    int unit;             /* the unit that it holds or that is being gathered; NO_UNIT: none */
    int waited;           /* 1: compute already waits for it */
    int summing;          /* gradients: 1: a reduce-scatter reads it */
    struct event *left;   /* compute to comm: compute no longer needs the slot */
    struct event *filled; /* comm to compute: the unit is gathered, or its sum is done */
};

/* All slots of a kind, and the object that maps the slots of other ranks. */
enum { VALUES, GRADS };
struct slots {
    struct allreduce *collectives;
    struct slot *slot; /* [count], at most one for each unit; owned */
    int count;
};

/* The units, in the order of their first use in a pass. */
struct order {
    int *unit;
    int count, capacity;
};

struct unit_state {
    struct slot *values, *grads; /* grads NULL: nothing in it is trained, or it was not used yet */
    int pending;                 /* gradients that are not ready yet */
    int reduced;                 /* 1: this step's sum of its gradients is enqueued */
    int stays;                   /* 1: used again after other units, so it stays gathered */
    int apart;                   /* 1: an op uses it together with another unit */
};

struct fsdp {
    struct comm *comm;
    struct group *group;
    struct device *device;
    struct duet_params *owner;
    struct param_set *params; /* the owner's */
    struct fsdp_config config;
    struct fsdp_units units;
    struct unit_state *unit; /* [units] */
    struct param_set shard;
    struct slots slots[2];       /* VALUES, GRADS */
    struct ddp_buffers *buffers; /* NULL: none to broadcast */
    struct grad_reducer reducer;
    float scale;
    int rank, ranks;

    int shared;          /* slots that units share in turn: as many for values as for gradients */
    int whole_values;    /* 1: each unit has its own slot of values */
    int whole_grads;     /* 1: the same for gradients */
    int shards_in_slots; /* 1: the shards of values are blocks of these slots */
    struct event *all;   /* comm to compute: the last sum of a step is done */

    int32_t step;          /* for spans and errors; -1: none was */
    int backward;          /* 1: the pass is in backward */
    int expecting;         /* 1: the gradients of this pass will be summed */
    int learned;           /* 1: the units that stay are known */
    int moves;             /* 1: units that stay get their slots when the next step begins */
    int current[2];        /* the units that the current op uses */
    struct order order[2]; /* order of units in forward and in backward */
    int proved;     /* 1: state.c has gathered units; the next pass gathers them again, so that a
                 * proof does not change the measurements */
    int at;         /* the index of the next unit in order[backward] */
    char *is_ready; /* [parameters] */
};

/* ---- fsdp.c ---- */

/* Every public function and every function of the reducer ends with it. */
int fsdp_ended(struct fsdp *f, int code);

/* Lets the communication stream use the slot as soon as compute has finished with it. */
int fsdp_lend(struct fsdp *f, struct slot *slot, enum phase phase);

/* Gathers one part of a unit, trained or frozen, in a slot. `own` is this rank's block; NULL: the
 * slot already holds it. A gather in PHASE_PROOF adds no traffic. */
int fsdp_gather(struct fsdp *f, int kind, struct slot *slot, int unit, int frozen,
                const float *own);

/* Enqueues the gather of the unit into its slot, and compute's wait for it. */
int fsdp_fetch(struct fsdp *f, int unit);
int fsdp_await(struct fsdp *f, int unit);
/* Marks the values in the slots as stale after the shards have changed. */
void fsdp_forget(struct fsdp *f);
/* The same for values and gradients, after code other than an optimizer has written to shards. */
void fsdp_notice_writes(struct fsdp *f);

/* The functions of struct grad_reducer. */
int fsdp_enter(void *context, int32_t step, int opens, int reduces);
int fsdp_use(void *context, const struct param *w, const struct param *b, int backward);
int fsdp_ready(void *context, int index);
int fsdp_finish(void *context);

/* ---- layout.c ---- */

/* Allocates all device memory and places the parameters in it. Collective. */
int fsdp_make_layout(struct fsdp *f);
void fsdp_free_layout(struct fsdp *f);
/* Replaces all slots of a kind; their contents are lost. Collective; waits. */
int fsdp_open_slots(struct fsdp *f, int kind);
/* Gives a unit its own slot of values, in the middle of a pass. Collective; waits. */
int fsdp_open_apart(struct fsdp *f, int unit);
/* Points the parameters to their whole values and gradients. */
void fsdp_show(struct fsdp *f);
/* This rank's block of the trained or the frozen part of a unit in a slot. */
float *fsdp_block(const struct fsdp *f, const struct slot *slot, int unit, int frozen);

/* ---- state.c: functions of a sharded param_set ---- */

int fsdp_bring(void *context, int index, int grad);
int fsdp_gather_state(void *context, const float *state, int each, float *whole);

#endif
