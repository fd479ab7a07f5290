/* The spin kernel: one launch runs a rank's whole plan, waiting inside the kernel for the peers'
 * words.
 *
 * Channels. The grid's blocks are channels, and a plan is run by each of them as if it were
 * alone: channel b of every rank moves, of each step, the granules number b, b + channels, .. of
 * the step's range, and has flags of its own. So channel b talks to channels b alone, and no
 * element of DATA or SCRATCH is touched by two channels in a call
 * (tests/allreduce/test_channels.c proves it for every plan). What plan.h says of a plan holds
 * for each channel by itself, and blocks need nothing from each other: no barrier over the grid,
 * and any order in which the GPU runs them will do.
 *
 * A turn. Of the threads of a block, thread r < n speaks to rank r:
 *
 *     phase 1   posts what the step before has done, to r;  lays out r's pointers;  waits for r's word of this step
 *     phase 2   all threads move the channel's part of the step
 *
 * with a barrier behind each (and no phase 2 where a step only waits or posts). So a post stands
 * behind a barrier behind the data, and the data's first load behind a barrier behind the wait:
 *
 *     writer   all stores ... barrier ... thread r: st.release.sys (a fence, then the word, into the reader's memory)
 *     reader   thread w: ld.relaxed.sys until it is there, ld.acquire.sys once ... barrier ... all loads
 *
 * Release and acquire at the width of the system, the barriers in between: the loads see the
 * stores (PTX memory model, causality order). The acquire also empties this multiprocessor's L1,
 * so plain loads read what is true now.
 *
 * Epochs grow over all calls. Where they stand lies in device memory (spin_state) and is moved
 * by the kernel itself, so a launch has no number in it that would be old when it is replayed
 * from a graph.
 *
 * The end of a wait that nobody answers: every SPIN_POLLS polls the waiting thread looks at the
 * clock, at the stop word on a page of the host, and at whether another channel has failed. The
 * first to fail writes the record; all channels then end, and so does every later launch, at
 * once. Nothing spins longer than the deadline.
 *
 * What a turn needs lies in shared memory: the acquire of a turn makes the next load from global
 * memory a slow one. */
#ifndef ALLREDUCE_CUDA_SPIN_H
#define ALLREDUCE_CUDA_SPIN_H

#include "allreduce/cuda/step.h"
#include "allreduce/cuda/words.h"

enum { SPIN_THREADS = 512 };
enum spin_end { SPIN_FINE, SPIN_STOPPED, SPIN_LATE }; /* why a rank's kernels end early */

/* Where a rank stands: 0 at first, then the kernels' own. */
struct spin_state {
    uint64_t base;    /* of the next call's epochs */
    uint64_t calls;   /* whose parity chooses the half of SCRATCH */
    uint32_t through; /* channels of the present call that are done */
    uint32_t failed;  /* enum spin_end */
};

/* Pinned memory of the host. `stop` has one writer, the host. The record is written once, by the
 * channel that made `failed` what it is; `code` last. */
struct spin_page {
    uint32_t stop, pad[31];
    uint32_t code; /* SPIN_LATE, or 0: no record */
    int32_t rank, peer, bucket, algorithm, plan_step;
    uint32_t kind, channel;
    int64_t step;
    uint64_t expected, seen; /* epochs */
};

/* One rank, in its GPU's memory: where it stands, and what it sees of all. */
struct spin_rank {
    struct spin_state state;
    int32_t n, rank;
    uint64_t half; /* elements between the halves of SCRATCH */
    struct spin_page *page;
    struct cuda_flag *flags[MAX_DEVICES];
    float *scratch[MAX_DEVICES];
};

/* A plan in device memory: this, and behind it the steps. */
struct spin_plan {
    uint32_t steps, epochs;
    uint64_t pad[7];
};
DUET_HD const struct plan_step *spin_plan_step(const struct spin_plan *plan, uint32_t i) {
    return (const struct plan_step *)(plan + 1) + i;
}

/* The kernel's parameter. The grid stands for `blocks / channels` ranks of one process: mode A
 * has one. */
struct spin_call {
    struct spin_rank *ranks; /* one for each rank of the grid; */
    const char *plans;       /* and their plans, plan_bytes apart */
    uint64_t plan_bytes;
    float *data[MAX_DEVICES]; /* every rank's buffer */
    uint64_t offset;          /* where the call's data begins in it */
    uint64_t timeout_ns;      /* of every single wait */
    uint32_t channels;
    uint32_t skew, aligned; /* device/cuda/kernels/sum.h, for offsets that are multiples of 4 */
    float scale;
    int32_t bucket, algorithm; /* for the record */
    int64_t step;
};

/* Of one block. Three steps: the one before (its post), the present one, and the next, which is
 * fetched meanwhile. */
struct spin_shared {
    struct spin_rank me; /* as it was at the start */
    struct sum sum;
    struct plan_step step[3];
    uint32_t failed[2]; /* by the turn's parity: one is read while the next is written */
};

/* ---- what one thread does in phase 1; `me` is the block's copy ---- */

/* The post of step s to rank r. */
DUET_HD void spin_post(const struct spin_rank *me, const struct plan_step *s, uint32_t channel,
                       int r) {
    if (s->post_ranks >> r & 1)
        word_release(&me->flags[r][cuda_flag_at(me->n, channel, s->post_kind, me->rank)].epoch,
                     me->state.base + s->post_epoch);
}

/* The word that step s waits for from rank r. */
DUET_HD const uint64_t *spin_awaited(const struct spin_rank *me, const struct plan_step *s,
                                     uint32_t channel, int r) {
    return &me->flags[me->rank][cuda_flag_at(me->n, channel, s->wait_kind, r)].epoch;
}

/* Rank r's pointers for step s. */
DUET_HD void spin_layout(const struct spin_call *c, const struct spin_rank *me,
                         const struct plan_step *s, struct sum *sum, int r) {
    struct step_memory memory;
    memory.data = c->data;
    memory.scratch = me->scratch;
    memory.data_offset = c->offset;
    /* lies to 16 bytes as DATA does */
    memory.scratch_offset = me->state.calls % 2 * me->half + c->skew;
    step_entry(sum, s, &memory, me->n, me->rank, r, c->scale);
    if (r > 0) return;
    sum->skew = c->skew;
    sum->aligned = c->aligned && s->source_offset % 4 == 0 && s->dest_offset % 4 == 0;
}

/* A wait: by which channel, of which step of the plan, for which rank. */
struct spin_waiting {
    const struct plan_step *step;
    uint32_t index, channel;
    int peer;
};

/* The first to fail leaves the record. */
DUET_HD void spin_fail(const struct spin_call *c, const struct spin_rank *me, uint32_t *failed,
                       const struct spin_waiting *w, uint64_t seen) {
    struct spin_page *page = me->page;
    if (half_word_take(failed, SPIN_LATE) != SPIN_FINE) return;
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
    half_word_release(&page->code, SPIN_LATE);
}

/* Polls until the word is there: 0; or until this rank has failed, by this wait or another: 1.
 * `failed` is the rank's own word, not the block's copy of it. */
DUET_HD int spin_wait(const struct spin_call *c, const struct spin_rank *me, uint32_t *failed,
                      const struct spin_waiting *w) {
    const uint64_t *word = spin_awaited(me, w->step, w->channel, w->peer);
    uint64_t begun = 0, epoch = me->state.base + w->step->wait_epoch;
    for (uint32_t polls = 1;; polls++) {
        uint64_t seen = word_relaxed(word);
        if (cuda_flag_reached(seen, epoch)) {
            word_acquire(word); /* the same or a later epoch: words only grow */
            return 0;
        }
        if (polls % SPIN_POLLS) continue;
        uint64_t now = spin_now();
        if (!begun) begun = now;
        if (half_word_relaxed(&me->page->stop)) half_word_take(failed, SPIN_STOPPED);
        if (now - begun >= c->timeout_ns) spin_fail(c, me, failed, w, seen);
        if (half_word_relaxed(failed)) return 1;
        spin_pause();
    }
}

/* ---- the kernel ---- */

enum { STEP_WORDS = sizeof(struct plan_step) / 4, RANK_WORDS = sizeof(struct spin_rank) / 4 };

DUET_HD void spin_fetch(void *to, const void *from, uint32_t word) {
    ((uint32_t *)to)[word] = ((const uint32_t *)from)[word];
}

/* The block's copies; nobody changes the rank's state before all channels have been here
 * (spin_leave), but `failed`. */
DUET_HD void spin_enter(struct spin_rank *rank, const struct spin_plan *plan,
                        struct spin_shared *shared, struct place at) {
    for (uint32_t word = at.thread; word < RANK_WORDS; word += at.threads)
        if (word >= sizeof(struct spin_state) / 4) spin_fetch(&shared->me, rank, word);
    for (uint32_t word = at.thread; word < STEP_WORDS && plan->steps > 0; word += at.threads)
        spin_fetch(&shared->step[0], spin_plan_step(plan, 0), word);
    if (at.thread != 0) return;
    shared->me.state.base = rank->state.base;
    shared->me.state.calls = rank->state.calls;
    shared->failed[0] = shared->failed[1] = half_word_relaxed(&rank->state.failed);
}

/* Phase 1 of turn i, in two halves; turn `steps` is the last and only posts. */
DUET_HD void spin_say(struct spin_shared *shared, uint32_t i, uint32_t channel, struct place at) {
    const struct spin_rank *me = &shared->me;
    for (uint32_t r = at.thread; r < (uint32_t)me->n && i > 0; r += at.threads)
        spin_post(me, &shared->step[(i + 2) % 3], channel, (int)r);
}

/* Threads from the other end of the block, another warp than the ranks', fetch the next step
 * meanwhile. */
DUET_HD void spin_hear(const struct spin_call *c, struct spin_rank *rank,
                       const struct spin_plan *plan, struct spin_shared *shared, uint32_t steps,
                       uint32_t i, uint32_t channel, struct place at) {
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

/* The last channel that is through moves the state on. */
DUET_HD void spin_leave(struct spin_state *state, const struct spin_plan *plan, uint32_t channels) {
    if (half_word_add(&state->through, 1) + 1 < channels) return;
    state->through = 0;
    state->base += plan->epochs;
    state->calls++;
}

/* Without a barrier: no thread stays in the first half for another. Where threads run one after
 * another all of them must have spoken before the first one listens. */
#ifdef BLOCK_BARRIER
#define BLOCK_PART(at)
#else
#define BLOCK_PART(at) BLOCK_PHASE(at)
#endif

DUET_BLOCK void k_spin(const struct spin_call *c, struct spin_shared *shared, struct place at) {
    uint32_t standing = at.block / c->channels; /* for which rank of the grid */
    struct spin_rank *rank = &c->ranks[standing];
    const struct spin_plan *plan = (const struct spin_plan *)(c->plans + standing * c->plan_bytes);
    const struct sum_part part = {at.block % c->channels, c->channels};
    const uint32_t steps = plan->steps;
    BLOCK_PHASE(at) {
        spin_enter(rank, plan, shared, at);
    }
    /* failed[1] tells of launches before: turn 0 may already be writing failed[0]. */
    for (uint32_t i = 0; i <= steps && !shared->failed[(i + 1) % 2]; i++) {
        BLOCK_PART(at) {
            spin_say(shared, i, part.part, at);
        }
        BLOCK_PHASE(at) {
            spin_hear(c, rank, plan, shared, steps, i, part.part, at);
        }
        if (shared->failed[i % 2]) break;
        if (i == steps || shared->step[i % 3].length == 0) continue;
        BLOCK_PHASE(at) {
            struct place alone = {0, 1, at.thread, at.threads};
            sum_run(&shared->sum, part, alone);
        }
    }
    BLOCK_PHASE(at) {
        if (at.thread == 0) spin_leave(&rank->state, plan, c->channels);
    }
}

/* ---- for the host ---- */

/* Channels of a call: some 8 granules of the whole for each, so that even a ring's slices give
 * every channel some work and small calls have few words to say. Alike on all ranks. */
static inline uint32_t spin_channels(size_t count) {
    size_t wanted = (count + 8 * SUM_GRANULE_ELEMENTS - 1) / (8 * SUM_GRANULE_ELEMENTS);
    return wanted < 1 ? 1 : wanted > CUDA_CHANNELS ? (uint32_t)CUDA_CHANNELS : (uint32_t)wanted;
}

/* skew and aligned. Rank 0's buffer lies to 16 bytes alike in every process that maps it, so all
 * ranks take one skew, and cut alike. */
static inline void spin_align(struct spin_call *c, int n, float *const *scratch, uint64_t half) {
    uint32_t agree = half % 4 == 0;
    c->skew = (uint32_t)(((uintptr_t)c->data[0] / sizeof(float) + c->offset) % 4);
    for (int r = 0; r < n; r++)
        agree &= (uintptr_t)(c->data[r] + c->offset - c->skew) % 16 == 0 &&
                 (uintptr_t)scratch[r] % 16 == 0;
    c->aligned = agree;
}

#endif
