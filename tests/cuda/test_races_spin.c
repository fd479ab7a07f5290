/* Runs the spin kernel (allreduce/cuda/spin.h) with a host thread for each of the GPU's threads,
 * under ThreadSanitizer, through consecutive calls. Only the kernel's own barriers and flags order
 * ranks, channels and the threads of a block (tests/stand_ins/gpu_of_threads.h). */
#ifdef __SANITIZE_THREAD__
#include "tests/stand_ins/gpu_of_threads.h"

#include <sched.h>
#define sched_yield gpu_yield /* lets the other threads run while one polls */
#include "tests/allreduce/world.h"
#undef sched_yield

enum { SPIN_BLOCK = 16, MOST_CHANNELS = 3 };

struct adding {
    struct world *w;
    int call, rank;
};

/* A rank's stream: CALLS times an addition to the data and then the call, each launch behind the
 * one before. */
struct rank_stream {
    /* Addresses that tell ThreadSanitizer the stream's order: the current launch comes after one of
     * them and before the other. */
    char point[2];
    int launch, running;
    char *barriers[2 * CALLS]; /* addresses for the barriers of each launch's blocks */
    struct gpu_block block[MOST_CHANNELS];
    int done[MOST_CHANNELS];
    struct gpu_set set[MOST_CHANNELS];
    struct spin_shared shared[MOST_CHANNELS];
    struct adding adding[CALLS];
    struct spin_call call[CALLS];
    char *plans[CALLS];
};

static void add_terms(const void *param, struct thread_index at) {
    const struct adding *a = param;
    float *data = a->w->data[a->rank] + a->w->offset;
    for (size_t i = thread_first(at); i < a->w->count; i += thread_stride(at))
        data[i] += term(a->call, a->rank, i);
}

static void spin_block(const void *param, void *shared, struct thread_index at) {
    k_spin(param, shared, at);
}

static char *packed(const struct plan *plan) {
    size_t steps = (size_t)plan->step_count * sizeof(struct plan_step);
    char *memory = aligned_alloc(64, (sizeof(struct spin_plan) + steps + 63) / 64 * 64);
    cr_assert_not_null(memory);
    struct spin_plan head = {.steps = (uint32_t)plan->step_count, .epochs = plan->epochs};
    memcpy(memory, &head, sizeof head);
    memcpy(memory + sizeof head, plan->steps, steps);
    return memory;
}

/* Starts the stream's next launch. Returns 0 if there is none. */
static int start_next(struct world *w, struct rank_stream *s) {
    int launch = s->launch++, call = launch / 2, adds = launch % 2 == 0;
    if (call == CALLS) return 0;
    s->running = adds ? 1 : (int)w->channels;
    s->barriers[launch] = gpu_addresses(2 * MOST_CHANNELS);
    for (int b = 0; b < s->running; b++) {
        s->done[b] = 0;
        s->block[b] = (struct gpu_block){.at = {(uint32_t)b, (uint32_t)s->running, 0, SPIN_BLOCK},
                                         .begin = &s->point[launch % 2],
                                         .end = &s->point[(launch + 1) % 2],
                                         .barrier = s->barriers[launch] + 2 * b};
        if (adds)
            s->block[b].thread_kernel = add_terms, s->block[b].param = &s->adding[call];
        else
            s->block[b].block_kernel = spin_block, s->block[b].param = &s->call[call],
            s->block[b].shared = &s->shared[b];
        gpu_start_block(&s->block[b], &s->set[b]);
    }
    return 1;
}

/* Runs all ranks' streams, one step of a randomly drawn block at a time. */
static void run_streams(struct world *w, struct rank_stream *streams) {
    int left = w->n;
    gpu_begin();
    for (int r = 0; r < w->n; r++) {
        streams[r].launch = 0;
        __tsan_release(&streams[r].point[0]);
        start_next(w, &streams[r]);
    }
    while (left) {
        int r = (int)(draw(w) % (uint32_t)w->n), b = (int)(draw(w) % w->channels);
        struct rank_stream *s = &streams[r];
        if (s->launch > 2 * CALLS || b >= (int)s->block[0].at.blocks || s->done[b]) continue;
        s->done[b] = gpu_step_block(&s->block[b]);
        if (s->done[b] && --s->running == 0 && !start_next(w, s)) left--;
    }
    for (int r = 0; r < w->n; r++)
        __tsan_acquire(&streams[r].point[0]); /* 2 * CALLS is even */
}

static struct rank_stream *new_streams(struct world *w, struct spin_page *pages, double timeout_s) {
    struct rank_stream *streams = calloc((size_t)w->n, sizeof *streams);
    cr_assert_not_null(streams);
    for (int r = 0; r < w->n; r++) {
        w->ranks[r].page = &pages[r];
        for (int call = 0; call < CALLS; call++) {
            streams[r].adding[call] = (struct adding){w, call, r};
            streams[r].call[call] = w->calls[call];
            streams[r].call[call].rank = &w->ranks[r];
            streams[r].call[call].plan =
                (const struct spin_plan *)(streams[r].plans[call] = packed(&w->plans[call][r]));
            streams[r].call[call].timeout_ns = (uint64_t)(timeout_s * 1e9);
            streams[r].call[call].step = call;
        }
    }
    return streams;
}

static void free_streams(struct world *w, struct rank_stream *streams) {
    for (int r = 0; r < w->n; r++) {
        for (int call = 0; call < CALLS; call++)
            free(streams[r].plans[call]);
        for (int launch = 0; launch < 2 * CALLS; launch++)
            free(streams[r].barriers[launch]);
    }
    free(streams);
}

/* silent: a rank that never posts a flag, or -1. */
static void run_ranks(enum allreduce_algorithm algorithm, int n, size_t count, size_t offset,
                      uint32_t channels, const struct plan_config *config, int silent) {
    enum allreduce_algorithm by[CALLS] = {algorithm, algorithm, algorithm, algorithm};
    struct spin_page pages[MOST_RANKS] = {{0}};
    struct world *w = new_world(by, n, count, offset, channels, config);
    for (int call = 0; call < CALLS && silent >= 0; call++)
        w->plans[call][silent].step_count = 0;
    struct rank_stream *streams = new_streams(w, pages, silent < 0 ? 100 : 0.2);
    run_streams(w, streams);
    for (int r = 0; r < n; r++) {
        cr_assert_eq(pages[r].code, silent < 0 || r == silent ? SPIN_FINE : SPIN_LATE,
                     "rank %d: %u", r, pages[r].code);
        if (silent < 0)
            cr_assert_eq(w->ranks[r].state.calls, CALLS);
        else if (r != silent)
            cr_assert(pages[r].rank == r && pages[r].step == 0 &&
                      pages[r].expected > pages[r].seen);
    }
    if (silent < 0) judge_world(w, by, config);
    free_streams(w, streams);
    free_world(w);
}

Test(cuda_races_spin, ranks_that_spin_never_race, .timeout = 300) {
    for (int a = 0; a < ALGORITHMS; a++)
        for (int n = 2; n <= 3; n++) {
            run_ranks(algorithms[a], n, 5003, (size_t)n, MOST_CHANNELS, &configs[1], -1);
            run_ranks(algorithms[a], n, 17, 0, 1, &configs[2], -1);
        }
}

Test(cuda_races_spin, ranks_that_give_up_never_race, .timeout = 300) {
    for (int a = 0; a < ALGORITHMS; a++)
        run_ranks(algorithms[a], 2, 5003, 1, 2, &configs[1], 1);
}

#else
#include "tests/harness/harness.h"
Test(cuda_races_spin, needs_the_thread_sanitizer, .timeout = 10) {
    cr_skip_test("races are found by make SAN=thread check");
}
#endif
