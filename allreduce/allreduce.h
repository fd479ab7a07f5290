/* Allreduce for the ranks of a job. It works in place: afterwards every rank's buffer holds the sum
 * over all ranks.
 *
 *     plan.h        what each rank does, in integers: naive, oneshot, direct, ring, tree, fused
 *     select.h      finds the fastest algorithm for a size
 *     executor.h    how a plan runs: on emulated devices, on GPUs
 *     allreduce.h   DDP's interface: shares memory between the ranks, puts calls on a stream
 *
 * Each rank holds one slab of device memory, flags and scratch (cause "comm"), and registers the
 * buffers that it wants summed. All other ranks map both; a call then loads from them and stores to
 * them directly.
 *
 * Collective functions are init, register, free and enqueue: all ranks make the same calls in the
 * same order with the same counts, scales and offsets in the buffer. All calls go on one stream, a
 * device's communication stream. One thread at a time uses the object. */
#ifndef ALLREDUCE_ALLREDUCE_H
#define ALLREDUCE_ALLREDUCE_H

#include "allreduce/plan.h"
#include "allreduce/select.h"
#include "comm/comm.h"
#include "device/device.h"

struct allreduce;

struct allreduce_config {
    enum allreduce_algorithm algorithm; /* AUTO: allreduce_choose picks for each count */
    int any_order; /* 1: from 3 ranks on AUTO may also pick ring and tree, which give other bits */
    struct plan_config plan; /* how data is cut into pieces */
    struct announcer *group; /* comm_call.group of all calls, outlives the object; NULL: none */
};
struct allreduce_config allreduce_config_default(void); /* AUTO, 0, plan_config_default() */

/* Collective. Allocates the slab and maps the peers'. A NULL comm means one rank. comm and device
 * are borrowed and must outlive the object. A NULL config means the defaults. ERR_USAGE: the ranks'
 * settings differ. ERR_MEMORY. On failure *out is NULL. */
int allreduce_init(struct allreduce **out, struct comm *comm, struct device *device,
                   const struct allreduce_config *config);

/* Collective. Shares data[0..count), device memory of the caller, with all ranks (the same count on
 * each) until allreduce_free. The memory must not be freed before that. A gradient arena is
 * registered once for all buckets in it. */
int allreduce_register(struct allreduce *ar, float *data, size_t count);

/* Collective. Enqueues: data[i] = sum over all ranks of (the rank's data[i] * scale), i < count.
 * Each product is rounded before it is added, as PyTorch's DDP does with scale = 1/n.
 *
 * data[0..count) is in a registered buffer, at the same offset on each rank. The call returns
 * before the sum is done; the caller may touch data again after an event. A count of 0 does
 * nothing. Only a count that has not been seen before allocates memory. `bucket` and `step` name
 * the call in its span ("allreduce bucket 1", phase allreduce) and in errors; -1: left out.
 *
 * ERR_FAILED: data is not inside a registered buffer. The stream reports later failures: ERR_PEER,
 * ERR_TIMEOUT, with rank, bucket, step and peer. */
int allreduce_enqueue(struct allreduce *ar, struct stream *stream, float *data, size_t count,
                      float scale, int bucket, long step);

/* Two collectives that only copy, bit for bit; they are collective like allreduce_enqueue.
 * all_gather: data has `blocks` blocks of `block` elements, at least one for each rank, and block b
 * becomes that of rank b mod n. `unit` names the call as `bucket` does. broadcast: data[0 .. count)
 * becomes rank 0's. The stream's phase does not change; `step` names the call in errors. */
int all_gather_enqueue(struct allreduce *ar, struct stream *stream, float *data, size_t blocks,
                       size_t block, int unit, long step);
int broadcast_enqueue(struct allreduce *ar, struct stream *stream, float *data, size_t count,
                      long step);

/* Collective. data[0 .. n * block) has a block for each of the n ranks. This rank's block becomes
 * the sum of all ranks' (data * scale), in fold order, or with NCCL in NCCL's order. The other
 * blocks are then undefined. */
int reduce_scatter_enqueue(struct allreduce *ar, struct stream *stream, float *data, size_t block,
                           float scale, int unit, long step);

/* The algorithm of a call with `count` elements. `text`, which may be NULL, gets its name and the
 * reason in one line. */
enum allreduce_algorithm allreduce_algorithm_for(const struct allreduce *ar, size_t count,
                                                 char *text, size_t text_bytes);

/* How calls run here: "host", "stepwise" (ranks share one GPU), "spin" or "nccl" (executor.h).
 * Static storage. */
const char *allreduce_executor_name(const struct allreduce *ar);

/* Loads the libraries that can run an allreduce on this kind of device, and writes their versions
 * ("NCCL 2.28.9"), or why one cannot be used, or "" if the kind uses none. */
void allreduce_libraries(enum device_kind kind, char *text, size_t bytes);

/* Collective, unless the job has failed: then it does not wait, since a peer may be dead. NULL is
 * fine. */
void allreduce_free(struct allreduce *ar);

#endif
