/* The inside of a ddp, for its files: ddp.c has the step and program.c the calls of duet.h. meet.c
 * and join.c handle steps that may leave out parameters or ranks. */
#ifndef DDP_STATE_H
#define DDP_STATE_H

#include "ddp/buffers.h"
#include "ddp/ddp.h"
#include "ddp/hooks.h"

struct duet_ddp {
    struct comm *comm;
    struct group *group; /* the group that counts its calls; NULL: the command's */
    struct device *device;
    struct duet_params *owner;
    struct param_set *params; /* the owner's */
    char *used; /* [parameters] the owner's has_grad; with find_unused, after ddp_finish, 1 if some
                 * rank used it in this step */
    struct ddp_config config;
    struct allreduce *allreduce;
    struct ddp_buffers *buffers; /* NULL: none to broadcast */
    struct event **ready;        /* [events] one per bucket */
    int events;                  /* the most buckets so far */
    struct event *reduced;       /* recorded after the last allreduce of a step */
    float scale;                 /* factor of each term: 1, 1/W, or 1/(active ranks) */
    ddp_comm_hook *hook;         /* starts the allreduce of a bucket */
    void *hook_context;
    int hook_registered;     /* 1: ddp_register_comm_hook set it */
    uint64_t limits[2];      /* for the rebuilt buckets, in bytes */
    struct bucket_plan plan; /* the buckets in force */
    int rebuilt;             /* 1: it was rebuilt from rank 0's ready order */
    int32_t step;            /* the current step, for spans and errors; -1: none */
    int expecting;           /* 1 between begin and finish: this backward will be reduced */
    int *pending;            /* [buckets] gradients that are not ready yet */
    int next;                /* the next bucket to launch */
    int *ready_order;        /* [ready_count] parameters in the order of their gradients */
    int ready_count;
    char *is_ready;   /* [parameters] 1: its gradient is ready in this backward */
    char *all_used;   /* [ranks][parameters] 1: the rank used it in this step; with find_unused */
    int source;       /* with join: the last rank that had input in this step */
    int found_unused; /* 1: in some step a rank did not use a parameter */

    struct grad_reducer reducer; /* called by passes that use the owner's parameters */
    int sync_buffers;            /* 1: the next pass begins with rank 0's buffers */

    /* Only programs set these. */
    struct hooks hooks;
};

/* ---- ddp.c ---- */

/* Every public function and every hook ends with it. It turns a failure into the job's failure. */
int ddp_ended(struct duet_ddp *ddp, int code);

/* Makes an event for each bucket. */
int ddp_make_events(struct duet_ddp *ddp);

/* Cuts the buckets after the first step from this order, and enqueues zeros into the gradients. */
int ddp_plan_in_order(struct duet_ddp *ddp, const int *order);

/* ddp_open_step resets the counters, and rebuilds the buckets in the second step. ddp_finish waits
 * for the last allreduce. Between the two ddp_gradient_ready counts each gradient. */
int ddp_open_step(struct duet_ddp *ddp, int32_t step);
int ddp_close_step(struct duet_ddp *ddp);

/* The functions of struct grad_reducer; context: the ddp. */
int ddp_enter(void *context, int32_t step, int opens, int reduces);
int ddp_leave(void *context);

/* ---- meet.c ---- */

/* With find_unused, extends the list of used parameters to those that any rank used. */
int ddp_agree_on_used(struct duet_ddp *ddp);

/* Collective, only with config.join: counts the ranks that have input for the next step. `mine` is
 * 1 if this rank has. */
int ddp_count_active(struct duet_ddp *ddp, int mine, int *active);

/* ERR_USAGE: these parameters do not allow a rank to shadow others. */
int ddp_check_join(const struct duet_ddp *ddp);

/* Collective, for a program with join: all ranks get the parameters or the buffers of the highest
 * rank that had batches, not rank 0's. */
int ddp_join_values(struct duet_ddp *ddp);
int ddp_join_buffers(struct duet_ddp *ddp);

#endif
