/* Allreduce for the ranks of a job: afterwards every rank's buffer holds the sum over all ranks,
 * in place.
 *
 *     plan.h           what each rank does, as integers: naive.c oneshot.c direct.c ring.c tree.c
 *     select.h         which algorithm is quickest for this size
 *     executor.h       the ways to run a plan: host/executor.h on emulated devices, cuda_*.c on GPUs
 *     allreduce.h      what DDP calls: memory shared between ranks, calls put on a stream
 *
 * Each rank holds one slab of device memory, flags and scratch (cause "comm"), and registers the
 * buffers it wants summed. Both are exported to all other ranks and mapped by them; a call then
 * loads from and stores to them directly.
 *
 * Collective functions (init, register, unregister, free, and every call) must be made by all
 * ranks in the same order with the same counts, places in the buffer, scales. Calls go on one
 * stream, a device's communication stream; the object is used by one thread at a time. */
#ifndef ALLREDUCE_ALLREDUCE_H
#define ALLREDUCE_ALLREDUCE_H

#include "allreduce/plan.h"
#include "allreduce/select.h"
#include "comm/comm.h"
#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct allreduce;

struct allreduce_config {
    enum allreduce_algorithm algorithm; /* AUTO: allreduce_choose for each count */
    /* AUTO over 3 or more ranks: 1 = ring and tree too, whose bits differ from the others' */
    int any_order;
    struct plan_config plan; /* how data is cut */
};
struct allreduce_config allreduce_config_default(void); /* AUTO, 0, plan_config_default() */

/* Collective. Takes the slab and maps the peers'. comm NULL: a world of one rank. comm and
 * device stay the caller's and must outlive the object. config NULL: defaults. ERR_USAGE: the
 * ranks ask for different things; ERR_MEMORY. */
int allreduce_init(struct allreduce **out, struct comm *comm, struct device *device,
                   const struct allreduce_config *config);

/* Collective. Shares data[0..count) with all ranks (the same count on each) until unregister or
 * free; before the memory itself is freed. A gradient arena is registered once, whatever buckets
 * are cut from it. */
int allreduce_register(struct allreduce *ar, float *data, size_t count);

/* Collective. Waits for the stream first; afterwards no rank touches the memory any more. */
int allreduce_unregister(struct allreduce *ar, float *data);

/* Enqueues: data[i] = sum over ranks of (data[i] of the rank * scale), i < count; each product
 * is rounded before it is added, as PyTorch's DDP does with scale = 1/n. data[0..count) lies in
 * a registered buffer, at the same place on each rank. Asynchronous: data may be touched again
 * behind an event. count 0: nothing. `bucket` and `step` name the call in its span ("allreduce
 * bucket 1", phase allreduce; -1: left out) and in errors. Allocates only at a count not seen
 * before. Failures of a peer come out of the stream: ERR_PEER, ERR_TIMEOUT, naming rank, bucket,
 * step and peer. */
int allreduce_enqueue(struct allreduce *ar, struct stream *stream, float *data, size_t count,
                      float scale, int bucket, long step);

/* The algorithm a call of `count` elements takes, and why, in one line of text (NULL: not
 * wanted). */
enum allreduce_algorithm allreduce_algorithm_for(const struct allreduce *ar, size_t count,
                                                 char *text, size_t text_bytes);

/* How calls run here, for people: "host", "stepwise", "spin" (executor.h); and whether ranks
 * share one GPU. */
const char *allreduce_executor_name(const struct allreduce *ar);
int allreduce_shares_device(const struct allreduce *ar);

/* The libraries that may run an allreduce on this kind of device, with their versions, or why
 * one cannot be: "NCCL 2.28.9". "" where there are none. Loads them. */
void allreduce_libraries(enum device_kind kind, char *text, size_t bytes);

/* After a failure of the job (a code from comm_check, a sync or a call): work of this rank that
 * waits for a peer on its own streams goes on at once, so that the streams run empty and the
 * process can end; the sums are worth nothing. Waits for that a second or two at most. Returns 1
 * if nothing of this object is under way any more. No call after it but allreduce_free, which
 * does the same where the job has failed. NULL is fine. */
int allreduce_release(struct allreduce *ar);

/* Collective, unless the job has failed: then it waits for nobody, as the others may be dead.
 * NULL is fine. */
void allreduce_free(struct allreduce *ar);

#ifdef __cplusplus
}
#endif
#endif
