/* The inside of a ddp, for its files: ddp.c has the step, program.c the calls of duet.h; meet.c and
 * join.c serve steps that may leave out parameters or ranks. */
#ifndef DDP_STATE_H
#define DDP_STATE_H

#include "ddp/buffers.h"
#include "ddp/ddp.h"
#include "ddp/hooks.h"

struct duet_ddp {
    struct comm *comm;
    struct group *group; /* its calls are among this group's; NULL: the command's */
    struct device *device;
    struct duet_params *owner;
    struct param_set *params; /* of the owner */
    char *used; /* [parameters] the owner's has_grad; after ddp_finish with find_unused: 1: some
                 * rank used it in this step */
    struct ddp_config config;
    struct allreduce *allreduce;
    struct ddp_buffers *buffers; /* NULL: there are none to broadcast */
    struct event **ready;        /* [events] one for each bucket */
    int events;                  /* the most buckets so far */
    struct event *reduced;       /* after the last allreduce of a step */
    float scale;                 /* of every term: 1, or 1/W, or 1/(active ranks) */
    ddp_comm_hook *hook;         /* launches a bucket */
    void *hook_context;
    int hook_registered;     /* 1: by ddp_register_comm_hook */
    uint64_t limits[2];      /* of the rebuilt buckets, in bytes */
    struct bucket_plan plan; /* the buckets in force */
    int rebuilt;             /* 1: they are cut from rank 0's ready order */
    int32_t step;            /* the current step, for spans and errors; -1: none */
    int expecting;           /* 1 between begin and finish: this backward will be reduced */
    int *pending;            /* [buckets] gradients that are not ready yet */
    int next;                /* the bucket that is launched next */
    int *ready_order;        /* [ready_count] parameters, as their gradients became ready */
    int ready_count;
    char *is_ready;   /* [parameters] 1: its gradient is ready in this backward */
    char *all_used;   /* [ranks][parameters] 1: the rank used it in this step; with find_unused */
    int source;       /* with join: the last of the ranks that had input in this step */
    int found_unused; /* 1: some rank has left out some parameter in some step */

    struct grad_reducer reducer; /* called by passes with the owner's parameters */
    int sync_buffers;            /* 1: the next pass begins with rank 0's buffers */

    /* Of a program. */
    struct hooks hooks;
    struct call_trace *trace; /* of DUET_TRACE; NULL: buckets are not recorded */
    int64_t bucket_began_ns;  /* of the current bucket; written and read on the stream */
};

/* ---- ddp.c ---- */

/* Ends every public function and every hook: a failure becomes that of the job. */
int ddp_ended(struct duet_ddp *ddp, int code);

/* An event for each bucket. */
int ddp_make_events(struct duet_ddp *ddp);

/* The buckets after the first step, cut from this order. It enqueues zeros into the gradients. */
int ddp_plan_in_order(struct duet_ddp *ddp, const int *order);

/* The ends of a step: counters set back, and buckets rebuilt in the second step; and the wait for
 * the last allreduce. Between the two ddp_gradient_ready counts each gradient. */
int ddp_open_step(struct duet_ddp *ddp, int32_t step);
int ddp_close_step(struct duet_ddp *ddp);

/* The functions of struct grad_reducer; context: the ddp. */
int ddp_enter(void *context, int32_t step, int opens, int reduces);
int ddp_leave(void *context);

/* ---- meet.c ---- */

/* With find_unused: the list of used parameters becomes that of all ranks together. */
int ddp_agree_on_used(struct duet_ddp *ddp);

/* Only with config.join: how many ranks have input for the next step. `mine` 1: this one has.
 * Collective. */
int ddp_count_active(struct duet_ddp *ddp, int mine, int *active);

/* ---- trace.c ---- */

/* For a program's ddp. */
void ddp_trace_open(struct duet_ddp *ddp);

/* Launches a bucket, with ddp->trace, and records when it runs. */
int ddp_launch_noted(struct duet_ddp *ddp, const struct ddp_bucket *bucket);

/* ---- join.c ---- */

/* Collective, of a program with join: all ranks get the buffers of the highest rank that has
 * batches, not those of rank 0. */
int program_join_buffers(struct duet_ddp *ddp);

/* ERR_USAGE: with these parameters no rank can be shadowed. */
int program_check_join(const struct duet_ddp *ddp);

/* ---- program.c ---- */

/* duet_params_grad returns the gradients at their current addresses. */
void program_show_gradients(struct duet_params *params);

#endif
