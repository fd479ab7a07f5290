/* The channels of the spin kernel (allreduce/cuda/spin.h), on the host. For every plan they never
 * share an element, and they need nothing from each other: one thread runs all ranks and all
 * channels, advances them at random through several calls, and gets the reference's bits. It calls
 * the kernel's own functions, except its loops. */
#include "tests/allreduce/world.h"

/* ---- no element has two channels ---- */

enum { FREE = 255 };

struct owners {
    /* [rank][buffer]: the channel that touches the element, or FREE */
    unsigned char *of[MAX_DEVICES][2];
    size_t size[2];
};

static void claim(struct owners *o, const struct plan *plan, int i, int buffer, int rank,
                  uint64_t offset, uint32_t parts, uint32_t skew) {
    const struct plan_step *s = &plan->steps[i];
    cr_assert(offset + s->length <= o->size[buffer]);
    for (uint64_t x = 0; x < s->length; x++) {
        unsigned char *owner = &o->of[rank][buffer][offset + x],
                      channel = (unsigned char)sum_part_of(parts, skew, x);
        cr_assert(*owner == FREE || *owner == channel,
                  "%s, %d ranks, %zu elements, %u channels, skew %u: rank %d, step %d: element "
                  "%llu of rank %d's %s "
                  "belongs to channels %d and %d",
                  allreduce_algorithm_name(plan->algorithm), plan->n, plan->count, parts, skew,
                  plan->rank, i, (unsigned long long)(offset + x), rank,
                  buffer == PLAN_DATA ? "data" : "scratch", *owner, channel);
        *owner = channel;
    }
}

static void check_plans(enum allreduce_algorithm algorithm, int n, size_t count,
                        const struct plan_config *config, uint32_t parts, uint32_t skew) {
    struct owners o = {.size = {count, config->scratch}};
    for (int r = 0; r < n; r++)
        for (int b = 0; b < 2; b++) {
            o.of[r][b] = malloc(o.size[b] + 1);
            cr_assert_not_null(o.of[r][b]);
            memset(o.of[r][b], FREE, o.size[b]);
        }
    for (int r = 0; r < n; r++) {
        struct plan plan;
        cr_assert_eq(plan_build(&plan, algorithm, n, r, count, config), OK, "%s", error_message());
        for (int i = 0; i < plan.step_count; i++) {
            const struct plan_step *s = &plan.steps[i];
            for (int k = 0; k < n && s->length > 0; k++) {
                if (s->op == PLAN_SUM || k == s->source_rank)
                    claim(&o, &plan, i, s->source_buffer, k, s->source_offset, parts, skew);
                if (s->dest_ranks >> k & 1)
                    claim(&o, &plan, i, s->dest_buffer, k, s->dest_offset, parts, skew);
            }
        }
        plan_free(&plan);
    }
    for (int r = 0; r < n; r++)
        for (int b = 0; b < 2; b++)
            free(o.of[r][b]);
}

Test(channels, no_element_has_two, .timeout = 240) {
    static const size_t counts[] = {1, 2, 1023, 1025, 8193, 33333};
    for (int n = 1; n <= 9; n++)
        for (int a = 0; a < ALGORITHMS; a++)
            for (int g = 0; g < CONFIGS; g++)
                for (int c = 0; c < 6; c++) {
                    uint32_t skew = (uint32_t)(c + n) % 4;
                    if (test_short() && c % 2) continue;
                    check_plans(algorithms[a], n, counts[c], &configs[g], spin_channels(counts[c]),
                                skew);
                    check_plans(algorithms[a], n, counts[c], &configs[g], 7, skew);
                    check_plans(algorithms[a], n, counts[c], &configs[g], CUDA_CHANNELS, 0);
                }
}

Test(channels, no_element_has_two_in_large_calls, .timeout = 240) {
    static const int ranks[] = {2, 5, 8};
    size_t count = test_short() ? 300001 : 700001;
    for (int i = 0; i < 3; i++)
        for (int a = 0; a < ALGORITHMS; a++)
            check_plans(algorithms[a], ranks[i], count, &configs[i == 1 ? 2 : 0],
                        spin_channels(count), 1);
}

/* ---- any order of channels gives the same bits ---- */

/* One block of one rank's kernel. */
struct channel {
    struct spin_shared shared;
    uint32_t step; /* step of the plan */
};

struct progress {
    struct channel blocks[MOST_RANKS][CUDA_CHANNELS];
    /* the rank's current kernel, and its unfinished blocks */
    int call[MOST_RANKS], running[MOST_RANKS];
};

/* A kernel starts: its stream has reached it. Every block takes its copies, as spin_enter does. */
static void start_kernel(struct world *w, struct progress *p, int r) {
    for (size_t i = 0; i < w->count; i++)
        w->data[r][w->offset + i] += term(p->call[r], r, i);
    p->running[r] = (int)w->channels;
    for (uint32_t b = 0; b < w->channels; b++) {
        p->blocks[r][b].step = 0;
        p->blocks[r][b].shared.me = w->ranks[r];
    }
}

static void end_block(struct world *w, struct progress *p, int r) {
    struct spin_plan plan = {.epochs = w->plans[p->call[r]][r].epochs};
    spin_leave(&w->ranks[r].state, &plan, w->channels);
    if (--p->running[r] > 0) return;
    if (++p->call[r] < CALLS) start_kernel(w, p, r);
}

/* Runs one turn of block b of rank r and returns 1, if the flags that it awaits have come. Whether
 * the data or the post comes first is the kernel's order. */
static int try_block(struct world *w, struct progress *p, int r, uint32_t b) {
    if (p->call[r] == CALLS) return 0;
    struct channel *block = &p->blocks[r][b];
    const struct plan *plan = &w->plans[p->call[r]][r];
    const struct spin_call *c = &w->calls[p->call[r]];
    const struct spin_rank *me = &block->shared.me;
    if (block->step == (uint32_t)plan->step_count) return 0;
    const struct plan_step *s = &plan->steps[block->step];
    for (int peer = 0; peer < w->n; peer++)
        if (s->wait_ranks >> peer & 1 &&
            !cuda_flag_reached(flag_load_acquire(spin_awaited(me, s, b, peer)),
                               me->state.base + s->wait_epoch))
            return 0;
    for (int peer = 0; peer < w->n; peer++)
        spin_layout(c, me, s, &block->shared.sum, peer);
    struct sum_part part = {b, w->channels};
    for (uint32_t t = 0; t < 64 && s->length > 0; t++)
        sum_run(&block->shared.sum, part, (struct thread_index){0, 1, t, 64});
    for (int peer = 0; peer < w->n; peer++)
        spin_post(me, s, b, peer);
    if (++block->step == (uint32_t)plan->step_count) end_block(w, p, r);
    return 1;
}

/* Runs until all calls of all ranks are done. If nobody can move: a deadlock. */
static void run_world(struct world *w, struct progress *p) {
    for (int idle = 0;;) {
        int left = 0;
        for (int r = 0; r < w->n; r++)
            left += p->call[r] < CALLS;
        if (!left) return;
        idle =
            try_block(w, p, (int)(draw(w) % (uint32_t)w->n), draw(w) % w->channels) ? 0 : idle + 1;
        cr_assert(idle < 200000, "nobody can move");
    }
}

static void interleave(const enum allreduce_algorithm *by, int n, size_t count, size_t offset,
                       uint32_t channels, const struct plan_config *config) {
    struct world *w = new_world(by, n, count, offset, channels, config);
    struct progress *p = calloc(1, sizeof *p);
    cr_assert_not_null(p);
    for (int r = 0; r < n; r++)
        start_kernel(w, p, r);
    run_world(w, p);
    judge_world(w, by, config);
    for (int r = 0; r < n; r++)
        cr_assert_eq(w->ranks[r].state.calls, CALLS);
    free(p);
    free_world(w);
}

Test(channels, any_order_gives_the_reference_bits, .timeout = 240) {
    static const size_t counts[] = {1, 1000, 5003, 12345};
    for (int n = 2; n <= MOST_RANKS; n++)
        for (int a = 0; a < ALGORITHMS; a++)
            for (int c = 0; c < 4; c++)
                for (uint32_t channels = 1; channels <= 5; channels += 2) {
                    enum allreduce_algorithm by[CALLS] = {algorithms[a], algorithms[a],
                                                          algorithms[a], algorithms[a]};
                    if (test_short() && (n > 4 || channels == 1)) continue;
                    interleave(by, n, counts[c], (size_t)(c + n), channels, &configs[1]);
                    interleave(by, n, counts[c], 0, channels, &configs[2]);
                }
}

/* Calls by different algorithms use the same flags and scratch. */
Test(channels, algorithms_may_follow_each_other, .timeout = 240) {
    for (int a = 0; a < ALGORITHMS; a++)
        for (int b = 0; b < ALGORITHMS; b++) {
            enum allreduce_algorithm by[CALLS] = {algorithms[a], algorithms[b], algorithms[a],
                                                  algorithms[b]};
            interleave(by, 3, 6001, 3, 3, &configs[1]);
        }
}

/* Small calls take few channels, large ones all; every count has one. */
Test(channels, their_number, .timeout = 10) {
    cr_assert_eq(spin_channels(1), 1);
    cr_assert_eq(spin_channels(8192), 1);
    cr_assert_eq(spin_channels(8193), 2);
    cr_assert_eq(spin_channels(256 * 1024), CUDA_CHANNELS);
    cr_assert_eq(spin_channels((size_t)1 << 33), CUDA_CHANNELS);
}
