/* GPUs that cannot reach each other's memory, on the emulated runtime: which executor `auto` takes
 * and what it prints, ranks that die or stop during a call, counts, and the values at the start of
 * DDP. (test_cuda.c tests bits, cuda/test_train.c the commands.) */
#include "tests/allreduce/cuda.h"
#include "tests/allreduce/lose.h"

#ifndef CUDA_EMULATION
Test(allreduce_cuda_staged, needs_the_emulated_runtime, .timeout = 10) {
    cr_skip_test("make EMULATION=1 check runs this");
}
#else
#include <limits.h>

#include "ddp/setup.h"

static const char NO_NCCL[] = "/no/such/libnccl.so";

static void out_of_reach(int gpus) {
    set_gpus(gpus);
    set_peers("0");
    setenv("DUET_NCCL", NO_NCCL, 1);
}

static void use_fake_nccl(void) {
    static char path[PATH_MAX];
    cr_assert_not_null(
        realpath(BUILD_DIR "/tests/stand_ins/fake_cuda_libraries/fake_nccl.so", path),
        "the fake is not built");
    setenv("DUET_NCCL", path, 1);
}

/* ---- the choice ---- */

/* Known to the ranks, which are forked. */
static const char *expected_name, *expected_text;
static int expected_any_order;

static int choice_entry(void *context) {
    struct rank r;
    struct allreduce *ar = NULL;
    struct allreduce_config config = {.any_order = expected_any_order,
                                      .plan = plan_config_default()};
    char text[256] = "";
    int code = rank_open(&r, context, COUNT);
    if (!code) code = allreduce_init(&ar, r.comm, r.device, &config);
    if (!code) code = allreduce_register(ar, r.data, COUNT);
    if (!code) allreduce_algorithm_for(ar, COUNT, text, sizeof text);
    if (!code &&
        (strcmp(allreduce_executor_name(ar), expected_name) || !strstr(text, expected_text)))
        code = fail(ERR_CHECK, "%s, '%s' instead of %s, '%s'", allreduce_executor_name(ar), text,
                    expected_name, expected_text);
    if (!code) code = allreduce_enqueue(ar, device_comm(r.device), r.data, COUNT, 1, 0, 0);
    if (!code) code = stream_sync(device_comm(r.device));
    allreduce_free(ar);
    return rank_close(&r, code);
}

static void expect_choice(int n, int any_order, const char *name, const char *text) {
    struct job job = {.page = share(sizeof(struct page)), .timeout_s = 60, .kind = DEVICE_CUDA};
    expected_name = name, expected_text = text, expected_any_order = any_order;
    run_well(n, choice_entry, &job);
}

static const char STAGED[] = "(staged in host memory: rank 0's GPU cannot reach rank 1's)";
static const char NCCL[] = "nccl for 78.1 KiB over 2 ranks (rank 0's GPU cannot reach rank 1's)";

Test(allreduce_cuda_staged, auto_takes_nccl_where_it_serves_and_keeps_the_bits, .timeout = 120) {
    out_of_reach(2);
    expect_choice(2, 0, "staged", STAGED);
    use_fake_nccl();
    expect_choice(2, 0, "nccl", NCCL);
    expect_choice(4, 1, "staged", STAGED); /* two on each GPU, which this NCCL refuses */
    setenv("FAKE_NCCL_FAIL", "init@0", 1); /* NCCL loads but cannot make a communicator */
    expect_choice(2, 0, "staged", STAGED);
    unsetenv("FAKE_NCCL_FAIL");
    set_gpus(3);
    expect_choice(3, 0, "staged", STAGED); /* NCCL adds three terms in its own order */
    expect_choice(3, 1, "nccl", "nccl for");
    set_peers("1");
    expect_choice(2, 0, "spin", "a GPU for each rank");
}

/* The rank in the middle of a chain reaches all others, and must choose as they do. */
Test(allreduce_cuda_staged, all_ranks_choose_alike, .timeout = 60) {
    out_of_reach(4);
    set_peers("chain");
    expect_choice(3, 0, "staged", "rank 0's GPU cannot reach rank 2's");
    set_peers("pairs");
    expect_choice(2, 0, "spin", "a GPU for each rank");
    expect_choice(4, 0, "staged", "rank 0's GPU cannot reach rank 2's");
}

/* ---- failures ---- */

Test(allreduce_cuda_staged, a_killed_rank_is_blamed, .timeout = 120) {
    struct job job = {.page = share(sizeof(struct page)), .kind = DEVICE_CUDA, .free_s = 3};
    out_of_reach(2); /* three ranks, of which two share a GPU */
    for (int a = 0; a < ALGORITHMS; a++) {
        job.algorithm = algorithms[a];
        kill_one(&job, a % 3, 3);
    }
}

Test(allreduce_cuda_staged, a_stopped_rank_is_named_at_the_deadline, .timeout = 120) {
    struct job job = {.page = share(sizeof(struct page)), .kind = DEVICE_CUDA, .free_s = 3};
    out_of_reach(2);
    for (int a = test_short(); a < ALGORITHMS; a += 1 + test_short()) {
        job.algorithm = algorithms[a];
        stop_one(&job);
    }
}

/* ---- accounts ---- */

/* Only the copies to the host and back cross the links, whatever the plan. */
static int accounts_entry(void *context) {
    struct rank r;
    struct allreduce *ar = NULL;
    struct allreduce_config config = allreduce_config_default();
    int code = rank_open(&r, context, COUNT);
    uint64_t bytes = (uint64_t)COUNT * sizeof(float);
    void *other = NULL;
    if (!code) code = allreduce_init(&ar, r.comm, r.device, &config);
    if (!code) code = device_alloc(r.device, &other, bytes, MEM_GRADS);
    if (!code) code = allreduce_register(ar, r.data, COUNT);
    if (!code) code = allreduce_register(ar, other, COUNT); /* each has its own host memory */
    if (!code) code = allreduce_enqueue(ar, device_comm(r.device), r.data, COUNT, 1, 7, 3);
    if (!code) code = stream_sync(device_comm(r.device));
    const struct span_log *log = code ? NULL : stream_spans(device_comm(r.device));
    if (!code && (log->count != 1 || log->spans[0].bytes != 2 * bytes || log->spans[0].step != 3 ||
                  strcmp(log->spans[0].name, "allreduce bucket 7")))
        code = fail(ERR_CHECK, "%zu spans, the first of %llu bytes", log->count,
                    (unsigned long long)log->spans[0].bytes);
    const struct traffic *traffic = code ? NULL : device_traffic(r.device);
    if (!code &&
        (traffic_into(traffic, r.rank) != bytes || traffic_out_of(traffic, r.rank) != bytes ||
         traffic->bytes[r.rank][LINK_HOST] != bytes))
        code = fail(ERR_CHECK, "other traffic than one copy out and one in");
    allreduce_free(ar);
    device_free(r.device, other);
    if (!code && device_ledger(r.device).now[MEM_COMM] != 0)
        code = fail(ERR_CHECK, "memory was not given back");
    return rank_close(&r, code);
}

Test(allreduce_cuda_staged, spans_traffic_and_memory_are_exact, .timeout = 60) {
    struct job job = {.page = share(sizeof(struct page)), .timeout_s = 50, .kind = DEVICE_CUDA};
    out_of_reach(2);
    run_well(2, accounts_entry, &job);
}

/* ---- the values at the start ---- */

static int values_entry(void *context) {
    struct rank r;
    static float own[1000], got[1000];
    int code = rank_open(&r, context, 1000);
    struct param_set params = {.device = r.device, .values = r.data, .arena_count = 1000};
    for (int i = 0; i < 1000; i++)
        own[i] = input(5, r.rank, (size_t)i, 0);
    if (!code) code = put(&r, own, r.data, 1000);
    if (!code) code = ddp_broadcast_values(r.comm, &params);
    if (!code) code = get(&r, got, r.data, 1000);
    for (int i = 0; i < 1000 && !code; i++)
        if (got[i] != input(5, 0, (size_t)i, 0))
            code = fail(ERR_CHECK, "value %d is not rank 0's", i);
    return rank_close(&r, code);
}

/* Rank 0's values go to ranks on GPUs that reach its own by import, to others through the host. */
Test(allreduce_cuda_staged, every_rank_starts_with_the_values_of_rank_0, .timeout = 60) {
    struct job job = {.page = share(sizeof(struct page)), .timeout_s = 50, .kind = DEVICE_CUDA};
    out_of_reach(2);
    run_well(2, values_entry, &job);
    run_well(4, values_entry, &job);
    set_gpus(4);
    set_peers("pairs");
    run_well(4, values_entry, &job);
}

/* ---- the command ---- */

#endif
