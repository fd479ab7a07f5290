/* DistributedDataParallel: one process per device, each with the same model. Gradients are summed
 * while backward still runs. The files:
 *
 *     nn/tape/tape.h     the hook, which says of each parameter when its gradient is complete
 *     ddp/bucket.h       which gradients travel together
 *     ddp/setup.h        checks that all ranks hold one model; copies rank 0's values to all
 *     ddp/buffers.h      copies rank 0's buffers to all, before each forward
 *     ddp/init.c         makes and frees the object
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
 * a collective must be the same call on all ranks. In the first step the order in which gradients
 * become ready is unknown, so one bucket has all of them and is launched after the last gradient.
 * Then all ranks take the ready order that rank 0 saw: they lay out the gradient arena in this
 * order, and cut the buckets from it.
 *
 * Sum or mean. The command weights the loss of each sample by 1/B of the global batch, so gradients
 * need only be summed. A program whose loss is a mean over the rank's own samples sets `divide`:
 * every term is multiplied by 1/W before the sum, as in PyTorch.
 *
 * Everything is enqueued; only ddp_init and the ddp_begin that rebuilds the buckets wait. Only the
 * thread of the compute stream may call these functions. A failure of any of them aborts the job
 * (comm_abort), so that no peer waits for a rank that has given up. ERR_PEER: another rank failed
 * first. */
#ifndef DDP_DDP_H
#define DDP_DDP_H

#include "allreduce/allreduce.h"
#include "comm/comm.h"
#include "ddp/bucket.h"
#include "duet/distributed.h"
#include "nn/params/params.h"

/* A bucket whose gradients are ready, as passed to a communication hook. */
struct ddp_bucket {
    struct stream *stream;       /* the communication stream, for work on the bucket */
    float *data;                 /* the gradients, pads included, in device memory */
    size_t count;                /* elements */
    int index;                   /* index of the bucket */
    int last;                    /* 1: the last bucket of the step */
    long step;                   /* for spans and errors */
    float scale;                 /* the factor applied to terms if there is no hook */
    struct allreduce *allreduce; /* the object with which `data` is registered */
};
/* Enqueues the work of one bucket and returns. It is called in the order of the buckets, and its
 * collectives must be the same calls on all ranks. The final content of the bucket is the
 * gradient. */
typedef int ddp_comm_hook(void *context, const struct ddp_bucket *bucket);

struct ddp_config {
    double bucket_cap_mb, first_bucket_mb; /* MiB; negative: default; see bucket_limits */
    enum allreduce_algorithm algorithm;
    int any_order; /* 1: from 3 ranks on, `auto` may pick ring and tree; other bits */
    int divide;    /* 1: gradients are averaged over the ranks; 0: summed */
    /* 1: before each backward, find the parameters that this rank's loss does not use. They count
     * as ready, with zero gradients, so a step may skip some. They get the sum over the ranks that
     * used them; parameters that no rank used are not updated. The ranks synchronise on the host in
     * each step, after their streams' work. Buckets are cut at the start and never rebuilt. */
    int find_unused;
    /* What happens if one rank runs out of input before the others (join.c). Off: all ranks must
     * have the same number of batches. Or the rank shadows the others, and `divide` divides by the
     * number of all ranks or of ranks with input. Or the step fails on every rank, with PyTorch's
     * message. */
    enum duet_join join;
    int own_buffers;       /* 1: rank 0's buffers are not broadcast before each forward */
    int buffers_each_pass; /* 1: broadcast them even if the last pass only accumulated */
    const int *order; /* [trained] the order in which gradients become ready, if known before the
                       * first step; the same on all ranks. NULL: unknown */
    int no_overlap;   /* 1: no allreduce before backward has ended, to show the gain of overlap */
};
/* The defaults: PyTorch's sizes, auto within the fold order, sums, overlap. */
struct ddp_config ddp_config_default(void);

/* Collective. Checks that all ranks hold the same model and copies rank 0's values to all. It
 * borrows comm, the parameters, whose gradients it moves, and the group of the program's
 * communication hooks (NULL: the command's, which has none). All must outlive it. ERR_FAILED with
 * PyTorch's words if models differ. On failure *out is NULL.
 *
 * From then on each pass that begins with these parameters (pass_enter, duet_tape_begin) opens a
 * step, and the backward of an update's last pass closes it (struct grad_reducer). Callers of
 * tape_backward use ddp_begin and ddp_finish for that. In between ddp_gradient_ready is called for
 * each parameter, once the last kernel of its gradient is enqueued on the compute stream. With
 * find_unused, the gradients of unused parameters are filled with zeros and count as ready. */
int ddp_init(struct duet_ddp **out, struct comm *comm, duet_params *params, duet_group *group,
             const struct ddp_config *config);

int ddp_gradient_ready(void *ddp, int index); /* a grad_hook */

/* duet_ddp_free frees it. That is collective unless the job has failed, so after its own failure
 * the caller first calls comm_abort. It waits for enqueued work. */

/* Collective, before a forward, also in evaluation: copies rank 0's buffers to all ranks. */
int ddp_broadcast_buffers(struct duet_ddp *ddp, int32_t step);

/* Replaces the allreduce of each bucket. Called once, before the first step, with the same hook on
 * all ranks. ERR_USAGE: no hook, or a second one. ddp_allreduce_hook is the default. */
int ddp_register_comm_hook(struct duet_ddp *ddp, ddp_comm_hook *hook, void *context);
int ddp_allreduce_hook(void *context, const struct ddp_bucket *bucket);

/* The two ends of a step. After ddp_begin the next backward will be reduced; `step` names it in
 * spans and errors. In the second step it is collective, rebuilds the buckets and overwrites the
 * gradients of the first. ERR_FAILED: a parameter got no gradient in the previous step (PyTorch's
 * words, with names and indices). Passes that only accumulate are between the two, too. In
 * ddp_finish the compute stream waits for the last allreduce, so later work reads the sums. */
int ddp_begin(struct duet_ddp *ddp, int32_t step);
int ddp_finish(struct duet_ddp *ddp);

/* Replaces a step on a rank without input, if config.join is not off. The rank shadows one step of
 * the others, except the update. Its gradients are zeros, ready at once in the order of the
 * buckets. `forward` replaces the forward pass that the others begin. *active is the number of
 * ranks that had input; if it is 0, nothing was done, and this rank's loop ends. With join all
 * ranks meet on the host in every step. A model whose forward waits for other ranks (SyncBatchNorm)
 * cannot be shadowed. */
int ddp_shadow_pass(struct duet_ddp *ddp, int32_t step, int (*forward)(void *context),
                    void *context, int *active);

/* Writes the names of parameters that this rank's last step left without a gradient, "a, b", or ""
 * if it left none. Their buckets were not reduced, and the next step would fail. */
const char *ddp_unfinished(const struct duet_ddp *ddp, char *text, size_t bytes);

/* With find_unused: 1 once a step has left out a parameter on some rank. */
int ddp_found_unused(const struct duet_ddp *ddp);

/* The current buckets. The ddp owns them; valid until the next begin. */
const struct bucket_plan *ddp_buckets(const struct duet_ddp *ddp);

/* The order [trained] for config.order, after a step on rank 0; NULL if the buckets never follow
 * it. The ddp owns it; valid until the next begin. */
const int *ddp_ready_order(const struct duet_ddp *ddp);

/* The algorithm for a bucket of `count` elements. Writes one line that says why to `text`. */
enum allreduce_algorithm ddp_algorithm(const struct duet_ddp *ddp, size_t count, char *text,
                                       size_t text_bytes);

#endif
