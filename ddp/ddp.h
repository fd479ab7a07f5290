/* DistributedDataParallel: a process per device, the same model in each, gradients summed while
 * backward still runs.
 *
 * Who does what, a line each:
 *
 *     models/replica.h   one device's part of a step: forward, loss, backward, update
 *     nn/tape.h          tells, parameter by parameter, that a gradient is complete: the hook
 *     ddp/bucket.h       which gradients travel together
 *     ddp/setup.h        at the start: is it one model everywhere? rank 0's values to all
 *     ddp/ddp.c          counts what is ready, sends off full buckets in order, waits for the last
 *     allreduce/         sums a bucket over all ranks, in place, on the communication stream
 *
 * A step of one rank; time runs to the right:
 *
 *     compute   forward | loss | backward: fc2 . fc1 ...... conv2 ...... conv1 |wait| optimizer
 *                                           |  b0 full       |  b1 full     |  b2 full  ^
 *     comm                                  '->[allreduce b0].'->[allreduce b1][allreduce b2]
 *
 * Buckets go in index order on every rank, whatever the order in which they fill: a collective
 * is the same call on all ranks. In the first step nobody knows the order in which gradients
 * become ready, so there is one bucket, sent off behind the last gradient. Rank 0's ready order
 * of that step is then everybody's: the gradient arena is laid out in it, and the buckets are
 * cut from it.
 *
 * Sum or mean. The trainer weighs each sample's loss by 1/B of the global batch, so gradients
 * need only be summed. A program with a local mean loss sets `divide`: every term times 1/W
 * before the sum, as PyTorch does.
 *
 * Everything is enqueued; only ddp_init and the ddp_begin that rebuilds the buckets wait. Every
 * function may be used by one thread at a time, the compute thread. A failure of any of them
 * aborts the job (comm_abort), so no peer waits for a rank that has given up; ERR_PEER: another
 * rank failed first. */
#ifndef DDP_DDP_H
#define DDP_DDP_H

#include "allreduce/allreduce.h"
#include "comm/comm.h"
#include "ddp/bucket.h"
#include "models/replica.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ddp;

struct ddp_config {
    double bucket_cap_mb, first_bucket_mb; /* MiB, negative: not given; see bucket_limits */
    enum allreduce_algorithm algorithm;
    /* auto over 3 or more ranks: 1 = ring and tree too, whose bits differ from the others' */
    int any_order;
    int divide;     /* 1: gradients are averaged over the ranks; 0: summed */
    int no_overlap; /* 1: buckets leave when backward has ended; shows what the overlap is worth */
};
struct ddp_config ddp_config_default(void); /* -1, -1, auto, in fold order, summed, overlapped */

/* Collective. Checks that all ranks hold the same model, copies rank 0's values to all, and
 * hooks itself into the replica's tape. The replica must outlive the ddp. ERR_FAILED with
 * PyTorch's words where models differ. On failure *out is NULL. */
int ddp_init(struct ddp **out, struct comm *comm, struct replica *replica,
             const struct ddp_config *config);

/* Collective, unless the job has failed; so after a failure of the caller's own: comm_abort
 * first. Waits for what is enqueued. NULL is fine. */
void ddp_free(struct ddp *ddp);

/* Around one forward and backward. begin: this backward is to be reduced; `step` names it in
 * spans and errors. Collective in the second step, where it rebuilds the buckets; the gradients
 * of the first are gone then. ERR_FAILED: a parameter got no gradient in the step before
 * (PyTorch's words, names and indices). finish: the compute stream waits behind the last
 * allreduce; what is enqueued later sees the sums. */
int ddp_begin(struct ddp *ddp, int32_t step);
int ddp_finish(struct ddp *ddp);

/* One whole training step of this rank. `pixels` and `labels`: segments->n samples in host
 * memory, which must stay until an event recorded afterwards is done; n may be 0. pixels NULL:
 * the caller has loaded the replica (replica_load_samples). step->weight is 1/B of the GLOBAL
 * batch. */
int ddp_step(struct ddp *ddp, const struct step_block *step, const float *pixels,
             const int32_t *labels, const struct segments *segments);

/* The buckets of the present step, and whether they are the rebuilt ones. Owned by the ddp; gone
 * with the next begin. */
const struct bucket_plan *ddp_buckets(const struct ddp *ddp);
int ddp_has_rebuilt(const struct ddp *ddp);

/* The algorithm that a bucket of `count` elements takes, and why, in one line of text. */
enum allreduce_algorithm ddp_algorithm(const struct ddp *ddp, size_t count, char *text,
                                       size_t text_bytes);

#ifdef __cplusplus
}
#endif
#endif
