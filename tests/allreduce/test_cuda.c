/* Allreduce on GPUs, with ranks as real processes: several on one GPU (stepwise), a GPU for each
 * (spin), and GPUs that cannot reach each other (staged). Every algorithm and many counts must have
 * the reference executor's bits, also in consecutive calls.
 *
 * It runs on the emulated runtime (make EMULATION=1) and on machines with GPUs, where it skips
 * tests that need more GPUs. */
#include "tests/allreduce/cuda.h"

/* NCCL cannot be loaded, so that `auto` does not take it where GPUs do not reach each other. */
static void set_no_peers(void) {
    need_emulated();
    set_peers("0");
    setenv("DUET_NCCL", "/no/such/libnccl.so", 1);
}

/* ---- the grid ---- */

/* The data begins `start` elements into the buffer, with a guard on either side. */
static int run_cell(struct rank *r, struct allreduce *ar, const struct cell *cell,
                    const struct plan_config *config, float *host) {
    size_t start = 1 + (size_t)(cell->seed % 5), count = cell->count;
    const char *name = allreduce_algorithm_name(cell->algorithm);
    host[0] = host[count + 1] = guard;
    for (size_t i = 0; i < count; i++)
        host[i + 1] = input(cell->seed, r->rank, i, cell->integers);
    CHECK(put(r, host, r->data + start - 1, count + 2));
    CHECK(allreduce_enqueue(ar, device_comm(r->device), r->data + start, count, cell->scale, 0,
                            cell->seed));
    CHECK(get(r, host, r->data + start - 1, count + 2));
    if (host[0] != guard || host[count + 1] != guard)
        return fail(ERR_CHECK, "%s, %zu elements: wrote outside", name, count);
    CHECK(same_everywhere(r, hash_of(host + 1, count), name, count));
    return r->rank == 0 ? judge(r, cell, config, host + 1) : OK;
}

static int run_counts(struct rank *r, enum allreduce_algorithm algorithm, const size_t *counts,
                      int how_many, const struct plan_config *config, float *host) {
    struct allreduce *ar = NULL;
    struct allreduce_config setup = {.algorithm = algorithm, .plan = *config};
    CHECK(allreduce_init(&ar, r->comm, r->device, &setup));
    int code = strcmp(allreduce_executor_name(ar), expected_executor(r->n)) ? ERR_CHECK : OK;
    if (code) fail(code, "%d ranks run by %s", r->n, allreduce_executor_name(ar));
    if (!code) code = allreduce_register(ar, r->data, r->count);
    for (int c = 0; c < how_many && !code; c++) {
        for (int integers = 0; integers < 2 && !code; integers++) {
            if (test_short() && integers != c % 2) continue;
            struct cell cell = {.algorithm = allreduce_algorithm_for(ar, counts[c], NULL, 0),
                                .count = counts[c],
                                .integers = integers,
                                .seed = 2 * c + integers,
                                .scale = c % 2 ? 1.0f / (float)r->n : 1.0f};
            code = run_cell(r, ar, &cell, config, host);
        }
    }
    allreduce_free(ar);
    return code;
}

static int grid_entry(void *context) {
    struct job *job = context;
    struct rank r;
    size_t large = test_short() ? 70001 : (1 << 20) + 3; /* the short form's is also in `counts` */
    float *host = malloc((large + 2) * sizeof *host);
    int code = host ? rank_open(&r, job, large + 16) : ERR_MEMORY;
    size_t n = (size_t)r.n, counts[] = {0, 1, n - 1, n, n + 1, 1000, 4099, 70001};
    for (int a = ALLREDUCE_AUTO; a < ALLREDUCE_ALGORITHM_COUNT && !code; a++) {
        struct plan_config whole = plan_config_default(), small = small_slices(r.n);
        if (a != ALLREDUCE_AUTO && !allreduce_has_plan((enum allreduce_algorithm)a)) continue;
        code = run_counts(&r, (enum allreduce_algorithm)a, counts, 8, &whole, host);
        if (!code) code = run_counts(&r, (enum allreduce_algorithm)a, counts, 6, &small, host);
        if (!code && !test_short())
            code = run_counts(&r, (enum allreduce_algorithm)a, &large, 1, &whole, host);
    }
    free(host);
    return rank_close(&r, code);
}

static void run_grid(int n, int gpus) {
    struct job job = {.page = share(sizeof(struct page)), .timeout_s = 60, .kind = DEVICE_CUDA};
    set_gpus(gpus);
    run_well(n, grid_entry, &job);
}

Test(allreduce_cuda, alone, .timeout = 60) {
    need_gpus(1);
    run_grid(1, 1);
}

Test(allreduce_cuda, grid_of_2_and_3_on_one_gpu, .timeout = 240) {
    need_gpus(1);
    run_grid(2, 1);
    run_grid(3, 1);
}

Test(allreduce_cuda, grid_of_4_and_5_on_one_gpu, .timeout = 240) {
    need_gpus(1);
    run_grid(4, 1);
    if (!test_short()) run_grid(5, 1);
}

Test(allreduce_cuda, grid_of_8_on_one_gpu, .timeout = 240) {
    need_gpus(1);
    if (test_short()) cr_skip_test("8 ranks");
    run_grid(8, 1);
}

Test(allreduce_cuda, grid_of_2_and_3_with_a_gpu_each, .timeout = 240) {
    need_gpus(3);
    run_grid(2, 2);
    run_grid(3, 3);
}

Test(allreduce_cuda, grid_of_4_and_5_with_a_gpu_each, .timeout = 240) {
    need_gpus(5);
    run_grid(4, 4);
    if (!test_short()) run_grid(5, 5);
}

Test(allreduce_cuda, grid_of_8_with_a_gpu_each, .timeout = 240) {
    need_gpus(8);
    if (test_short()) cr_skip_test("8 ranks");
    run_grid(8, 8);
}

/* Where two of three ranks share a GPU the job runs stepwise. */
Test(allreduce_cuda, three_ranks_on_two_gpus, .timeout = 240) {
    need_gpus(2);
    run_grid(3, 2);
}

Test(allreduce_cuda, grid_of_2_and_3_on_gpus_out_of_reach, .timeout = 240) {
    set_no_peers();
    run_grid(2, 2);
    run_grid(3, 3);
}

Test(allreduce_cuda, four_ranks_on_two_gpus_out_of_reach, .timeout = 240) {
    set_no_peers();
    run_grid(4, 2);
}

Test(allreduce_cuda, four_ranks_on_two_pairs_of_gpus, .timeout = 240) {
    set_no_peers();
    set_peers("pairs");
    run_grid(4, 4);
}

/* ---- calls in a row, with no wait in between ---- */

enum { ROW_COUNT = 12000 };

static int row_calls(void) {
    return test_short() ? 20 : 60;
}

/* As a training step does with gradients: before each pair of calls the stream adds a term. */
static int row_of_calls(struct rank *r, struct allreduce *const *ar, float *term) {
    struct stream *stream = device_comm(r->device);
    const int dims[1] = {ROW_COUNT};
    for (int call = 0; call < row_calls(); call++) {
        /* Two buckets, cut at another element in each round. */
        size_t head = (size_t)(call * 3701 % ROW_COUNT);
        const struct tensor sum = tensor_plain(r->data, DTYPE_F32, 1, dims);
        struct op_args add = {.in = {sum, tensor_plain(term, DTYPE_F32, 1, dims)}, .out = {sum}};
        CHECK(launch(stream, OP_ADD_FORWARD, &add));
        CHECK(allreduce_enqueue(ar[call % 2], stream, r->data + head, ROW_COUNT - head, 0.5f, 0,
                                call));
        CHECK(allreduce_enqueue(ar[call % 2], stream, r->data, head, 0.5f, 1, call));
    }
    return OK;
}

/* The same rounds on the host, by the reference executor for all ranks. */
static int judge_row(const struct rank *r, const enum allreduce_algorithm *by,
                     const struct plan_config *config, const float *got) {
    float *memory = malloc((size_t)r->n * ROW_COUNT * sizeof *memory), *data[MAX_DEVICES],
          *from[MAX_DEVICES];
    if (!memory) return fail(ERR_MEMORY, "test: no memory");
    int code = OK;
    for (int k = 0; k < r->n; k++) {
        data[k] = memory + (size_t)k * ROW_COUNT;
        for (size_t i = 0; i < ROW_COUNT; i++)
            data[k][i] = input(1, k, i, 0);
    }
    for (int call = 0; call < row_calls() && !code; call++) {
        size_t head = (size_t)(call * 3701 % ROW_COUNT);
        for (int k = 0; k < r->n; k++) {
            from[k] = data[k] + head;
            for (size_t i = 0; i < ROW_COUNT; i++)
                data[k][i] += input(2, k, i, 0);
        }
        code = reference_allreduce(by[call % 2], r->n, ROW_COUNT - head, config, from, 0.5f);
        if (!code && head > 0)
            code = reference_allreduce(by[call % 2], r->n, head, config, data, 0.5f);
    }
    for (size_t i = 0; i < ROW_COUNT && !code; i++)
        if (memcmp(&got[i], &data[r->rank][i], sizeof *got))
            code = fail(ERR_CHECK, "%s and %s by turns: element %zu is %.9g, not %.9g",
                        allreduce_algorithm_name(by[0]), allreduce_algorithm_name(by[1]), i, got[i],
                        data[r->rank][i]);
    free(memory);
    return code;
}

static int row_by_two(struct rank *r, const enum allreduce_algorithm *by, float *term,
                      float *host) {
    struct allreduce *ar[2] = {NULL, NULL};
    struct plan_config plan = {
        .align = 16, .slice = 1024, .pipeline_from = 0, .slices = 3, .scratch = 4096};
    int code = OK;
    for (int k = 0; k < 2 && !code; k++) {
        struct allreduce_config config = {.algorithm = by[k], .plan = plan};
        code = allreduce_init(&ar[k], r->comm, r->device, &config);
        if (!code) code = allreduce_register(ar[k], r->data, ROW_COUNT);
    }
    for (int which = 1; which <= 2 && !code; which++) {
        for (size_t i = 0; i < ROW_COUNT; i++)
            host[i] = input(which, r->rank, i, 0);
        code = put(r, host, which == 1 ? r->data : term, ROW_COUNT);
    }
    if (!code) code = row_of_calls(r, ar, term);
    if (!code) code = get(r, host, r->data, ROW_COUNT);
    if (!code) code = judge_row(r, by, &plan, host);
    for (int k = 0; k < 2; k++)
        allreduce_free(ar[k]);
    return code;
}

static int row_entry(void *context) {
    struct job *job = context;
    struct rank r;
    void *term = NULL;
    float *host = malloc(ROW_COUNT * sizeof *host);
    int code = host ? rank_open(&r, job, ROW_COUNT) : ERR_MEMORY;
    if (!code) code = device_alloc(r.device, &term, ROW_COUNT * sizeof(float), MEM_GRADS);
    for (int a = 0; a < ALGORITHMS && !code; a++) {
        enum allreduce_algorithm by[2] = {algorithms[a], algorithms[(a + 1) % ALGORITHMS]};
        code = row_by_two(&r, by, term, host);
    }
    free(host);
    return rank_close(&r, code);
}

static void run_row(int n, int gpus) {
    struct job job = {.page = share(sizeof(struct page)), .timeout_s = 60, .kind = DEVICE_CUDA};
    set_gpus(gpus);
    run_well(n, row_entry, &job);
}

Test(allreduce_cuda, calls_in_a_row_on_one_gpu, .timeout = 240) {
    need_gpus(1);
    run_row(2, 1);
    run_row(3, 1);
}

/* A driver that does not take several waits and posts in one call gets them one by one. */
Test(allreduce_cuda, calls_in_a_row_by_single_operations, .timeout = 240) {
#ifndef CUDA_EMULATION
    cr_skip_test("such a driver is the emulated runtime's");
#endif
    setenv("EMULATED_CUDA_FAULT", "driver:batch", 1);
    run_row(3, 1);
}

Test(allreduce_cuda, calls_in_a_row_with_a_gpu_each, .timeout = 240) {
    need_gpus(3);
    run_row(2, 2);
    run_row(3, 3);
}

Test(allreduce_cuda, calls_in_a_row_on_gpus_out_of_reach, .timeout = 240) {
    set_no_peers();
    run_row(2, 2);
    run_row(4, 2);
}
