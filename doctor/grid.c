/* The collective grid: one cooperative launch on a single GPU. Its blocks act as n ranks and run
 * the kernel that ranks with a GPU each run (allreduce/cuda/grid.h). Every algorithm must equal the
 * reference executor to the bit. And if a rank never comes, the wait of the others must end at
 * their deadline with an error that names it. */
#include <stdlib.h>
#include <string.h>

#include "allreduce/cuda/grid.h"
#include "allreduce/reference.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "doctor/check.h"

enum { MOST_RANKS = 8, WORLDS = 2, ROUNDS = 2 };
static const int worlds[WORLDS] = {3, MOST_RANKS}; /* one that divides no length, and the largest */

/* Starts on and off a multiple of 16 bytes, the same on every rank, as in a registered buffer. The
 * ranges overlap, so each call works on the results of the calls before it. */
static const struct call {
    size_t offset, count;
} calls[] = {{0, 1}, {3, 5}, {1, 1021}, {4, 65537}, {2, 300007}};
enum { CALLS = sizeof calls / sizeof *calls, LENGTH = 300007 + 64 };

struct testbed {
    struct doctor *d;
    struct device *device;
    int n;
    float *data[MOST_RANKS]; /* [LENGTH] device memory, by rank */
    float *want[MOST_RANKS]; /* [LENGTH] host memory, by rank: for the reference */
    float *got;              /* [LENGTH] pinned host memory: a copy of one rank's data */
};

static int open_testbed(struct testbed *bed, int n) {
    bed->n = n;
    CHECK(doctor_open(bed->d, 0, (uint64_t)n * (LENGTH * sizeof(float) + (8 << 20)) + (32 << 20), 0,
                      &bed->device));
    CHECK(device_host_alloc(bed->device, (void **)&bed->got, LENGTH * sizeof(float)));
    for (int r = 0; r < n; r++) {
        CHECK(device_alloc(bed->device, (void **)&bed->data[r], LENGTH * sizeof(float), MEM_GRADS));
        if (!(bed->want[r] = malloc(LENGTH * sizeof(float))))
            return fail(ERR_MEMORY,
                        "doctor: no host memory for the data of %d ranks: free some memory", n);
    }
    return OK;
}

static void close_testbed(struct testbed *bed) {
    for (int r = 0; r < bed->n; r++)
        free(bed->want[r]);
    if (bed->device) device_host_free(bed->device, bed->got);
    device_close(bed->device);
}

static int fill(struct testbed *bed, uint64_t seed) {
    struct stream *stream = device_comm(bed->device);
    struct rng rng;
    rng_seed(&rng, seed);
    for (int r = 0; r < bed->n; r++) {
        rng_uniform(&rng, bed->want[r], LENGTH, -1, 1);
        memcpy(bed->got, bed->want[r], LENGTH * sizeof(float));
        CHECK(copy_to_device(stream, bed->data[r], bed->got, LENGTH * sizeof(float)));
        CHECK(stream_sync(stream));
    }
    return OK;
}

static int call_count(const struct testbed *bed) {
    return ROUNDS * (bed->d->config.quick ? CALLS - 1 : CALLS);
}

/* Call i; data[r]: where it begins in the buffer of rank r. */
static const struct call *call_of(int i, float *const *buffers, int n, float **data) {
    const struct call *call = &calls[i / ROUNDS];
    for (int r = 0; r < n; r++)
        data[r] = buffers[r] + call->offset;
    return call;
}

static int run(struct testbed *bed, struct allreduce_grid *grid,
               const struct allreduce_grid_config *config, double *ms) {
    struct stream *stream = device_comm(bed->device);
    /* Not the mean: that would not change any more in a second round. */
    float *data[MOST_RANKS], scale = 1.5f / (float)bed->n;
    int64_t start = now_ns();
    for (int i = 0; i < call_count(bed); i++) {
        const struct call *call = call_of(i, bed->data, bed->n, data);
        CHECK(allreduce_grid_run(grid, stream, data, call->count, scale));
    }
    CHECK(stream_sync(stream));
    *ms = (double)(now_ns() - start) * 1e-6;
    for (int i = 0; i < call_count(bed); i++) {
        const struct call *call = call_of(i, bed->want, bed->n, data);
        CHECK(reference_allreduce(config->algorithm, bed->n, call->count, &config->plan, data,
                                  scale));
    }
    return OK;
}

static int judge(struct testbed *bed, const char *name, int channels, double ms) {
    static const char bound[] = "equal to the one-thread reference";
    struct stream *stream = device_comm(bed->device);
    for (int r = 0; r < bed->n; r++) {
        memset(bed->got, 0xff, LENGTH * sizeof(float));
        CHECK(copy_to_host(stream, bed->got, bed->data[r], LENGTH * sizeof(float)));
        CHECK(stream_sync(stream));
        for (size_t i = 0; i < LENGTH; i++) {
            if (!memcmp(&bed->got[i], &bed->want[r][i], sizeof(float))) continue;
            note(bed->d, FINDING_OFF, name, bound, "rank %d, element %zu is %.9g, not %.9g", r, i,
                 (double)bed->got[i], (double)bed->want[r][i]);
            return OK;
        }
    }
    note(bed->d, FINDING_OK, name, bound, "%d calls, up to %d blocks: equal; %.2f ms",
         call_count(bed), bed->n * channels, ms);
    return OK;
}

static int one_algorithm(struct testbed *bed, enum allreduce_algorithm algorithm,
                         const char *name) {
    struct allreduce_grid_config config = allreduce_grid_config_default(algorithm, bed->n);
    struct allreduce_grid *grid;
    double ms = 0;
    config.timeout_s = bed->d->config.timeout / 2;
    CHECK(fill(bed, bed->d->config.seed + 31 * (uint64_t)algorithm));
    CHECK(allreduce_grid_open(&grid, bed->device, &config));
    int code = run(bed, grid, &config, &ms);
    if (!code) code = judge(bed, name, allreduce_grid_channels(grid, calls[CALLS - 1].count), ms);
    allreduce_grid_close(grid);
    return code;
}

/* The algorithms of one world size from `first` on; each is a step of the check. */
static int one_world(struct doctor *d, int world, int first) {
    struct testbed bed = {.d = d};
    int code = open_testbed(&bed, worlds[world]);
    for (int a = first; a < ALLREDUCE_ALGORITHM_COUNT && !code; a++) {
        char name[CHECK_NAME_BYTES];
        if (!allreduce_has_plan((enum allreduce_algorithm)a)) continue;
        snprintf(name, sizeof name, "cuda: grid of %d ranks, %s", bed.n,
                 allreduce_algorithm_name((enum allreduce_algorithm)a));
        doctor_step(d, world * ALLREDUCE_ALGORITHM_COUNT + a, "%s", name);
        code = one_algorithm(&bed, (enum allreduce_algorithm)a, name);
    }
    close_testbed(&bed);
    return code;
}

static int missing_rank(struct doctor *d) {
    static const char name[] = "cuda: grid without rank 1",
                      bound[] = "a timeout that names it, and the GPU free again";
    struct testbed bed = {.d = d};
    struct allreduce_grid *grid = NULL;
    struct allreduce_grid_config config = allreduce_grid_config_default(ALLREDUCE_DIRECT, 3);
    config.timeout_s = 0.5;
    config.silent = 1; /* rank 1 does nothing */
    doctor_step(d, WORLDS * ALLREDUCE_ALGORITHM_COUNT, "%s", name);
    int code = open_testbed(&bed, 3);
    if (!code) code = fill(&bed, d->config.seed);
    if (!code) code = allreduce_grid_open(&grid, bed.device, &config);
    int64_t start = now_ns();
    if (!code) {
        int ended = allreduce_grid_run(grid, device_comm(bed.device), bed.data, 1000, 1);
        if (!ended) ended = stream_sync(device_comm(bed.device));
        int right = ended == ERR_TIMEOUT && strstr(error_message(), "rank 1");
        note(d, right ? FINDING_OK : FINDING_OFF, name, bound, "%s%.2f s: %s",
             right ? "ended after " : "after ", (double)(now_ns() - start) * 1e-9,
             ended ? error_message() : "no error");
    }
    allreduce_grid_close(grid);
    close_testbed(&bed);
    return code;
}

int check_grid(struct doctor *d, int first) {
    int world = first / ALLREDUCE_ALGORITHM_COUNT, a = first % ALLREDUCE_ALGORITHM_COUNT;
    if (d->kind != DEVICE_CUDA) {
        note(d, FINDING_NOT_HERE, "cpu: collective grid", "",
             "emulated devices run ranks only as processes");
        return OK;
    }
    for (; world < WORLDS; world++, a = 0)
        CHECK(one_world(d, world, a));
    return first <= WORLDS * ALLREDUCE_ALGORITHM_COUNT ? missing_rank(d) : OK;
}
