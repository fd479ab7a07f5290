/* The object behind allreduce.h, for its three files:
 *
 *     allreduce.c   makes and frees it
 *     memory.c      memory that the ranks share: flags, scratch, registered buffers
 *     enqueue.c     keeps plans and puts calls on a stream
 */
#ifndef ALLREDUCE_STATE_H
#define ALLREDUCE_STATE_H

#include "allreduce/allreduce.h"
#include "allreduce/executor.h"

/* One piece of device memory on each rank, as this rank reaches it: its own pointer, and a mapping
 * of each peer's, NULL if not mapped. */
struct shared {
    float *of[MAX_DEVICES];
};

/* A caller's buffer that allreduce_register has shared. */
struct registration {
    struct shared memory;
    size_t count; /* elements */
    struct registration *next;
};

/* A plan and the sizes of the calls that it serves. Plans are kept until the object is freed. A
 * training run has a handful of counts, so a steady step allocates nothing. */
struct kept_plan {
    enum collective what;
    size_t count, block; /* elements; block is for an all-gather, else 0 */
    struct plan plan;
    void *kept;            /* the executor's own form of the plan */
    uint64_t moved;        /* bytes that this rank's steps move over links */
    struct span_ends ends; /* the devices that these steps read and write */
    struct kept_plan *next;
};

struct allreduce {
    struct allreduce_config config;
    struct comm *comm; /* NULL: a world of one rank */
    struct device *device;
    struct stream *stream; /* the stream of all calls; NULL before the first call */

    const struct executor_kind *kind;
    const struct executor_ops *ops; /* NULL before choose_executor */
    struct executor *executor;      /* NULL before it is opened */
    struct executor_ranks ranks;
    struct allreduce_link link; /* rank 0's figures, so that `auto` chooses alike on all ranks */

    struct shared slab; /* this object's memory: flags, then two halves of scratch */
    struct registration *registrations;
    struct kept_plan *plans;
    uint64_t base;  /* base of the next call's epochs */
    uint64_t calls; /* non-empty calls so far; the parity selects the half of scratch */
};

/* ---- memory.c ---- */

/* Chooses the executor and the figures of the link, once. With one rank it is called directly,
 * otherwise by take_slab, which knows all ranks' memory. */
int choose_executor(struct allreduce *ar, const struct memory_handle *const *handles /* [n] */);

/* Collective: allocates the slab and maps the peers'. A failure leaves nothing behind. */
int take_slab(struct allreduce *ar);

/* Unmaps the peers' parts. No work on them may be pending. */
void unmap_peers(struct allreduce *ar, struct shared *memory);

/* The registered buffer that holds data[0..count), and the offset, in elements; NULL: none. */
const struct registration *find_registration(const struct allreduce *ar, const float *data,
                                             size_t count, size_t *offset);

/* ---- enqueue.c ---- */

void drop_plans(struct allreduce *ar);

#endif
