/* The two collectives that only copy: all-gather and broadcast. SyncBatchNorm uses the first to
 * gather the statistics of all ranks; DDP uses the second to send rank 0's buffers to all. Nothing
 * is added, so elements arrive bit for bit, whatever they mean. Two elements may be one double.
 *
 *     all-gather, 2 ranks, 4 blocks             broadcast
 *     rank 0   [0][ ][2][ ]                     rank 0 [a b c] ---> rank 1, rank 2
 *     rank 1   [ ][1][ ][3]   all: [0][1][2][3]
 *
 * Block b of an all-gather belongs to rank b mod n. Rank r holds the virtual devices r, r + n, ...,
 * so the blocks end up in the order of the virtual devices. Each rank reads the others' blocks in
 * place; no scratch is used.
 *
 * Flags               written by        read by           meaning
 *   ready, epoch 1    a rank that is    each other rank   my blocks are in my data: read them
 *                     read from
 *   done,  epoch 1    each reader       the rank it read  I have read your blocks
 *
 * Early overwriting. A rank leaves when all readers of its data are done, and each rank writes to
 * its own data only. Broadcast does not keep rule 3 of plan.h, because its result depends only on
 * rank 0. It uses no scratch, and the halves of scratch do not alternate at its calls. */
#include <string.h>

#include "allreduce/plans/steps.h"
#include "base/error.h"

static int begin(struct plan *plan, enum collective what, int n, int rank, size_t count) {
    memset(plan, 0, sizeof *plan);
    if (n < 1 || n > MAX_DEVICES || rank < 0 || rank >= n)
        return fail(ERR_USAGE, "%s: rank %d of %d: give a rank of 1 to %d ranks",
                    collective_name(what), rank, n, MAX_DEVICES);
    plan->what = what;
    plan->n = n;
    plan->rank = rank;
    plan->count = plan->data = count;
    plan->epochs = 1;
    return OK;
}

static int end(struct plan *plan) {
    int code = plan->error;
    if (code) plan_free(plan);
    return code;
}

/* The first copy from a peer waits until its blocks are ready; the last one posts that they have
 * been read. */
static void copy_blocks(struct plan *plan, int peer, size_t blocks, size_t block) {
    size_t n = (size_t)plan->n, from = (size_t)peer;
    for (size_t b = from; b < blocks; b += n) {
        struct plan_step copy =
            copy_from(peer, (struct range){b * block, block}, rank_bit(plan->rank));
        if (b == from) await(&copy, rank_bit(peer), PLAN_READY, 1);
        if (b + n >= blocks) post(&copy, rank_bit(peer), PLAN_DONE, 1);
        add_step(plan, copy);
    }
}

int plan_build_all_gather(struct plan *plan, int n, int rank, size_t blocks, size_t block) {
    CHECK(begin(plan, COLLECTIVE_ALL_GATHER, n, rank, blocks * block));
    if (blocks < (size_t)n)
        return fail(ERR_USAGE, "all-gather: %zu blocks over %d ranks: give each rank one", blocks,
                    n);
    if (n == 1 || !block) return OK;
    uint64_t others = rank_others(n, rank);
    add_post(plan, others, PLAN_READY, 1);
    for (int k = 1; k < n; k++) /* starts with the neighbour, so that not all start with rank 0 */
        copy_blocks(plan, (rank + k) % n, blocks, block);
    add_await(plan, others, PLAN_DONE, 1);
    return end(plan);
}

int plan_build_broadcast(struct plan *plan, int n, int rank, size_t count) {
    CHECK(begin(plan, COLLECTIVE_BROADCAST, n, rank, count));
    if (n == 1 || !count) return OK;
    uint64_t others = rank_others(n, 0);
    if (rank == 0) {
        add_post(plan, others, PLAN_READY, 1);
        add_await(plan, others, PLAN_DONE, 1);
        return end(plan);
    }
    struct plan_step copy = copy_from(0, (struct range){0, count}, rank_bit(rank));
    await(&copy, rank_bit(0), PLAN_READY, 1);
    post(&copy, rank_bit(0), PLAN_DONE, 1);
    add_step(plan, copy);
    return end(plan);
}
