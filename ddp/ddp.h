/* DistributedDataParallel: a process per device, the same model in each, and gradients that are
 * summed while backward still runs. Who does what:
 *
 *     nn/tape/tape.h          the hook, which says of each parameter when its gradient is complete
 *     ddp/bucket.h       which gradients travel together
 *     ddp/setup.h        at the start: do all ranks hold one model? rank 0's values to all
 *     ddp/buffers.h      before each forward: rank 0's buffers to all
 *     ddp/init.c         its beginning and its end
 *     ddp/program.c      the calls of duet.h; hooks.c, compress.c: communication hooks
 *     ddp/ddp.c          counts the gradients that are ready and launches the allreduce of each
 *                        full bucket, in order; waits for the last
 *     allreduce/         sums a bucket over all ranks, in place, on the communication stream
 *
 * A step of one rank; time runs to the right:
 *
 *     compute   forward | loss | backward: fc2 . fc1 ...... conv2 ...... conv1 |wait| optimizer
 *                                           |  b0 full       |  b1 full     |  b2 full  ^
 *     comm                                  '->[allreduce b0].'->[allreduce b1][allreduce b2]
 *
 * Buckets are launched in index order on every rank, whatever the order in which they fill, because
 * a collective must be the same call on all ranks. In the first step nobody knows the order in
 * which gradients become ready, so there is one bucket with all of them, launched after the last
 * gradient. The ready order that rank 0 saw then becomes everybody's: the gradient arena is laid
 * out in it, and the buckets are cut from it.
 *
 * Sum or mean. The command weighs the loss of each sample by 1/B of the global batch, so gradients
 * need only be summed. A program whose loss is a mean over the rank's own samples sets `divide`:
 * every term is multiplied by 1/W before the sum, as PyTorch does.
 *
 * Everything is enqueued; only ddp_init and the ddp_begin that rebuilds the buckets wait. Every
 * function belongs to the one thread that uses the compute stream. A failure of any of them aborts
 * the job (comm_abort), so that no peer waits for a rank that has given up. ERR_PEER: another rank
 * failed first. */
#ifndef DDP_DDP_H
#define DDP_DDP_H

#include "allreduce/allreduce.h"
#include "comm/comm.h"
#include "ddp/bucket.h"
#include "duet/distributed.h"
#include "nn/params/params.h"

/* A bucket whose gradients are ready, as a communication hook gets it. */
struct ddp_bucket {
    struct stream *stream;       /* the stream for work on it: communication */
    float *data;                 /* the gradients, pads included, in device memory: in place */
    size_t count;                /* elements */
    int index;                   /* of the bucket */
    int last;                    /* 1: the last of the step */
    long step;                   /* for spans and errors */
    float scale;                 /* the factor of the terms without a hook */
    struct allreduce *allreduce; /* the object in which the data is registered */
};
/* Enqueues the work of one bucket and returns. It is called in the order of the buckets, so its
 * collectives must be the same calls on all ranks. Its final content of the bucket is the
 * gradient. */
typedef int ddp_comm_hook(void *context, const struct ddp_bucket *bucket);

struct ddp_config {
    double bucket_cap_mb, first_bucket_mb; /* MiB; negative: not given; see bucket_limits */
    enum allreduce_algorithm algorithm;
    int any_order; /* 1: `auto` may choose ring and tree over 3 or more ranks: other bits */
    int divide;    /* 1: gradients are averaged over the ranks; 0: summed */
    /* 1: before each backward it finds the parameters without a part in this rank's loss. They
     * count as ready, with zeros, so a step may leave some out; they get the sum of the ranks that
     * used them. Parameters that no rank used are not updated. In each step the ranks then meet on
     * the host, after the work of their streams; buckets are cut at the start and never rebuilt. */
    int find_unused;
    /* How a rank is treated whose input ends before that of the others (join.c): not at all, so all
     * ranks must have equally many batches; it shadows the others, and `divide` divides by the
     * number of all ranks, or of those that still have input; or the step fails on every rank, in
     * PyTorch's words. */
    enum duet_join join;
    int own_buffers;       /* 1: rank 0's buffers are not broadcast before each forward */
    int buffers_each_pass; /* 1: they also are if the previous pass only accumulated */
    const int *order; /* [trained] the order in which the gradients become ready, if known before
                       * the first step; read by ddp_init, the same on all ranks. NULL: unknown */
    int no_overlap;   /* 1: no allreduce before backward has ended, to see the gain of overlap */
};
/* Default sizes, auto within the fold order, summed, overlapped. */
struct ddp_config ddp_config_default(void);

/* Collective. Checks that all ranks hold the same model and copies rank 0's values to all. It
 * borrows, so these must outlive it: comm; the parameters, whose gradients it moves; and the group
 * of the program's communication hooks (NULL: the command's, which has none). ERR_FAILED with
 * PyTorch's words if models differ. On failure *out is NULL.
 *
 * From then on each pass that begins with these parameters (pass_enter, duet_tape_begin) opens a
 * step, and the backward of an update's last pass closes it: struct grad_reducer. ddp_begin and
 * ddp_finish are the two ends, for callers of tape_backward. In between ddp_gradient_ready is
 * called for each parameter once the last kernel of its gradient is enqueued on the device's
 * compute stream. With find_unused, gradients of unused parameters are filled with zeros, and they
 * are ready, too. */
int ddp_init(struct duet_ddp **out, struct comm *comm, duet_params *params, duet_group *group,
             const struct ddp_config *config);

int ddp_gradient_ready(void *ddp, int index); /* a grad_hook */

/* Its end is duet_ddp_free: collective, unless the job has failed; so after the caller's own
 * failure call comm_abort first. It waits for enqueued work. */

/* Collective: rank 0's buffers go to all ranks; before a forward, also in evaluation. */
int ddp_broadcast_buffers(struct duet_ddp *ddp, int32_t step);

/* Replaces the allreduce of each bucket; once, before the first step, the same on all ranks.
 * ERR_USAGE: no hook, or a second one. ddp_allreduce_hook is the default. */
int ddp_register_comm_hook(struct duet_ddp *ddp, ddp_comm_hook *hook, void *context);
int ddp_allreduce_hook(void *context, const struct ddp_bucket *bucket);

/* The two ends of a step. ddp_begin: the next backward will be reduced; `step` names it in spans
 * and errors. In the second step it is collective, rebuilds the buckets and overwrites the
 * gradients of the first. ERR_FAILED: a parameter got no gradient in the previous step (PyTorch's
 * words, with names and indices). Passes that only accumulate are between the two, too. ddp_finish:
 * the compute stream waits for the last allreduce, so later work reads the sums. */
int ddp_begin(struct duet_ddp *ddp, int32_t step);
int ddp_finish(struct duet_ddp *ddp);

/* Replaces a step on a rank that has no more input, if config.join is not off: the rank shadows one
 * step of the others, without the update, with zeros, which are ready at once in the order of the
 * buckets. `forward` replaces the forward pass that the others begin. *active: ranks that had
 * input; 0: none had, nothing was done, and the loop of this rank ends. With join every step has a
 * meeting of all ranks on the host. A model that waits for other ranks inside its forward
 * (SyncBatchNorm) cannot be shadowed. */
int ddp_shadow_pass(struct duet_ddp *ddp, int32_t step, int (*forward)(void *context),
                    void *context, int *active);

/* The names of the parameters that this rank's last step left without a gradient, so that their
 * buckets were not reduced, as "a, b"; "" if there are none. The next step would fail for it. */
const char *ddp_unfinished(const struct duet_ddp *ddp, char *text, size_t bytes);

/* With find_unused: 1 once a step has left out a parameter on some rank. */
int ddp_found_unused(const struct duet_ddp *ddp);

/* The buckets in force. Owned by the ddp; valid until the next begin. */
const struct bucket_plan *ddp_buckets(const struct duet_ddp *ddp);

/* The order [trained] of config.order, after a step on rank 0; NULL: the buckets never follow it.
 * Owned by the ddp; valid until the next begin. */
const int *ddp_ready_order(const struct duet_ddp *ddp);

/* The algorithm that a bucket of `count` elements takes; `text` becomes one line that says why. */
enum allreduce_algorithm ddp_algorithm(const struct duet_ddp *ddp, size_t count, char *text,
                                       size_t text_bytes);

#endif
