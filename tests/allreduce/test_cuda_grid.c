/* One cooperative grid that runs for all ranks (allreduce/cuda/grid.h): the spin kernel with blocks
 * that really run at once, every algorithm against the reference's bits; its deadline; what is
 * refused. On the emulated runtime each block is a thread, so ThreadSanitizer reports a missing
 * release or acquire as a race. */
#include "tests/allreduce/cuda.h"

#include "allreduce/cuda/grid.h"

static struct device *open_device(void) {
    struct device_config config = {.kind = DEVICE_CUDA,
                                   .memory_bytes = 256 << 20,
                                   .check_operands = 1,
                                   .spans = 1,
                                   .timeout_s = 60};
    struct device *device;
    cr_assert_eq(device_open(&device, &config), OK, "%s", error_message());
    return device;
}

/* The buffers of n ranks, and what the reference makes of them. The data begins `start` + 1
 * elements into an allocation, with a guard on either side. */
struct buffers {
    struct device *device;
    int n;
    size_t count, start;
    float *data[MAX_DEVICES], *want[MAX_DEVICES], *host;
};

static void open_buffers(struct buffers *b, struct device *device, int n, size_t count,
                         size_t start) {
    struct stream *stream = device_comm(device);
    size_t room = count + start + 2;
    *b = (struct buffers){.device = device,
                          .n = n,
                          .count = count,
                          .start = start,
                          .host = malloc(room * sizeof(float))};
    cr_assert_not_null(b->host);
    for (int r = 0; r < n; r++) {
        void *memory;
        cr_assert_eq(device_alloc(device, &memory, room * sizeof(float), MEM_GRADS), OK, "%s",
                     error_message());
        b->want[r] = malloc(count * sizeof(float) + 1);
        b->host[start] = b->host[start + 1 + count] = guard;
        for (size_t i = 0; i < count; i++)
            b->host[start + 1 + i] = b->want[r][i] = input(7, r, i, 0);
        cr_assert_eq(copy_to_device(stream, memory, b->host, room * sizeof(float)), OK);
        cr_assert_eq(stream_sync(stream), OK);
        b->data[r] = (float *)memory + start + 1;
    }
}

/* Enqueues one call over the first `count` elements, and makes it by the reference. */
static void call(struct buffers *b, struct allreduce_grid *grid,
                 const struct allreduce_grid_config *config, size_t count, float scale) {
    cr_assert_eq(allreduce_grid_run(grid, device_comm(b->device), b->data, count, scale), OK, "%s",
                 error_message());
    cr_assert_eq(reference_allreduce(config->algorithm, b->n, count, &config->plan, b->want, scale),
                 OK, "%s", error_message());
}

static void judge_buffers(struct buffers *b, const struct allreduce_grid_config *config) {
    struct stream *stream = device_comm(b->device);
    for (int r = 0; r < b->n; r++) {
        cr_assert_eq(copy_to_host(stream, b->host, b->data[r] - b->start - 1,
                                  (b->count + b->start + 2) * sizeof(float)),
                     OK);
        cr_assert_eq(stream_sync(stream), OK, "%s", error_message());
        const float *got = b->host + b->start + 1;
        cr_assert(got[-1] == guard && got[b->count] == guard, "rank %d: wrote outside", r);
        for (size_t i = 0; i < b->count; i++)
            cr_assert(
                !memcmp(&got[i], &b->want[r][i], sizeof *got),
                "%s, %d ranks, %zu elements, %d channels: rank %d, element %zu: %.9g, not %.9g",
                allreduce_algorithm_name(config->algorithm), b->n, b->count, config->channels, r, i,
                (double)got[i], (double)b->want[r][i]);
    }
}

static void close_buffers(struct buffers *b) {
    for (int r = 0; r < b->n; r++) {
        device_free(b->device, b->data[r] - b->start - 1);
        free(b->want[r]);
    }
    free(b->host);
}

/* Two calls in a row on the same data, without a sync between them, and the reference's. */
static void run_grid(struct device *device, enum allreduce_algorithm algorithm, int n, size_t count,
                     int channels, size_t start, const struct plan_config *plan) {
    struct allreduce_grid_config config = allreduce_grid_config_default(algorithm, n);
    struct allreduce_grid *grid;
    struct buffers b;
    config.channels = channels;
    config.plan = *plan;
    config.timeout_s = 60;
    cr_assert_eq(allreduce_grid_open(&grid, device, &config), OK, "%s", error_message());
    cr_assert(allreduce_grid_channels(grid, count) >= 1 &&
              allreduce_grid_channels(grid, count) <= channels);
    open_buffers(&b, device, n, count, start);
    call(&b, grid, &config, count, 1);
    call(&b, grid, &config, count, 0.75f); /* with 0.5 over 2 ranks nothing would change */
    judge_buffers(&b, &config);
    close_buffers(&b);
    allreduce_grid_close(grid);
}

Test(allreduce_cuda_grid, all_algorithms, .timeout = 240) {
    need_gpus(1);
    struct device *device = open_device();
    struct plan_config whole = plan_config_default(), small = small_slices(8);
    for (int n = 1; n <= 5; n++)
        for (int a = 0; a < ALGORITHMS; a++) {
            size_t counts[] = {1, (size_t)n, (size_t)n + 1, 1000, 20011};
            for (int c = 0; c < 5; c++) {
                run_grid(device, algorithms[a], n, counts[c], 3, (size_t)(c + n) % 5, &whole);
                if (c < 4) run_grid(device, algorithms[a], n, counts[c], 2, (size_t)c, &small);
            }
        }
    cr_assert_eq(device_ledger(device).now[MEM_COMM], 0, "a grid kept memory");
    device_close(device);
}

/* One grid and several counts, each with a plan of its own; a call may still run when the next one
 * comes. One of the plans has more steps than are brought to the GPU at a time. */
Test(allreduce_cuda_grid, counts_by_turns, .timeout = 120) {
    static const size_t counts[] = {20011, 700, 20011, 1, 9000};
    need_gpus(1);
    struct device *device = open_device();
    struct allreduce_grid_config config = allreduce_grid_config_default(ALLREDUCE_RING, 2);
    struct allreduce_grid *grid;
    struct buffers b;
    struct plan plan;
    config.plan = (struct plan_config){
        .align = 1, .slice = 10, .pipeline_from = 0, .slices = 3, .scratch = 64};
    config.channels = 3, config.timeout_s = 60;
    cr_assert_eq(plan_build(&plan, config.algorithm, 2, 0, counts[0], &config.plan), OK);
    cr_assert_gt((size_t)plan.step_count * sizeof *plan.steps, 65536,
                 "all of it came at once: SPIN_STAGING");
    plan_free(&plan);
    cr_assert_eq(allreduce_grid_open(&grid, device, &config), OK, "%s", error_message());
    open_buffers(&b, device, 2, counts[0], 2);
    for (int i = 0; i < 5; i++)
        call(&b, grid, &config, counts[i], 0.75f);
    judge_buffers(&b, &config);
    close_buffers(&b);
    allreduce_grid_close(grid);
    cr_assert_eq(device_ledger(device).now[MEM_COMM], 0, "a grid kept memory");
    device_close(device);
}

Test(allreduce_cuda_grid, eight_ranks_of_many_channels, .timeout = 240) {
    need_gpus(1);
    struct device *device = open_device();
    struct plan_config whole = plan_config_default();
    for (int a = 0; a < ALGORITHMS; a++)
        run_grid(device, algorithms[a], 8, 70001, 8, 0, &whole);
    device_close(device);
}

/* A rank that never posts a flag: the others end at the deadline and name it. */
Test(allreduce_cuda_grid, a_silent_rank_is_named_at_the_deadline, .timeout = 120) {
    need_gpus(1);
    struct device *device = open_device();
    struct stream *stream = device_comm(device);
    for (int a = 0; a < ALGORITHMS; a++) {
        struct allreduce_grid_config config = allreduce_grid_config_default(algorithms[a], 2);
        struct allreduce_grid *grid;
        float *data[2];
        void *memory;
        config.timeout_s = 0.2;
        config.channels = 2;
        config.silent = a % 2;
        int waits = 1 - config.silent;
        char words[64];
        snprintf(words, sizeof words, "rank %d of a grid: allreduce (", waits);
        cr_assert_eq(allreduce_grid_open(&grid, device, &config), OK, "%s", error_message());
        cr_assert_eq(device_alloc(device, &memory, 2 * 20000 * sizeof(float), MEM_GRADS), OK);
        data[0] = memory;
        data[1] = data[0] + 20000;
        static float before[20000], after[20000];
        for (int i = 0; i < 20000; i++)
            before[i] = input(3, 0, (size_t)i, 0);
        for (int r = 0; r < 2; r++)
            cr_assert_eq(copy_to_device(stream, data[r], before, sizeof before), OK);
        int64_t start = now_ns();
        cr_assert_eq(allreduce_grid_run(grid, stream, data, 20000, 0.5f), OK, "%s",
                     error_message());
        int code = stream_sync(stream);
        const char *text = error_message(), *name = allreduce_algorithm_name(algorithms[a]);
        cr_assert_eq(code, ERR_TIMEOUT, "%s: %d: %s", name, code, text);
        cr_assert(now_ns() - start < 5 * 1000000000ll, "%s: it took too long", name);
        cr_assert(strstr(text, words) && strstr(text, name) && strstr(text, "of its plan") &&
                      strstr(text, "seen 0"),
                  "%s: %s", name, text);
        snprintf(words, sizeof words, "no word from rank %d after 0.2 s", config.silent);
        cr_assert(strstr(text, words), "%s: %s", name, text);
        cr_assert_eq(allreduce_grid_run(grid, stream, data, 20000, 1), ERR_TIMEOUT,
                     "%s: it goes on", name);
        allreduce_grid_close(grid);
        cr_assert_eq(copy_to_host(stream, after, data[waits], sizeof after), OK);
        cr_assert_eq(stream_sync(stream), OK, "%s", error_message());
        cr_assert_arr_eq(after, before, sizeof after, "%s: a step ran without its word", name);
        device_free(device, memory);
    }
    device_close(device);
}

Test(allreduce_cuda_grid, what_is_refused, .timeout = 60) {
    struct device_config host = {.kind = DEVICE_HOST, .memory_bytes = 4 << 20};
    struct allreduce_grid_config config = allreduce_grid_config_default(ALLREDUCE_RING, 2);
    struct allreduce_grid *grid = (struct allreduce_grid *)&host;
    struct device *device;
    cr_assert_eq(device_open(&device, &host), OK);
    cr_assert_eq(allreduce_grid_open(&grid, device, &config), ERR_USAGE);
    cr_assert_null(grid);
    device_close(device);
    allreduce_grid_close(NULL);
    setenv("EMULATED_MULTIPROCESSORS", "1", 1); /* four blocks of 512 threads */
    need_gpus(1);
    device = open_device();
    config.algorithm = ALLREDUCE_AUTO;
    cr_assert_eq(allreduce_grid_open(&grid, device, &config), ERR_USAGE);
    cr_assert(strstr(error_message(), "auto"), "%s", error_message());
    config = allreduce_grid_config_default(ALLREDUCE_RING, 65);
    cr_assert_eq(allreduce_grid_open(&grid, device, &config), ERR_USAGE);
    config = allreduce_grid_config_default(ALLREDUCE_RING, 5);
#ifdef CUDA_EMULATION
    cr_assert_eq(allreduce_grid_open(&grid, device, &config), ERR_FAILED);
    cr_assert(strstr(error_message(), "holds 4 blocks") && strstr(error_message(), "5 ranks"), "%s",
              error_message());
#endif
    device_close(device);
}
