/* What becomes of an allreduce on GPUs when a rank dies, stops or leaves, while the others' streams wait for its word
 * (stepwise) or their kernels do (spin); what cannot begin at all. And the accounts of calls that went well. */
#include "tests/test_allreduce_cuda.h"

enum { COUNT = 20000 };

/* Calls for ever, until something goes wrong; every fifth is synced. */
static int endless_entry(void *context) {
    struct job *job = context;
    struct rank r;
    struct allreduce *ar = NULL;
    struct allreduce_config config = allreduce_config_default();
    config.algorithm = job->algorithm;
    int code = rank_open(&r, job, COUNT);
    if (!code) code = allreduce_init(&ar, r.comm, r.device, &config);
    if (!code) code = allreduce_register(ar, r.data, COUNT);
    for (long step = 0; !code; step++) {
        code = allreduce_enqueue(ar, device_comm(r.device), r.data, COUNT, 0, 2, step);
        if (!code && step % 5 == 4) code = stream_sync(device_comm(r.device));
        __atomic_fetch_add(&job->page->calls[r.rank], !code, __ATOMIC_RELAXED);
    }
    char text[600];
    snprintf(text, sizeof text, "%s", error_message());
    int64_t start = now_ns();
    allreduce_free(ar); /* lets the streams go and waits for nobody */
    if (now_ns() - start > 3 * 1000000000ll) code = ERR_CHECK;
    fail(code, "%s", text);
    return rank_close(&r, code);
}

static pid_t start_killer(struct page *page, int victim, int signal, int64_t *when) {
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (pid > 0) return pid;
    for (int i = 0; i < 20000; i++) {
        if (__atomic_load_n(&page->calls[victim], __ATOMIC_RELAXED) >= 20) {
            usleep((useconds_t)(i * 37 % 400)); /* somewhere within a call */
            __atomic_store_n(when, now_ns(), __ATOMIC_RELAXED);
            kill(page->pid[victim], signal);
            _exit(0);
        }
        usleep(1000);
    }
    _exit(1);
}

static void lose_a_rank(enum allreduce_algorithm algorithm, int n, int gpus, int victim, int signal, double timeout_s,
                        struct page *page, int64_t *when, struct launch_result *result) {
    struct job job = {.page = page, .algorithm = algorithm, .timeout_s = timeout_s, .kind = DEVICE_CUDA};
    struct launch launch = {.world_size = n, .entry = endless_entry, .context = &job};
    int status;
    memset(page, 0, sizeof *page);
    set_gpus(gpus);
    pid_t killer = start_killer(page, victim, signal, when);
    cr_assert_neq(launch_ranks(&launch, result), OK);
    cr_assert_eq(waitpid(killer, &status, 0), killer);
    cr_assert_eq(status, 0, "the ranks never made 20 calls: %s", error_message());
    for (int r = 0; r < n; r++) cr_assert(kill(page->pid[r], 0) != 0, "rank %d is still there", r);
}

static int64_t *new_time(void) {
    int64_t *when = mmap(NULL, sizeof *when, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(when != MAP_FAILED);
    return when;
}

static void kill_each(int gpus) {
    struct page *page = new_page();
    int64_t *when = new_time();
    for (int a = 0; a < ALGORITHMS; a++) {
        int victim = a % 3;
        struct launch_result result;
        lose_a_rank(algorithms[a], 3, gpus, victim, SIGKILL, 60, page, when, &result);
        const char *name = allreduce_algorithm_name(algorithms[a]);
        cr_assert_eq(result.exit_status, 128 + SIGKILL, "%s: status %d", name, result.exit_status);
        cr_assert_eq(result.rank, victim, "%s: rank %d is blamed for %d", name, result.rank, victim);
        for (int r = 0; r < 3; r++) {
            if (r == victim) continue;
            cr_assert_eq(page->code[r], ERR_PEER, "%s: rank %d got %d: %s", name, r, page->code[r], page->text[r]);
            cr_assert(strstr(page->text[r], "a peer failed first"), "%s: %s", name, page->text[r]);
            cr_assert(page->ended_ns[r] - *when < 3 * 1000000000ll, "%s: rank %d took %lld ms", name, r,
                      (long long)((page->ended_ns[r] - *when) / 1000000));
        }
    }
}

Test(allreduce_cuda_fail, a_killed_rank_on_a_shared_gpu, .timeout = 120) {
    need_gpus(1);
    kill_each(1);
}

Test(allreduce_cuda_fail, a_killed_rank_with_a_gpu_each, .timeout = 120) {
    need_gpus(3);
    kill_each(3);
}

static void stop_one(int gpus) {
    struct page *page = new_page();
    int64_t *when = new_time();
    for (int a = 0; a < ALGORITHMS; a++) {
        struct launch_result result;
        lose_a_rank(algorithms[a], 2, gpus, 1, SIGSTOP, 0.7, page, when, &result);
        const char *name = allreduce_algorithm_name(algorithms[a]), *text = page->text[0];
        cr_assert_eq(page->code[0], ERR_TIMEOUT, "%s: %d: %s", name, page->code[0], text);
        cr_assert(strstr(text, "rank 0: allreduce") && strstr(text, " bucket 2 step ") &&
                      strstr(text, "no word from rank 1 after 0.7 s: it may be stopped"),
                  "%s: %s", name, text);
        cr_assert_eq(result.exit_status, 1);
    }
}

Test(allreduce_cuda_fail, a_stopped_rank_on_a_shared_gpu_is_named, .timeout = 120) {
    need_gpus(1);
    stop_one(1);
}

Test(allreduce_cuda_fail, a_stopped_rank_with_a_gpu_each_is_named, .timeout = 120) {
    need_gpus(2);
    stop_one(2);
}

/* ---- the host of a rank sleeps: only its kernel can see the deadline; told at the next sync ---- */

static int sleeping_host_entry(void *context) {
    struct job *job = context;
    struct rank r;
    struct allreduce *ar = NULL;
    struct allreduce_config config = allreduce_config_default();
    config.algorithm = job->algorithm;
    int code = rank_open(&r, job, COUNT);
    if (!code) code = allreduce_init(&ar, r.comm, r.device, &config);
    if (!code) code = allreduce_register(ar, r.data, COUNT);
    if (!code && r.rank == 0) code = allreduce_enqueue(ar, device_comm(r.device), r.data, COUNT, 1, 3, 118);
    usleep(1200000);
    if (!code && r.rank == 0) code = stream_sync(device_comm(r.device));
    for (int i = 0; i < 5000 && !code; i++) { /* rank 1 never makes the call; it goes when the job does */
        code = comm_check(r.comm);
        usleep(1000);
    }
    char text[600];
    snprintf(text, sizeof text, "%s", error_message());
    allreduce_free(ar);
    fail(code, "%s", text);
    return rank_close(&r, code);
}

Test(allreduce_cuda_fail, a_kernel_keeps_the_deadline_by_itself, .timeout = 60) {
    need_gpus(2);
    set_gpus(2);
    for (int a = 0; a < ALGORITHMS; a++) {
        struct job job = {.page = new_page(), .algorithm = algorithms[a], .timeout_s = 0.4, .kind = DEVICE_CUDA};
        struct launch launch = {.world_size = 2, .entry = sleeping_host_entry, .context = &job};
        struct launch_result result;
        cr_assert_neq(launch_ranks(&launch, &result), OK);
        const char *text = job.page->text[0], *name = allreduce_algorithm_name(algorithms[a]);
        cr_assert_eq(job.page->code[0], ERR_TIMEOUT, "%s: %d: %s", name, job.page->code[0], text);
        cr_assert(strstr(text, "rank 0: allreduce (") && strstr(text, name) && strstr(text, "of its plan: ") &&
                      strstr(text, "bucket 3 step 118: no word from rank 1 after 0.4 s"),
                  "%s: %s", name, text);
    }
}

/* ---- a rank that leaves in good order, without the call ---- */

static int leaver_entry(void *context) {
    struct job *job = context;
    struct rank r;
    struct allreduce *ar = NULL;
    int code = rank_open(&r, job, COUNT);
    if (!code) code = allreduce_init(&ar, r.comm, r.device, NULL);
    if (!code) code = allreduce_register(ar, r.data, COUNT);
    if (!code && r.rank == 1) {
        comm_close(r.comm);
        _exit(0);
    }
    if (!code) code = allreduce_enqueue(ar, device_comm(r.device), r.data, COUNT, 1, 0, 7);
    if (!code) code = stream_sync(device_comm(r.device));
    char text[600];
    snprintf(text, sizeof text, "%s", error_message());
    allreduce_free(ar);
    fail(code, "%s", text);
    return rank_close(&r, code);
}

Test(allreduce_cuda_fail, a_rank_that_has_left_is_named_at_once, .timeout = 60) {
    need_gpus(2);
    for (int gpus = 1; gpus <= 2; gpus++) {
        struct job job = {.page = new_page(), .timeout_s = 30, .kind = DEVICE_CUDA};
        struct launch launch = {.world_size = 2, .entry = leaver_entry, .context = &job};
        struct launch_result result;
        int64_t start = now_ns();
        set_gpus(gpus);
        cr_assert_neq(launch_ranks(&launch, &result), OK);
        cr_assert_eq(job.page->code[0], ERR_PEER, "%s", job.page->text[0]);
        cr_assert(strstr(job.page->text[0], "rank 1 has left"), "%s", job.page->text[0]);
        cr_assert(now_ns() - start < 10 * 1000000000ll);
    }
}

/* ---- what cannot begin ---- */

static int init_entry(void *context) {
    struct job *job = context;
    struct rank r;
    struct allreduce *ar = NULL;
    int code = rank_open(&r, job, COUNT);
    if (!code) code = allreduce_init(&ar, r.comm, r.device, NULL);
    char text[600];
    snprintf(text, sizeof text, "%s", error_message());
    allreduce_free(ar);
    if (code) fail(code, "%s", text);
    return rank_close(&r, code);
}

#ifdef CUDA_EMULATION
enum { EMULATED = 1 };
#else
enum { EMULATED = 0 };
#endif

static void init_fails(int gpus, const char *variable, const char *value, const char *words, const char *more) {
    struct job job = {.page = new_page(), .timeout_s = 20, .kind = DEVICE_CUDA};
    struct launch launch = {.world_size = 2, .entry = init_entry, .context = &job};
    struct launch_result result;
    set_gpus(gpus);
    setenv(variable, value, 1);
    int code = launch_ranks(&launch, &result);
    unsetenv(variable);
    cr_assert_neq(code, OK, "%s=%s", variable, value);
    cr_assert(strstr(error_message(), words) && strstr(error_message(), more), "%s=%s: %s", variable, value,
              error_message());
}

Test(allreduce_cuda_fail, what_cannot_begin_says_why, .timeout = 60) {
    if (!EMULATED) cr_skip_test("faults need the emulated runtime");
    init_fails(2, "EMULATED_PEER", "0", "peer access", "nccl, or --device cpu");
    init_fails(1, "EMULATED_CUDA_FAULT", "driver:values", "stream memory operations", "--device cpu");
    init_fails(1, "EMULATED_CUDA_FAULT", "ipc:1@1", "import of memory", "container");
    init_fails(2, "EMULATED_CUDA_FAULT", "host:2@0", "out of pinned host memory", "rank 0");
}

/* ---- accounts ---- */

static int count_entry(void *context) {
    struct job *job = context;
    struct rank r;
    struct allreduce *ar = NULL;
    size_t count = 12 * 16 * 5;
    uint64_t want[MAX_DEVICES * MAX_DEVICES] = {0}, moved = 0;
    int calls = 3, code = rank_open(&r, job, count);
    struct allreduce_config config = allreduce_config_default();
    config.algorithm = job->algorithm;
    if (!code) code = allreduce_init(&ar, r.comm, r.device, &config);
    if (!code) code = allreduce_register(ar, r.data, count);
    if (!code && device_ledger(r.device).now[MEM_COMM] == 0) code = fail(ERR_CHECK, "the slab is not in the ledger");
    for (int i = 0; i < calls && !code; i++)
        code = allreduce_enqueue(ar, device_comm(r.device), r.data, count, 0, 7, i);
    if (!code) code = stream_sync(device_comm(r.device));
    struct plan plan;
    if (!code) code = plan_build(&plan, job->algorithm, r.n, r.rank, count, &config.plan);
    if (!code) moved = plan_traffic(&plan, want);
    if (!code) plan_free(&plan);
    const struct span_log *log = code ? NULL : stream_spans(device_comm(r.device));
    if (!code && log->count != (size_t)calls) code = fail(ERR_CHECK, "%zu spans of %d calls", log->count, calls);
    for (int i = 0; i < calls && !code; i++) {
        const struct span *s = &log->spans[i];
        if (s->bytes != moved || s->phase != PHASE_ALLREDUCE || s->step != i || strcmp(s->name, "allreduce bucket 7"))
            code = fail(ERR_CHECK, "span %d: %s, %llu bytes, step %d", i, s->name, (unsigned long long)s->bytes, s->step);
    }
    for (int k = 0; k < r.n * r.n && !code; k++)
        if (device_traffic(r.device)->bytes[k / r.n][k % r.n] != (uint64_t)calls * want[k])
            code = fail(ERR_CHECK, "traffic from %d to %d is not the plan's", k / r.n, k % r.n);
    if (!code) code = allreduce_unregister(ar, r.data);
    allreduce_free(ar);
    if (!code && device_ledger(r.device).now[MEM_COMM] != 0) code = fail(ERR_CHECK, "memory was not given back");
    return rank_close(&r, code);
}

Test(allreduce_cuda_fail, spans_traffic_and_memory_are_exact, .timeout = 120) {
    need_gpus(3);
    for (int gpus = 1; gpus <= 3; gpus += 2)
        for (int a = 0; a < ALGORITHMS; a++) {
            struct job job = {.page = new_page(), .timeout_s = 50, .kind = DEVICE_CUDA, .algorithm = algorithms[a]};
            set_gpus(gpus);
            run_well(3, count_entry, &job);
        }
}
