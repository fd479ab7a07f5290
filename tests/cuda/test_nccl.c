/* Tests NCCL as an executor (allreduce/cuda/nccl*.c): ranks are real processes on the emulated CUDA
 * runtime, each with its own GPU. A fake NCCL (tests/stand_ins/fake_cuda_libraries/fake_nccl.c)
 * checks its calls and really adds. The tests cover set-up and end, sums, the scale, the order on
 * the stream, and refusals, and no wait is endless when a rank dies or stops, or NCCL fails. If the
 * real library is installed, the test only checks that it loads. */
#include "tests/allreduce/cuda.h"

#ifdef HAVE_CUDA
#include "allreduce/cuda/nccl.h"
#endif

#if defined HAVE_CUDA && !defined CUDA_EMULATION
Test(cuda_nccl_real, loads_where_it_is_installed, .timeout = 120) {
    char text[512];
    cuda_nccl_describe(text, sizeof text);
    if (strstr(text, "not found: looked for") || strstr(text, "not built in"))
        cr_skip_test("NCCL is not installed here");
    cr_assert_eq(strncmp(text, "NCCL 2.", 7), 0, "%s", text);
}
#endif

#ifdef CUDA_EMULATION
#include <dlfcn.h>
#include <limits.h>

#include "tests/stand_ins/fake_cuda_libraries/fake.h"

static void use_fake(void) {
    static char path[PATH_MAX];
    cr_assert_not_null(
        realpath(BUILD_DIR "/tests/stand_ins/fake_cuda_libraries/fake_nccl.so", path),
        "the fake is not built");
    setenv("DUET_NCCL", path, 1);
}

static void use_gpus(int gpus) {
    set_gpus(gpus);
    use_fake();
}

static struct job job_of(double timeout_s) {
    return (struct job){.page = share(sizeof(struct page)),
                        .kind = DEVICE_CUDA,
                        .algorithm = ALLREDUCE_NCCL,
                        .timeout_s = timeout_s};
}

static int open_all(struct rank *r, struct job *job, struct allreduce **ar, size_t count) {
    struct allreduce_config config = allreduce_config_default();
    config.algorithm = job->algorithm;
    CHECK(rank_open(r, job, count));
    CHECK(allreduce_init(ar, r->comm, r->device, &config));
    return allreduce_register(*ar, r->data, count);
}

/* Fails if the fake found a forbidden call in this process, or a communicator is left. */
static int check_fake(int code) {
    void *library = dlopen(getenv("DUET_NCCL"), RTLD_NOW);
    struct fake_log *log = library ? dlsym(library, FAKE_LOG) : NULL;
    if (code || !log) return code ? code : fail(ERR_CHECK, "the fake has no log");
    if (log->mistakes) return fail(ERR_CHECK, "%d forbidden calls", log->mistakes);
    return log->handles ? fail(ERR_CHECK, "%d communicators are left", log->handles) : OK;
}

/* ---- sums ---- */

enum { MOST = 20011 };

/* The sum against one in double, and equal on all ranks. */
static int judge_sum(struct rank *r, const float *got, size_t count, int seed, int integers,
                     float scale) {
    for (size_t i = 0; i < count; i++) {
        double sum = 0, size = 0;
        for (int k = 0; k < r->n; k++) {
            double term = (double)input(seed, k, i, integers) * scale;
            sum += term, size += fabs(term);
        }
        double bound = r->n * unit / (1 - r->n * unit) * size;
        if (!(fabs(got[i] - sum) <= bound) || (integers && scale == 1 && got[i] != sum))
            return fail(ERR_CHECK, "%zu elements: element %zu is %.9g, not %.17g", count, i, got[i],
                        sum);
    }
    return same_everywhere(r, hash_of(got, count), "nccl", count);
}

static int judge_bits(struct rank *r, const float *got, size_t count, int seed, float scale) {
    static float inputs[2][MOST];
    float *data[2] = {inputs[0], inputs[1]};
    struct plan_config config = plan_config_default();
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < count; i++)
            data[k][i] = input(seed, k, i, 0);
    CHECK(reference_allreduce(ALLREDUCE_DIRECT, 2, count, &config, data, scale));
    return memcmp(got, data[r->rank], count * sizeof(float))
               ? fail(ERR_CHECK, "other bits than direct")
               : OK;
}

static int sums_entry(void *context) {
    static float all[MOST + 8];
    struct rank r;
    struct allreduce *ar = NULL;
    int code = open_all(&r, context, &ar, MOST + 8);
    const size_t counts[] = {0, 1, 2, 3, 1000, 4096, 4097, MOST};
    if (!code && strcmp(allreduce_executor_name(ar), "nccl"))
        code = fail(ERR_CHECK, "run by %s", allreduce_executor_name(ar));
    for (int c = 0; c < 32 && !code; c++) {
        size_t count = counts[c / 4];
        int integers = c % 2;
        float scale = c / 2 % 2 ? 1.0f / (float)r.n : 1;
        /* of no particular alignment */
        float *host = all + 1 + c % 5, *before = host - 1, *behind = host + count;
        for (size_t i = 0; i < count; i++)
            host[i] = input(c, r.rank, i, integers);
        *before = *behind = guard;
        code = put(&r, all, r.data, MOST + 8);
        if (!code)
            code = allreduce_enqueue(ar, device_comm(r.device), r.data + 1 + c % 5, count, scale, 0,
                                     c);
        if (!code) code = get(&r, all, r.data, MOST + 8);
        if (!code && (*before != guard || *behind != guard))
            code = fail(ERR_CHECK, "%zu elements: wrote outside", count);
        if (!code) code = judge_sum(&r, host, count, c, integers, scale);
        if (!code && r.n == 2 && !integers) code = judge_bits(&r, host, count, c, scale);
    }
    allreduce_free(ar);
    return rank_close(&r, check_fake(code));
}

Test(cuda_nccl, sums_over_1_to_5_ranks, .timeout = 200) {
    for (int n = 1; n <= (test_short() ? 3 : 5); n++) {
        struct job job = job_of(60);
        use_gpus(n);
        run_well(n, sums_entry, &job);
    }
}

/* The collectives of shards and buffers, with integers, whose sums are exact. Blocks beyond a whole
 * row go by their owners' broadcasts. */
static int blocks_entry(void *context) {
    static float host[MOST];
    struct rank r;
    struct allreduce *ar = NULL;
    int code = open_all(&r, context, &ar, MOST);
    enum { GATHERS, SUMS };
    for (int c = 0; c < 9 && !code; c++) {
        struct stream *s = device_comm(r.device);
        const size_t sizes[] = {1, 37, 2000}, n = (size_t)r.n, block = sizes[c / 3],
                     blocks = c % 3 == GATHERS ? 2 * n + 1 : n;
        const int sums = c % 3 == SUMS;
        for (size_t i = 0; i < blocks * block; i++)
            host[i] = input(c, r.rank, i, 1);
        code = put(&r, host, r.data, MOST);
        if (!code)
            code = sums         ? reduce_scatter_enqueue(ar, s, r.data, block, 0.5f, c, c)
                   : blocks > n ? all_gather_enqueue(ar, s, r.data, blocks, block, c, c)
                                : broadcast_enqueue(ar, s, r.data, blocks * block, c);
        if (!code) code = get(&r, host, r.data, MOST);
        for (size_t i = 0; i < blocks * block && !code; i++) {
            int owner = (int)(i / block % n);
            float want = input(c, blocks > n ? owner : 0, i, 1);
            for (int k = 1; sums && k < r.n; k++)
                want += input(c, k, i, 1);
            if (host[i] != (sums && n > 1 ? want / 2 : want) && (!sums || owner == r.rank))
                code = fail(ERR_CHECK, "call %d: element %zu is %.9g", c, i, host[i]);
        }
    }
    allreduce_free(ar);
    return rank_close(&r, check_fake(code));
}

Test(cuda_nccl, gathers_scatters_and_broadcasts, .timeout = 100) {
    for (int n = 1; n <= 4; n++) {
        struct job job = job_of(60);
        use_gpus(n);
        run_well(n, blocks_entry, &job);
    }
}

/* More calls than may be under way, none waited for, on a late stream: each call takes the result
 * of the one before. They have no step, so the host may run ahead as far as the ring of calls is
 * long. */
static int row_entry(void *context) {
    static float host[3000];
    struct rank r;
    struct allreduce *ar = NULL;
    int code = open_all(&r, context, &ar, 3000), calls = test_short() ? 70 : 200;
    for (size_t i = 0; i < 3000; i++)
        host[i] = (float)((i * 3 + (size_t)r.rank * 7) % 100);
    if (!code) code = put(&r, host, r.data, 3000);
    for (int call = 0; call < calls && !code; call++) {
        size_t head = (size_t)call * 37 % 3000;
        /* With only the mean nothing would change, and a missing call would not show. */
        float scale = (call % 2 ? 0.5f : 2) / (float)r.n;
        code =
            allreduce_enqueue(ar, device_comm(r.device), r.data + head, 3000 - head, scale, 0, -1);
        if (!code) code = allreduce_enqueue(ar, device_comm(r.device), r.data, head, scale, 1, -1);
    }
    if (!code) code = get(&r, host, r.data, 3000);
    for (size_t i = 0; i < 3000 && !code; i++) {
        double mean = 0;
        for (int k = 0; k < r.n; k++)
            mean += (double)((i * 3 + (size_t)k * 7) % 100) / r.n;
        if (host[i] != mean)
            code = fail(ERR_CHECK, "element %zu is %.9g, not %.9g", i, host[i], mean);
    }
    allreduce_free(ar);
    return rank_close(&r, check_fake(code));
}

Test(cuda_nccl, many_calls_in_a_row_keep_the_stream_s_order, .timeout = 100) {
    struct job job = job_of(60);
    use_gpus(2);
    setenv("EMULATED_CUDA_LATE_US", "200", 1);
    run_well(2, row_entry, &job);
}

static int accounts_entry(void *context) {
    struct rank r;
    struct allreduce *ar = NULL;
    int code = open_all(&r, context, &ar, 3000);
    if (!code) code = allreduce_enqueue(ar, device_comm(r.device), r.data, 3000, 1, 3, 7);
    if (!code) code = stream_sync(device_comm(r.device));
    const struct span_log *log = stream_spans(device_comm(r.device));
    const struct span *s = code || !log->count ? NULL : &log->spans[log->count - 1];
    uint64_t want = 2 * 2 * 3000 * sizeof(float) / 3; /* as a ring of 3 */
    if (!code && (!s || strcmp(s->name, "allreduce bucket 3") || s->bytes != want ||
                  s->phase != PHASE_ALLREDUCE))
        code = fail(ERR_CHECK, "the span: %s, %llu bytes", s ? s->name : "none",
                    s ? (unsigned long long)s->bytes : 0);
    if (!code && device_traffic(r.device)->bytes[r.rank][(r.rank + 1) % 3] != want)
        code = fail(ERR_CHECK, "traffic");
    allreduce_free(ar);
    return rank_close(&r, code);
}

Test(cuda_nccl, a_call_is_one_span_and_is_charged_as_a_ring, .timeout = 60) {
    struct job job = job_of(60);
    use_gpus(3);
    run_well(3, accounts_entry, &job);
}

/* ---- refusals ---- */

static int init_entry(void *context) {
    struct rank r;
    struct allreduce *ar = NULL;
    int code = open_all(&r, context, &ar, 100);
    allreduce_free(ar);
    return rank_close(&r, code);
}

static void refused(int ranks, struct job *job, int code, const char *words) {
    struct launch_result result;
    int64_t start = now_ns();
    cr_assert_neq(launch_all(ranks, init_entry, job, &result), OK, "not refused");
    cr_assert_eq(result.exit_status, error_exit_status(code), "status %d: %s", result.exit_status,
                 error_message());
    cr_assert_not_null(strstr(error_message(), words), "'%s' lacks '%s'", error_message(), words);
    cr_assert_lt(now_ns() - start, 20 * 1000000000ll);
}

Test(cuda_nccl, ranks_that_share_a_gpu_are_refused_before_it_is_called, .timeout = 60) {
    struct job job = job_of(60);
    use_gpus(2);
    refused(3, &job, ERR_USAGE,
            "ranks 0 and 2 share a GPU, which NCCL 2.28.9 refuses (\"Duplicate GPU detected\")");
    cr_assert_not_null(strstr(error_message(), "set allreduce to \"auto\""), "%s", error_message());
    setenv("FAKE_NCCL_VERSION", "22999", 1); /* the last that does */
    refused(3, &job, ERR_USAGE, "which NCCL 2.29.99 refuses");
}

Test(cuda_nccl, from_version_2_30_on_they_may_share, .timeout = 60) {
    struct job job = job_of(60);
    use_gpus(1);
    setenv("FAKE_NCCL_VERSION", "23003", 1);
    run_well(2, sums_entry, &job);
}

Test(cuda_nccl, what_cannot_be_is_said_in_one_line, .timeout = 100) {
    struct job job = job_of(60), on_cpu = job;
    on_cpu.kind = DEVICE_HOST;
    use_gpus(2);
    refused(2, &on_cpu, ERR_USAGE, "nccl needs GPUs");
    setenv("FAKE_NCCL_VERSION", "11900", 1);
    refused(2, &job, ERR_USAGE, "this program was built for 2.x");
    setenv("DUET_NCCL", "/no/such/libnccl.so", 1);
    refused(2, &job, ERR_USAGE, "NCCL: /no/such/libnccl.so");
}

/* ---- failures ---- */

Test(cuda_nccl, a_set_up_that_fails_ends_all_ranks, .timeout = 100) {
    static const char *const where[] = {"id:0@0", "init@1", "init@0"};
    use_gpus(2);
    for (int i = 0; i < 3; i++) {
        struct job job = job_of(60);
        setenv("FAKE_NCCL_FAIL", where[i], 1);
        refused(2, &job, ERR_FAILED, "allreduce on cuda(");
        cr_assert_not_null(strstr(error_message(), "NCCL: internal error"), "%s", error_message());
    }
}

/* Makes calls until something goes wrong; then frees everything, which must not take long. */
static int endless_entry(void *context) {
    struct job *job = context;
    struct rank r;
    struct allreduce *ar = NULL;
    int code = open_all(&r, job, &ar, 5000);
    for (long step = 0; !code; step++) {
        code = allreduce_enqueue(ar, device_comm(r.device), r.data, 5000, 0, 2, step);
        if (!code && r.rank == job->victim && step == 10 && job->signal)
            kill(getpid(), job->signal);
        if (!code) code = stream_sync(device_comm(r.device));
        __atomic_fetch_add(&job->page->calls[r.rank], 1, __ATOMIC_RELAXED);
    }
    int64_t start = now_ns();
    char text[600];
    snprintf(text, sizeof text, "%s", error_message());
    allreduce_free(ar);
    if (now_ns() - start > 4 * 1000000000ll)
        snprintf(text, sizeof text, "giving back took seconds");
    fail(code, "%s", text);
    return rank_close(&r, code);
}

static struct launch_result endless(int ranks, struct job *job) {
    struct launch_result result;
    cr_assert_neq(launch_all(ranks, endless_entry, job, &result), OK);
    return result;
}

Test(cuda_nccl, a_call_that_fails_names_bucket_and_step, .timeout = 60) {
    struct job job = job_of(60);
    use_gpus(2);
    setenv("FAKE_NCCL_FAIL", "call:7@1", 1);
    struct launch_result result = endless(2, &job);
    cr_assert_eq(result.rank, 1);
    cr_assert_not_null(strstr(error_message(),
                              "rank 1: allreduce bucket 2 step 7 on cuda(1): NCCL: internal error"),
                       "%s", error_message());
    cr_assert_eq(job.page->code[0], ERR_PEER, "%s", job.page->text[0]);
}

Test(cuda_nccl, an_error_that_comes_later_is_seen_in_waits, .timeout = 60) {
    struct job job = job_of(60);
    use_gpus(2);
    setenv("FAKE_NCCL_FAIL", "async:5@0", 1);
    struct launch_result result = endless(2, &job);
    cr_assert_eq(result.rank, 0);
    cr_assert_not_null(strstr(error_message(), "NCCL: remote process exited"), "%s",
                       error_message());
}

/* A job of three of which one is killed. On a busy machine the launcher may end a survivor before
 * it can say what it saw: then the job runs again. */
static struct launch_result lose(struct job *job, int victim) {
    for (int tries = 1;; tries++) {
        int silent = 0;
        *job = job_of(60);
        job->victim = victim, job->signal = SIGKILL;
        struct launch_result result = endless(3, job);
        for (int r = 0; r < 3; r++)
            silent += r != victim && !job->page->text[r][0];
        if (!silent || tries == 4) return result;
    }
}

/* The victim dies after its own launch, while the others wait for it inside a kernel. */
Test(cuda_nccl, survivors_of_a_killed_rank_end_and_name_it, .timeout = 100) {
    use_gpus(3);
    for (int victim = 0; victim < 3; victim++) {
        struct job job;
        int64_t start = now_ns();
        struct launch_result result = lose(&job, victim);
        cr_assert_eq(result.exit_status, 128 + SIGKILL);
        cr_assert_eq(result.rank, victim);
        for (int r = 0; r < 3; r++)
            cr_assert(r == victim || job.page->code[r] == ERR_PEER, "rank %d: %s", r,
                      job.page->text[r]);
        cr_assert_lt(now_ns() - start, 20 * 1000000000ll);
    }
}

Test(cuda_nccl, a_rank_that_stops_is_noticed_at_the_deadline, .timeout = 60) {
    struct job job = job_of(1.5);
    use_gpus(2);
    job.victim = 1, job.signal = SIGSTOP;
    struct launch_result result = endless(2, &job);
    cr_assert_eq(job.page->code[0], ERR_TIMEOUT, "%s", job.page->text[0]);
    cr_assert(strstr(job.page->text[0], "allreduce bucket 2 step 1"), "%s", job.page->text[0]);
    cr_assert_eq(result.exit_status, 1);
}

#else
Test(cuda_nccl, needs_the_emulated_runtime, .timeout = 10) {
    cr_skip_test("an EMULATION build runs this: make EMULATION=1 check");
}
#endif
