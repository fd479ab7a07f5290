/* One cooperative grid that runs for n ranks; grid.h says what for. Rank r has the blocks
 * r * channels .. (r + 1) * channels - 1. */
#include "allreduce/cuda/grid.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/advice.h"
#include "allreduce/cuda/spin_kernel.h"
#include "allreduce/cuda/spin_memory.h"
#include "allreduce/cuda/upload.h"

struct allreduce_grid {
    struct allreduce_grid_config config;
    struct cuda_device *device;
    struct cuda_watch watch;
    int most_channels;
    size_t half;         /* elements of one half of a rank's scratch */
    char *memory;        /* device memory, [n], memory_bytes apart: a rank's flags and scratch */
    size_t memory_bytes; /* of one rank */
    struct spin_rank *ranks; /* device memory, [n] */
    struct spin_page *pages; /* pinned, [n] */
    void *staging;           /* pinned */
    float *scratch[MAX_DEVICES];
    char *plans;       /* device memory, [n], plan_bytes apart */
    size_t plan_bytes; /* of the longest plan */
    size_t count;      /* elements that the plans are for */
};

struct allreduce_grid_config allreduce_grid_config_default(enum allreduce_algorithm algorithm,
                                                           int n) {
    struct allreduce_grid_config config = {.algorithm = algorithm,
                                           .n = n,
                                           .plan = plan_config_default(),
                                           .timeout_s = 10,
                                           .silent = -1};
    return config;
}

/* ---- failures ---- */

static struct allreduce_grid *grid_of(struct cuda_watch *watch) {
    return (struct allreduce_grid *)((char *)watch - offsetof(struct allreduce_grid, watch));
}

static int look(struct cuda_watch *watch, int waiting) {
    struct allreduce_grid *g = grid_of(watch);
    (void)waiting; /* the kernels watch the deadline themselves */
    for (int r = 0; r < g->config.n; r++) {
        const struct spin_page *page = &g->pages[r];
        if (__atomic_load_n(&page->code, __ATOMIC_ACQUIRE) == SPIN_FINE) continue;
        char what[128];
        spin_describe(page, what, sizeof what);
        return fail(ERR_TIMEOUT,
                    "rank %d of a grid: allreduce (%s): no word from rank %d after %g s",
                    page->rank, what, page->peer, g->config.timeout_s);
    }
    return OK;
}

static void stop(struct cuda_watch *watch) {
    struct allreduce_grid *g = grid_of(watch);
    for (int r = 0; r < g->config.n; r++)
        __atomic_store_n(&g->pages[r].stop, 1, __ATOMIC_RELEASE);
}

/* ---- life ---- */

static int check_config(struct device *device, const struct allreduce_grid_config *c) {
    if (device_config(device)->kind != DEVICE_CUDA)
        return fail(ERR_USAGE, "allreduce grid on %s: not a GPU: " ADVICE_GPU, device_name(device));
    if (!allreduce_has_plan(c->algorithm))
        return fail(ERR_USAGE,
                    "allreduce grid: algorithm %s: has no plan of its own: choose one first",
                    allreduce_algorithm_name(c->algorithm));
    if (c->n < 1 || c->n > MAX_DEVICES || c->channels < 0 || !(c->timeout_s > 0) ||
        c->silent >= c->n)
        return fail(
            ERR_USAGE,
            "allreduce grid: %d ranks, %d channels, %g s, silent rank %d: these make no sense",
            c->n, c->channels, c->timeout_s, c->silent);
    return OK;
}

static int check_room(struct allreduce_grid *g) {
    int resident, wanted = g->config.channels ? g->config.channels : CUDA_CHANNELS, n = g->config.n;
    CHECK(spin_load(g->device, &resident));
    g->most_channels = resident / n < wanted ? resident / n : wanted;
    if (g->most_channels > CUDA_CHANNELS) g->most_channels = CUDA_CHANNELS;
    if (g->most_channels > 0) return OK;
    return fail(
        ERR_FAILED,
        "allreduce grid on %s: %s holds %d blocks at once, %d ranks need one each: use fewer ranks",
        g->device->head.name, g->device->gpu_name, resident, n);
}

static int alloc_memory(struct allreduce_grid *g) {
    struct device *device = &g->device->head;
    int n = g->config.n;
    size_t flags = cuda_flags_bytes(n);
    void *memory, *ranks, *pages;
    g->half =
        (g->config.plan.scratch + 31) / 16 * 16; /* a multiple of 16, with room for the skew */
    g->memory_bytes = flags + 2 * g->half * sizeof(float);
    CHECK(device_alloc(device, &memory, (size_t)n * g->memory_bytes, MEM_COMM));
    g->memory = memory;
    CHECK(device_alloc(device, &ranks, (size_t)n * sizeof *g->ranks, MEM_COMM));
    g->ranks = ranks;
    CHECK(device_host_alloc(device, &pages, (size_t)n * sizeof *g->pages));
    g->pages = pages;
    memset(g->pages, 0, (size_t)n * sizeof *g->pages);
    CHECK(device_host_alloc(device, &g->staging, SPIN_STAGING));
    return cuda_fill(g->device, g->memory, 0, (size_t)n * g->memory_bytes);
}

static int write_ranks(struct allreduce_grid *g) {
    int n = g->config.n;
    for (int r = 0; r < n; r++) {
        struct spin_rank rank = {.n = n, .rank = r, .half = g->half, .page = &g->pages[r]};
        for (int peer = 0; peer < n; peer++) {
            char *memory = g->memory + (size_t)peer * g->memory_bytes;
            rank.flags[peer] = (struct cuda_flag *)(void *)memory;
            rank.scratch[peer] = g->scratch[peer] = (float *)(void *)(memory + cuda_flags_bytes(n));
        }
        CHECK(spin_write_rank(g->device, g->staging, &g->ranks[r], &rank));
    }
    return OK;
}

static int open_grid(struct allreduce_grid *g) {
    CHECK(cuda_use(&g->device->head));
    CHECK(check_room(g));
    CHECK(alloc_memory(g));
    CHECK(write_ranks(g));
    g->watch.look = look;
    g->watch.release = stop;
    cuda_watch_add(g->device, &g->watch);
    return OK;
}

int allreduce_grid_open(struct allreduce_grid **out, struct device *device,
                        const struct allreduce_grid_config *config) {
    *out = NULL;
    CHECK(check_config(device, config));
    struct allreduce_grid *g = calloc(1, sizeof *g);
    if (!g) return fail(ERR_MEMORY, "allreduce grid: no host memory: free some");
    g->config = *config;
    g->device = (struct cuda_device *)device;
    int code = open_grid(g);
    if (code)
        allreduce_grid_close(g);
    else
        *out = g;
    return code;
}

void allreduce_grid_close(struct allreduce_grid *g) {
    if (!g) return;
    struct device *device = &g->device->head;
    if (g->watch.look) cuda_watch_remove(g->device, &g->watch);
    if (g->plans) device_free(device, g->plans);
    if (g->ranks) device_free(device, g->ranks);
    if (g->memory) device_free(device, g->memory);
    if (g->pages) device_host_free(device, g->pages);
    if (g->staging) device_host_free(device, g->staging);
    free(g);
}

/* ---- a call ---- */

static int write_plans(struct allreduce_grid *g, struct plan *plans) {
    const struct allreduce_grid_config *c = &g->config;
    g->plan_bytes = 0;
    for (int r = 0; r < c->n; r++) {
        CHECK(plan_build(&plans[r], c->algorithm, c->n, r, g->count, &c->plan));
        if (r == c->silent) plans[r].step_count = 0;
        if (spin_plan_bytes(&plans[r]) > g->plan_bytes) g->plan_bytes = spin_plan_bytes(&plans[r]);
    }
    void *memory;
    CHECK(device_alloc(&g->device->head, &memory, (size_t)c->n * g->plan_bytes, MEM_COMM));
    g->plans = memory;
    for (int r = 0; r < c->n; r++)
        CHECK(spin_write_plan(g->device, g->staging, g->plans + (size_t)r * g->plan_bytes,
                              &plans[r]));
    return OK;
}

/* Makes plans for another count, once no kernel reads the old ones any more. */
static int change_count(struct allreduce_grid *g, struct stream *stream, size_t count) {
    CHECK(stream_sync(stream));
    if (g->plans) device_free(&g->device->head, g->plans);
    g->plans = NULL;
    g->count = 0;
    struct plan *plans = calloc((size_t)g->config.n, sizeof *plans);
    if (!plans) return fail(ERR_MEMORY, "allreduce grid: no host memory for plans: free some");
    g->count = count;
    int code = write_plans(g, plans);
    if (code) g->count = 0;
    for (int r = 0; r < g->config.n; r++)
        plan_free(&plans[r]);
    free(plans);
    return code;
}

int allreduce_grid_channels(const struct allreduce_grid *g, size_t count) {
    int wanted = (int)spin_channels(count);
    return wanted < g->most_channels ? wanted : g->most_channels;
}

int allreduce_grid_run(struct allreduce_grid *g, struct stream *stream, float *const *data,
                       size_t count, float scale) {
    struct cuda_stream *s = (struct cuda_stream *)stream;
    int n = g->config.n;
    if (count == 0) return OK;
    CHECK(look(&g->watch, 0));
    if (count != g->count || !g->plans) CHECK(change_count(g, stream, count));
    struct spin_call c = {.ranks = g->ranks,
                          .plans = g->plans,
                          .plan_bytes = g->plan_bytes,
                          .timeout_ns = (uint64_t)(g->config.timeout_s * 1e9),
                          .channels = (uint32_t)allreduce_grid_channels(g, count),
                          .scale = scale,
                          .bucket = -1,
                          .algorithm = (int32_t)g->config.algorithm,
                          .step = -1};
    memcpy(c.data, data, (size_t)n * sizeof *c.data);
    spin_align(&c, n, g->scratch, g->half);
    CHECK(cuda_begin(s, "allreduce grid", 0, 0));
    CUDA_STREAM_CHECK(s, spin_launch(s->stream, &c, (uint32_t)n * c.channels, 1), "allreduce grid");
    return cuda_end(s);
}
