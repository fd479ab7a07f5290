/* The spin kernel: one launch runs a rank's whole plan and waits for the peers' flags inside the
 * kernel. This file is the kernel's source, compiled for GPUs (spin_kernel.cu) and for the host
 * (tests).
 *
 * Channels. A block of the grid is a channel, and each channel runs the whole plan independently,
 * with its own flags. In every step's range, channel b of every rank moves the granules b, b +
 * channels, b + 2 channels and so on. So channel b exchanges flags only with the peers' channels b,
 * and no two channels touch the same element of DATA or SCRATCH in one call
 * (tests/allreduce/test_channels.c checks it for every plan). The rules of plan.h hold for each
 * channel separately. Blocks need nothing from each other. No barrier spans the grid, and the GPU
 * may run the blocks in any order.
 *
 * A turn is one step of the plan. Thread r < n of a block handles the flags of rank r:
 *
 *     phase 1   posts the previous step to rank r; computes rank r's pointers;
 *               waits for rank r's flag of this step
 *     phase 2   all threads move the channel's part of the step, if any
 *
 * A barrier ends each phase. So a post follows the barrier after the stores of the data, and the
 * first load of the data follows the barrier after the wait:
 *
 *     writer   all threads store | barrier | thread r: st.release.sys of the flag,
 *                                            a fence and then the store into the reader's memory
 *     reader   thread w: ld.relaxed.sys until the epoch is there, then ld.acquire.sys once
 *                                          | barrier | all threads load
 *
 * Release and acquire at system scope, with the barriers between them, order the loads after the
 * stores (PTX memory model, causality order). The acquire also invalidates this multiprocessor's
 * L1, so normal loads get the new data.
 *
 * Epochs grow over all calls. The base of the next call is in device memory (spin_state), where the
 * kernel itself advances it. A launch holds no epoch, so a graph can replay it.
 *
 * A wait that is never satisfied ends too. Every SPIN_POLLS polls the waiting thread checks the
 * clock, the page's `stop`, and whether another channel has failed. The first channel to fail
 * writes the record. Then all channels end, and every later launch ends at once. No thread spins
 * longer than the deadline.
 *
 * The data of a turn are in shared memory, because the acquire has invalidated the L1, so a load
 * from global memory right after it would be slow. */
#ifndef ALLREDUCE_CUDA_SPIN_H
#define ALLREDUCE_CUDA_SPIN_H

#include "allreduce/cuda/flag.h"
#include "allreduce/cuda/step.h"

enum { SPIN_THREADS = 512 };
/* Why a rank's kernels end early: the host stopped them, or a wait passed its deadline. */
enum spin_end { SPIN_FINE, SPIN_STOPPED, SPIN_LATE };

/* A rank's progress. It starts as zero, and only the kernels write it. */
struct spin_state {
    uint64_t base;   /* added to the epochs in the next call's plan */
    uint64_t calls;  /* calls completed; the parity chooses the half of SCRATCH */
    uint32_t done;   /* channels that have completed the current call */
    uint32_t failed; /* enum spin_end */
};

/* One page of the host's pinned memory. Only the host writes `stop`. The other fields are the
 * record of the first failure, written by the channel that set spin_state.failed; `code` is written
 * last. */
struct spin_page {
    uint32_t stop, pad[31];
    uint32_t code; /* SPIN_LATE, or 0: no record */
    int32_t rank, peer, bucket, algorithm, plan_step;
    uint32_t kind, channel;
    int64_t step;
    uint64_t expected, seen; /* epochs of the flag */
};

/* One rank, in its GPU's memory: its progress, and the addresses of all ranks' memory. */
struct spin_rank {
    struct spin_state state;
    int32_t n, rank;
    uint64_t half; /* elements between the two halves of SCRATCH */
    struct spin_page *page;
    struct cuda_flag *flags[MAX_DEVICES];
    float *scratch[MAX_DEVICES];
};

/* A plan in device memory: this head, directly followed by the steps. */
struct spin_plan {
    uint32_t steps, epochs;
    uint64_t pad[7];
};
DUET_HD const struct plan_step *spin_plan_step(const struct spin_plan *plan, uint32_t i) {
    return (const struct plan_step *)(plan + 1) + i;
}

/* The kernel's parameter. Each block is a channel of the rank. */
struct spin_call {
    struct spin_rank *rank;
    const struct spin_plan *plan;
    float *data[MAX_DEVICES]; /* every rank's registered buffer */
    uint64_t offset;          /* elements from data[r] to the start of the call's DATA */
    uint64_t timeout_ns;      /* deadline of each wait */
    uint32_t channels;
    uint32_t skew, aligned; /* see device/cuda/kernels/sum.h; for offsets that 4 divides */
    float scale;
    int32_t bucket, algorithm; /* for the record */
    int64_t step;              /* for the record */
};

/* The shared memory of one block. It holds three steps of the plan: the previous one, whose post is
 * due, the current one, and the next, which is being fetched. Step i is at i % 3. */
struct spin_shared {
    struct spin_rank me; /* the block's copy, taken at the start */
    struct sum sum;
    struct plan_step step[3];
    uint32_t failed[2]; /* by the parity of the turn; one is read while the other is written */
};

/* ---- what one thread does in phase 1; `me` is the block's copy of its rank ---- */

/* Makes the post of step s to rank r, if it has one. */
DUET_HD void spin_post(const struct spin_rank *me, const struct plan_step *s, uint32_t channel,
                       int r) {
    if (s->post_ranks >> r & 1)
        flag_store_release(
            &me->flags[r][cuda_flag_at(me->n, channel, s->post_kind, me->rank)].epoch,
            me->state.base + s->post_epoch);
}

/* The flag of rank r that step s waits for. */
DUET_HD const uint64_t *spin_awaited(const struct spin_rank *me, const struct plan_step *s,
                                     uint32_t channel, int r) {
    return &me->flags[me->rank][cuda_flag_at(me->n, channel, s->wait_kind, r)].epoch;
}

/* Writes rank r's pointers for step s into `sum`. */
DUET_HD void spin_layout(const struct spin_call *c, const struct spin_rank *me,
                         const struct plan_step *s, struct sum *sum, int r) {
    struct step_memory memory;
    memory.data = c->data;
    memory.scratch = me->scratch;
    memory.data_offset = c->offset;
    /* so that SCRATCH has the same skew as DATA */
    memory.scratch_offset = me->state.calls % 2 * me->half + c->skew;
    step_entry(sum, s, &memory, me->n, me->rank, r, c->scale);
    if (r > 0) return;
    sum->skew = c->skew;
    sum->aligned = c->aligned && s->source_offset % 4 == 0 && s->dest_offset % 4 == 0;
}

/* One wait: the step of the plan, the channel, and the rank that it waits for. */
struct spin_waiting {
    const struct plan_step *step;
    uint32_t index; /* index of the step in its plan */
    uint32_t channel;
    int peer;
};

/* Reports a wait that passed its deadline. The rank's first channel to fail writes the record. */
DUET_HD void spin_fail(const struct spin_call *c, const struct spin_rank *me, uint32_t *failed,
                       const struct spin_waiting *w, uint64_t seen) {
    struct spin_page *page = me->page;
    if (u32_store_if_zero(failed, SPIN_LATE) != SPIN_FINE) return;
    page->rank = me->rank;
    page->peer = w->peer;
    page->bucket = c->bucket;
    page->algorithm = c->algorithm;
    page->step = c->step;
    page->plan_step = (int32_t)w->index;
    page->kind = w->step->wait_kind;
    page->channel = w->channel;
    page->expected = me->state.base + w->step->wait_epoch;
    page->seen = seen;
    u32_store_release(&page->code, SPIN_LATE);
}

/* Polls until the flag has reached its epoch (returns 0), or until this rank has failed, in this
 * wait or another (returns 1). `failed` is in device memory, not the block's copy.
 *
 * The relaxed loads see the epoch; the acquire after them orders the loads of the data. Its value
 * must be used, because the assembler drops the load if nothing depends on it. */
DUET_HD int spin_wait(const struct spin_call *c, const struct spin_rank *me, uint32_t *failed,
                      const struct spin_waiting *w) {
    const uint64_t *flag = spin_awaited(me, w->step, w->channel, w->peer);
    uint64_t begun = 0, epoch = me->state.base + w->step->wait_epoch;
    for (uint32_t polls = 1;; polls++) {
        uint64_t seen = flag_load_relaxed(flag);
        if (cuda_flag_reached(seen, epoch) && cuda_flag_reached(flag_load_acquire(flag), epoch))
            return 0;
        if (polls % SPIN_POLLS) continue;
        uint64_t now = spin_now();
        if (!begun) begun = now;
        if (u32_load_relaxed(&me->page->stop)) u32_store_if_zero(failed, SPIN_STOPPED);
        if (now - begun >= c->timeout_ns) spin_fail(c, me, failed, w, seen);
        if (u32_load_relaxed(failed)) return 1;
        spin_pause();
    }
}

/* ---- the kernel ---- */

enum { STEP_WORDS = sizeof(struct plan_step) / 4, RANK_WORDS = sizeof(struct spin_rank) / 4 };

DUET_HD void spin_fetch(void *to, const void *from, uint32_t word) {
    ((uint32_t *)to)[word] = ((const uint32_t *)from)[word];
}

/* Copies the rank and step 0 into the block. Only `failed` in the rank's state may change
 * meanwhile; the rest changes when all channels have reached spin_leave. */
DUET_HD void spin_enter(struct spin_rank *rank, const struct spin_plan *plan,
                        struct spin_shared *shared, struct thread_index at) {
    for (uint32_t word = at.thread; word < RANK_WORDS; word += at.threads)
        if (word >= sizeof(struct spin_state) / 4) spin_fetch(&shared->me, rank, word);
    for (uint32_t word = at.thread; word < STEP_WORDS && plan->steps > 0; word += at.threads)
        spin_fetch(&shared->step[0], spin_plan_step(plan, 0), word);
    if (at.thread != 0) return;
    shared->me.state.base = rank->state.base;
    shared->me.state.calls = rank->state.calls;
    shared->failed[0] = shared->failed[1] = u32_load_relaxed(&rank->state.failed);
}

/* Makes the posts of turn i, the first half of phase 1. The last turn, `steps`, only posts. */
DUET_HD void spin_post_all(struct spin_shared *shared, uint32_t i, uint32_t channel,
                           struct thread_index at) {
    const struct spin_rank *me = &shared->me;
    for (uint32_t r = at.thread; r < (uint32_t)me->n && i > 0; r += at.threads)
        spin_post(me, &shared->step[(i + 2) % 3], channel, (int)r);
}

/* Sets the pointers and waits for turn i, the second half of phase 1. Threads at the other end of
 * the block, in a different warp, fetch the next step meanwhile. */
DUET_HD void spin_wait_all(const struct spin_call *c, struct spin_rank *rank,
                           const struct spin_plan *plan, struct spin_shared *shared, uint32_t steps,
                           uint32_t i, uint32_t channel, struct thread_index at) {
    const struct spin_rank *me = &shared->me;
    const struct plan_step *step = &shared->step[i % 3];
    for (uint32_t r = at.thread; r < (uint32_t)me->n && i < steps; r += at.threads) {
        spin_layout(c, me, step, &shared->sum, (int)r);
        struct spin_waiting w = {step, i, channel, (int)r};
        if (step->wait_ranks >> r & 1 && spin_wait(c, me, &rank->state.failed, &w))
            shared->failed[i % 2] = 1;
    }
    for (uint32_t word = at.threads - 1 - at.thread; word < STEP_WORDS && i + 1 < steps;
         word += at.threads)
        spin_fetch(&shared->step[(i + 1) % 3], spin_plan_step(plan, i + 1), word);
}

/* The last channel to complete the call advances the rank's state. */
DUET_HD void spin_leave(struct spin_state *state, const struct spin_plan *plan, uint32_t channels) {
    if (u32_add(&state->done, 1) + 1 < channels) return;
    state->done = 0;
    state->base += plan->epochs;
    state->calls++;
}

/* Half a phase, without a barrier after it: threads that run in parallel do not wait here for each
 * other. Threads that run one after another must all have posted before the first one waits, so for
 * them it is a whole phase. */
#ifdef BLOCK_BARRIER
#define BLOCK_PART(at)
#else
#define BLOCK_PART(at) BLOCK_PHASE(at)
#endif

DUET_BLOCK void k_spin(const struct spin_call *c, struct spin_shared *shared,
                       struct thread_index at) {
    struct spin_rank *rank = c->rank;
    const struct spin_plan *plan = c->plan;
    const struct sum_part part = {at.block, c->channels};
    const uint32_t steps = plan->steps;
    BLOCK_PHASE(at) {
        spin_enter(rank, plan, shared, at);
    }
    /* Turn 0 reads failed[1], which earlier launches left, because a faster thread may already be
     * writing failed[0]. */
    for (uint32_t i = 0; i <= steps && !shared->failed[(i + 1) % 2]; i++) {
        BLOCK_PART(at) {
            spin_post_all(shared, i, part.part, at);
        }
        BLOCK_PHASE(at) {
            spin_wait_all(c, rank, plan, shared, steps, i, part.part, at);
        }
        if (shared->failed[i % 2]) break;
        if (i == steps || shared->step[i % 3].length == 0) continue;
        BLOCK_PHASE(at) {
            struct thread_index alone = {0, 1, at.thread, at.threads};
            sum_run(&shared->sum, part, alone);
        }
    }
    BLOCK_PHASE(at) {
        if (at.thread == 0) spin_leave(&rank->state, plan, c->channels);
    }
}

/* ---- for the host ---- */

/* The number of channels in a call of `count` elements, the same on all ranks. Each gets at least
 * about 8 granules of the whole, so that even a ring's slices give every channel work, and a small
 * call needs few flags. */
static inline uint32_t spin_channels(size_t count) {
    size_t wanted = (count + 8 * SUM_GRANULE_ELEMENTS - 1) / (8 * SUM_GRANULE_ELEMENTS);
    return wanted < 1 ? 1 : wanted > CUDA_CHANNELS ? (uint32_t)CUDA_CHANNELS : (uint32_t)wanted;
}

/* Sets skew and aligned. All ranks must cut alike, so all take the skew of rank 0's buffer, whose
 * address modulo 16 is the same in every process that maps it. */
static inline void spin_align(struct spin_call *c, int n, float *const *scratch, uint64_t half) {
    uint32_t agree = half % 4 == 0;
    c->skew = (uint32_t)(((uintptr_t)c->data[0] / sizeof(float) + c->offset) % 4);
    for (int r = 0; r < n; r++)
        agree &= (uintptr_t)(c->data[r] + c->offset - c->skew) % 16 == 0 &&
                 (uintptr_t)scratch[r] % 16 == 0;
    c->aligned = agree;
}

#endif
