/* The plans of process groups: every collective of torch.distributed.
 *
 * A tensor of a process group is in memory that only its own rank can reach. So a call reads INPUT
 * and writes OUTPUT, and in between the elements pass through memory that all ranks share. This
 * memory is made once. Each rank has a window (the plan's DATA), and for messages to each other
 * rank a mailbox (in the plan's SCRATCH).
 *
 *     INPUT  --->  own window  --->  flags  --->  others read it  --->  their OUTPUT
 *
 * A short call goes through slots instead. Each rank has many, so no rank waits until a slot is
 * read (plans/slots.c).
 *
 * A window is small enough to stay in a cache, so it costs little; longer blocks go through it
 * piece by piece. INPUT and OUTPUT may be the same memory.
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

/* Pieces in one mailbox. A sender waits for the receiver only when all of them are full. */
enum { MAILBOX_PIECES = 4 };

struct window_request {
    enum collective what;
    enum allreduce_algorithm algorithm; /* for an all-reduce: an algorithm that has a plan */
    int n, rank;
    int root;      /* for BROADCAST, REDUCE, GATHER, SCATTER; SEND: the sender */
    int peer;      /* SEND: the receiver */
    size_t count;  /* elements in one block; for an allreduce at most `window` */
    size_t stride; /* elements from one block of INPUT or OUTPUT to the next, at least count */
    size_t window; /* elements in a window; SEND: in one of the n mailboxes of `scratch` */
    size_t first;  /* SEND: pieces that this sender has already sent to this receiver */
    size_t head;   /* SEND: elements before the piece in each slot of a mailbox */
    /* Not 0: an eager call, through slots (plans/slots.c); the value is half the number of a rank's
     * slots. `what` is then not SEND, and an all-reduce is oneshot. `window` is the number of
     * elements in a slot, which holds a rank's INPUT; stride is count. */
    uint32_t slots;
    int turn; /* eager calls: 1: the first call in a half of the slots */
    /* NULL: all blocks have `count` elements, `stride` apart. Otherwise the blocks of SCATTER,
     * GATHER, ALL_GATHER, ALL_TO_ALL and REDUCE_SCATTER differ in length: sizes[from * n + to]
     * elements go from rank `from` to rank `to`. They are contiguous, in the order of ranks. INPUT
     * and OUTPUT are different memory; count and stride are ignored. A rank that shows one block to
     * all has the same size for each, and the terms of a sum have one size. Only plan_build_window
     * reads this. */
    const size_t *sizes;
    struct plan_config config; /* an all-reduce uses its scratch, all others only align */
};

/* Builds the list of steps of request->rank; plan_free releases it. All ranks pass the same
 * request, which the caller has checked. A barrier has steps although its count is 0, and a message
 * of no elements is one empty piece. In all other cases a count of 0 makes no steps. ERR_MEMORY. */
int plan_build_window(struct plan *plan, const struct window_request *request);

/* The largest count for one plan. Longer calls use several plans, which keeps plans short. */
size_t window_longest(const struct window_request *request);

/* Roughly the number of elements in INPUT and OUTPUT of all ranks; a root counts like any other
 * rank. */
size_t window_touched(const struct window_request *request);

/* The collective's name in error messages, as in PyTorch: "ALLREDUCE". Static storage. */
const char *window_name(enum collective what);

#endif
