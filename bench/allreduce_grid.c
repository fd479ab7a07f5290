/* What the plans cost where all ranks share one GPU's memory: one cooperative grid takes the part
 * of n ranks (allreduce/cuda/grid.h) and runs the very kernel that runs where each rank has a GPU.
 *
 *     allreduce_grid [RANKS [BYTES [CALLS]]]                                  4, 64 MiB, 20
 *
 * Any algorithm must move at least 2 n size bytes here, each input read once and each output
 * written once. `floor` is the time in which a copy inside the GPU, in the same run, moves as many.
 * Ring and tree must move more, 5 (n - 1) size. Every sum is checked before it is timed. */
#include <stdio.h>
#include <stdlib.h>

#include "allreduce/cuda/grid.h"
#include "base/clock.h"
#include "base/error.h"
#include "doctor/cuda/gpu.h"

struct bench {
    struct device *device;
    struct stream *stream;
    float *host, *data[MAX_DEVICES];
    size_t count;
    int n, calls;
};

/* Small integers: their sums are exact in every order. */
static float input(int rank, size_t i) {
    return (float)((i * 7 + (size_t)rank * 13) % 64);
}

static int fill(struct bench *b) {
    for (int r = 0; r < b->n; r++) {
        for (size_t i = 0; i < b->count; i++)
            b->host[i] = input(r, i);
        CHECK(copy_to_device(b->stream, b->data[r], b->host, b->count * sizeof(float)));
        CHECK(stream_sync(b->stream)); /* the next rank's input goes through the same memory */
    }
    return OK;
}

static int count_wrong(struct bench *b, uint64_t *wrong) {
    *wrong = 0;
    for (int r = 0; r < b->n; r++) {
        CHECK(copy_to_host(b->stream, b->host, b->data[r], b->count * sizeof(float)));
        CHECK(stream_sync(b->stream));
        for (size_t i = 0; i < b->count; i++) {
            float sum = 0;
            for (int k = 0; k < b->n; k++)
                sum += input(k, i);
            *wrong += !(b->host[i] == sum);
        }
    }
    return OK;
}

/* Microseconds in which a copy inside the GPU reads and writes 2 n size bytes; the best of five. */
static int copy_floor(struct bench *b, double *us) {
    size_t half = b->count / 2 * sizeof(float);
    *us = 0;
    for (int i = 0; i < 5; i++) {
        int64_t begun = now_ns();
        for (int k = 0; k < b->calls; k++)
            CHECK(copy_peer(b->stream, b->device, b->data[0], b->device, (char *)b->data[0] + half,
                            half));
        CHECK(stream_sync(b->stream));
        /* 2 n halves are n copies of `size` */
        double one = (double)(now_ns() - begun) * 1e-3 / b->calls * 2 * b->n;
        if (i == 0 || one < *us) *us = one;
    }
    return OK;
}

static int run(struct bench *b, enum allreduce_algorithm algorithm, double floor_us,
               uint64_t *all_wrong) {
    struct allreduce_grid_config config = allreduce_grid_config_default(algorithm, b->n);
    struct allreduce_grid *grid;
    uint64_t wrong = 0;
    CHECK(fill(b));
    CHECK(allreduce_grid_open(&grid, b->device, &config));
    int code = allreduce_grid_run(grid, b->stream, b->data, b->count, 1);
    if (!code) code = stream_sync(b->stream);
    if (!code) code = count_wrong(b, &wrong);
    int64_t begun = now_ns();
    /* scaled by 1/n, so that repeated sums do not grow */
    for (int i = 0; i < b->calls && !code; i++)
        code = allreduce_grid_run(grid, b->stream, b->data, b->count, 1.0f / (float)b->n);
    if (!code) code = stream_sync(b->stream);
    double us = (double)(now_ns() - begun) * 1e-3 / b->calls;
    if (!code)
        printf("%-8s %6d %12zu %9d %9.2f %9.2f %6llu\n", allreduce_algorithm_name(algorithm), b->n,
               b->count * sizeof(float), allreduce_grid_channels(grid, b->count), us, floor_us,
               (unsigned long long)wrong);
    fflush(stdout);
    *all_wrong += wrong;
    allreduce_grid_close(grid);
    return code;
}

static int open_bench(struct bench *b) {
    struct gpu_facts gpu;
    size_t bytes = b->count * sizeof(float);
    int gpus;
    CHECK(device_probe(DEVICE_CUDA, &gpus));
    CHECK(gpu_facts(0, &gpu));
    struct device_config config = {
        .kind = DEVICE_CUDA, .devices = 1, .memory_bytes = (uint64_t)b->n * bytes + (256u << 20)};
    CHECK(device_open(&b->device, &config));
    b->stream = device_comm(b->device);
    CHECK(device_host_alloc(b->device, (void **)&b->host, bytes));
    for (int r = 0; r < b->n; r++)
        CHECK(device_alloc(b->device, (void **)&b->data[r], bytes, MEM_GRADS));
    printf("# machine: %s; one grid for all ranks; %d calls\n", gpu.name, b->calls);
    printf("# plan    ranks         size  channels   time us  floor us  wrong\n");
    return OK;
}

static int run_all(struct bench *b) {
    double floor_us;
    uint64_t wrong = 0;
    CHECK(open_bench(b));
    CHECK(fill(b));
    CHECK(copy_floor(b, &floor_us));
    for (int a = 0; a < ALLREDUCE_ALGORITHM_COUNT; a++)
        if (allreduce_has_plan((enum allreduce_algorithm)a))
            CHECK(run(b, (enum allreduce_algorithm)a, floor_us, &wrong));
    if (wrong)
        return fail(ERR_CHECK, "%llu sums are wrong: see the column", (unsigned long long)wrong);
    return OK;
}

static long number(const char *text, long least, long most) {
    char *end;
    long value = strtol(text, &end, 10);
    return *text && !*end && value >= least && value <= most ? value : -1;
}

int main(int argc, char **argv) {
    long n = argc > 1 ? number(argv[1], 1, MAX_DEVICES) : 4,
         bytes = argc > 2 ? number(argv[2], 8, 1L << 32) : 64 << 20,
         calls = argc > 3 ? number(argv[3], 1, 100000) : 20;
    struct bench b = {.n = (int)n, .count = (size_t)bytes / sizeof(float), .calls = (int)calls};
    int code =
        n < 0 || bytes < 0 || calls < 0 || argc > 4
            ? fail(ERR_USAGE, "usage: %s [RANKS (1 to %d) [BYTES (8 to 4294967296) [CALLS]]]",
                   argv[0], MAX_DEVICES)
            : run_all(&b);
    if (code) fprintf(stderr, "allreduce_grid: %s\n", error_message());
    if (b.device) device_host_free(b.device, b.host);
    device_close(b.device);
    return error_exit_status(code);
}
