/* The plans of process groups: every collective of torch.distributed.
 *
 * A tensor of a process group is in memory that only its own rank can reach. So a call reads
 * INPUT and writes OUTPUT, and between them the elements pass through memory that all ranks share.
 * This memory is made once: each rank's window (the plan's DATA), and for messages from one rank to
 * one other a mailbox (in the plan's SCRATCH).
 *
 *     INPUT  --->  own window  --->  flags  --->  others read it  --->  their OUTPUT
 *
 * A short call goes through slots instead. Each rank has many, so nobody waits until a slot is read
 * (plans/slots.c).
 *
 * A window is small enough to stay in a cache, so the way through it costs little; what is longer
 * goes through it piece by piece. INPUT and OUTPUT may be the same memory.
 *
 *     what              INPUT of each rank      OUTPUT of each rank
 *     an allreduce      count                   count: the sum over all ranks
 *     BARRIER           nothing                 nothing
 *     BROADCAST         root: count             others: root's
 *     REDUCE            count                   root: the sum
 *     ALL_GATHER        count                   n blocks: block r is rank r's
 *     GATHER            count                   root: n blocks
 *     SCATTER           root: n blocks          block `rank` of root's
 *     REDUCE_SCATTER    n blocks                the sum of all ranks' blocks `rank`
 *     ALL_TO_ALL        n blocks                n blocks: block r is rank r's block `rank`
 *     SEND              root: count             rank `peer`: root's; the others take no part
 *
 * "Sum" stands for the call's operation, in fold order (base/fold.h) for all algorithms except ring
 * and tree. */
#ifndef GROUP_PLANS_WINDOWS_H
#define GROUP_PLANS_WINDOWS_H

#include "allreduce/plan.h"

/* Pieces of one mailbox. A sender waits for the receiver only when all of them are full. */
enum { MAILBOX_PIECES = 4 };

struct window_request {
    enum collective what;
    enum allreduce_algorithm algorithm; /* of an all-reduce: one that has a plan */
    int n, rank;
    int root;      /* of BROADCAST, REDUCE, GATHER, SCATTER; SEND: the rank that sends */
    int peer;      /* SEND: the rank that receives */
    size_t count;  /* elements of one block; of an allreduce at most `window` */
    size_t stride; /* elements from one block of INPUT or OUTPUT to the next, at least count */
    size_t window; /* elements of a window; of SEND: of one mailbox, which `scratch` holds n of */
    size_t first;  /* SEND: pieces that this sender has sent to this receiver before */
    size_t head;   /* SEND: elements of each place of a mailbox before those of its piece */
    /* Not 0: an eager call, through slots (plans/slots.c), of half so many as each rank has. `what`
     * is then no SEND, and an all-reduce is oneshot; `window` counts the elements of a slot,
     * which hold the call's INPUT of a rank; stride is count. */
    uint32_t slots;
    int turn; /* eager calls: 1: the first call in one half of the slots */
    /* NULL: all blocks have `count` elements, `stride` apart. Else the blocks of SCATTER, GATHER,
     * ALL_GATHER, ALL_TO_ALL and REDUCE_SCATTER have their own lengths: sizes[from * n + to]
     * elements go from rank `from` to rank `to`. They are behind each other without gaps, in the
     * order of ranks; INPUT and OUTPUT are different memory; count and stride play no part. A
     * rank that shows one block to all has one size for all of them, and the terms of a sum have
     * one size. Only plan_build_window reads it. */
    const size_t *sizes;
    struct plan_config config; /* of an allreduce: its scratch; of all others: align */
};

/* Builds the list of request->rank; plan_free releases it. All ranks give the same request. A
 * barrier has elements to wait for though count is 0; a message of no elements is one empty piece;
 * in all other cases a count of 0 gives no steps. The caller has checked it. ERR_MEMORY. */
int plan_build_window(struct plan *plan, const struct window_request *request);

/* The largest count for one plan: longer calls use several, which keeps plans short. */
size_t window_longest(const struct window_request *request);

/* About the elements of INPUT and OUTPUT of all ranks together: a root's are counted like the
 * others'. */
size_t window_touched(const struct window_request *request);

/* The collective's name in messages, as in PyTorch: "ALLREDUCE". Static storage. */
const char *window_name(enum collective what);

#endif
