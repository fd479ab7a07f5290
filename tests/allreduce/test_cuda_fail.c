/* Allreduce on GPUs when a rank dies, stops or leaves while the others' streams (stepwise) or
 * kernels (spin) wait for its flag; what is refused at init; and the spans, traffic and memory of
 * successful calls. */
#include "tests/allreduce/cuda.h"
#include "tests/allreduce/lose.h"

#ifdef CUDA_EMULATION
enum { EMULATED = 1 };
#else
enum { EMULATED = 0 };
#endif

static void kill_each(int gpus) {
    struct job job = {.page = share(sizeof(struct page)), .kind = DEVICE_CUDA, .free_s = 3};
    need_gpus(gpus);
    for (int a = 0; a < ALGORITHMS; a++) {
        job.algorithm = algorithms[a];
        kill_one(&job, a % 3, 3);
    }
}

Test(allreduce_cuda_fail, a_killed_rank_on_a_shared_gpu, .timeout = 120) {
    kill_each(1);
}

Test(allreduce_cuda_fail, a_killed_rank_with_a_gpu_each, .timeout = 120) {
    kill_each(3);
}

static void stop_each(int gpus) {
    struct job job = {.page = share(sizeof(struct page)), .kind = DEVICE_CUDA, .free_s = 3};
    need_gpus(gpus);
    for (int a = test_short(); a < ALGORITHMS; a += 1 + test_short()) {
        job.algorithm = algorithms[a];
        stop_one(&job);
    }
}

Test(allreduce_cuda_fail, a_stopped_rank_on_a_shared_gpu_is_named, .timeout = 120) {
    stop_each(1);
}

Test(allreduce_cuda_fail, a_stopped_rank_with_a_gpu_each_is_named, .timeout = 120) {
    stop_each(2);
}

/* ---- a rank that never calls: rank 1 prepares everything, and ends only when the job does ---- */

static int absent(struct rank *r) {
    int code = OK;
    for (int i = 0; i < 40000 && !code; i++) {
        code = comm_check(r->comm);
        usleep(1000);
    }
    return code;
}

static int open_all(struct rank *r, struct job *job, const struct plan_config *plan,
                    struct allreduce **ar) {
    struct allreduce_config config = allreduce_config_default();
    config.algorithm = job->algorithm;
    if (plan) config.plan = *plan;
    CHECK(rank_open(r, job, COUNT));
    CHECK(allreduce_init(ar, r->comm, r->device, &config));
    return allreduce_register(*ar, r->data, COUNT);
}

static int close_all(struct rank *r, struct allreduce *ar, int code) {
    char text[600];
    snprintf(text, sizeof text, "%s", error_message());
    allreduce_free(ar);
    if (code) fail(code, "%s", text);
    return rank_close(r, code);
}

static const char *wait_in_vain(struct job *job, int (*entry)(void *)) {
    struct launch_result result;
    cr_assert_neq(launch_all(2, entry, job, &result), OK);
    cr_assert_eq(job->page->code[0], ERR_TIMEOUT, "%s: %d: %s",
                 allreduce_algorithm_name(job->algorithm), job->page->code[0], job->page->text[0]);
    return job->page->text[0];
}

/* The host of rank 0 only asks whether the event after the call was reached. It is reached once
 * the kernel has ended by itself; the next sync then says why. */
static int patient_entry(void *context) {
    struct rank r;
    struct allreduce *ar = NULL;
    struct event *behind;
    int code = open_all(&r, context, NULL, &ar);
    if (code) return close_all(&r, ar, code);
    if (r.rank == 1) return close_all(&r, ar, absent(&r));
    code = event_create(r.device, &behind);
    if (!code) code = allreduce_enqueue(ar, device_comm(r.device), r.data, COUNT, 1, 3, 118);
    if (!code) code = event_record(behind, device_comm(r.device));
    for (int i = 0; i < 30000 && !code && !event_done(behind); i++)
        usleep(1000);
    if (!code && !event_done(behind)) code = fail(ERR_CHECK, "the kernel still waits");
    if (!code) code = stream_sync(device_comm(r.device));
    event_destroy(behind);
    return close_all(&r, ar, code);
}

Test(allreduce_cuda_fail, a_kernel_keeps_the_deadline_by_itself, .timeout = 120) {
    static const enum allreduce_algorithm some[] = {ALLREDUCE_RING, ALLREDUCE_ONESHOT};
    need_gpus(2);
    for (int a = 0; a < 2; a++) {
        struct job job = {.page = share(sizeof(struct page)),
                          .algorithm = some[a],
                          .timeout_s = 1.5,
                          .kind = DEVICE_CUDA};
        const char *text = wait_in_vain(&job, patient_entry),
                   *name = allreduce_algorithm_name(some[a]);
        cr_assert(strstr(text, "rank 0: allreduce (") && strstr(text, name) &&
                      strstr(text, "of its plan: ") &&
                      strstr(text, "bucket 3 step 118: no word from rank 1 after 1.5 s"),
                  "%s: %s", name, text);
    }
}

/* First more calls than the ring of calls under way holds, each of them completed. Then a call of
 * more operations than a stream takes before a launch waits inside CUDA, where nobody could end
 * that wait. */
static int long_call_entry(void *context) {
    static const struct plan_config plan = {
        .align = 1, .slice = 16, .pipeline_from = 0, .slices = 3, .scratch = 4096};
    struct rank r;
    struct allreduce *ar = NULL;
    int code = open_all(&r, context, &plan, &ar);
    for (int i = 0; i < 70 && !code; i++)
        code = allreduce_enqueue(ar, device_comm(r.device), r.data, 10, 1, 0, i);
    if (!code) code = stream_sync(device_comm(r.device));
    if (!code && r.rank == 1) code = absent(&r);
    if (!code) code = allreduce_enqueue(ar, device_comm(r.device), r.data, COUNT, 1, 3, 118);
    if (!code) code = fail(ERR_CHECK, "all of it was put on the stream");
    return close_all(&r, ar, code);
}

Test(allreduce_cuda_fail, a_long_call_is_interrupted_while_it_is_enqueued, .timeout = 60) {
    struct job job = {.page = share(sizeof(struct page)),
                      .algorithm = ALLREDUCE_RING,
                      .timeout_s = 1.5,
                      .kind = DEVICE_CUDA};
    need_gpus(1);
    const char *text = wait_in_vain(&job, long_call_entry);
    cr_assert(strstr(text, "bucket 3 step 118: no word from rank 1 after 1.5 s"), "%s", text);
}

/* Steps are enqueued up to two ahead of the GPU: the fourth waits for the first, which never ends
 * here. The failure that ended its wait is the stream's error from then on. */
static int ahead_entry(void *context) {
    struct rank r;
    struct allreduce *ar = NULL;
    int code = open_all(&r, context, NULL, &ar);
    if (!code && r.rank == 1) code = absent(&r);
    long step = 0;
    float value = 1;
    while (!code && step < 10) {
        code = allreduce_enqueue(ar, device_comm(r.device), r.data, COUNT, 1, 3, step);
        step += !code;
    }
    /* The first kernel ends by itself, so one more step is enqueued. */
    int own_end = ar && !strcmp(allreduce_executor_name(ar), "spin");
    if (r.rank == 0 && (step < 3 || step > 3 + own_end))
        code = fail(ERR_CHECK, "%ld steps were enqueued", step);
    if (r.rank == 0 && code == ERR_TIMEOUT &&
        stream_write(device_comm(r.device), r.data, &value, sizeof value) != code)
        code = fail(ERR_CHECK, "the stream goes on");
    return close_all(&r, ar, code);
}

Test(allreduce_cuda_fail, the_host_stays_two_steps_ahead, .timeout = 60) {
    need_gpus(2);
    for (int gpus = 1; gpus <= 2; gpus++) {
        struct job job = {.page = share(sizeof(struct page)),
                          .algorithm = ALLREDUCE_FUSED,
                          .timeout_s = 1.5,
                          .kind = DEVICE_CUDA};
        set_gpus(gpus);
        const char *text = wait_in_vain(&job, ahead_entry);
        cr_assert(strstr(text, "bucket 3 step 0: no word from rank 1 after 1.5 s"), "%s", text);
    }
}

/* ---- a rank that leaves in good order, without the call ---- */

static int leaver_entry(void *context) {
    struct rank r;
    struct allreduce *ar = NULL;
    int code = open_all(&r, context, NULL, &ar);
    if (!code && r.rank == 1) {
        comm_close(r.comm);
        _exit(0);
    }
    if (!code) code = allreduce_enqueue(ar, device_comm(r.device), r.data, COUNT, 1, 0, 7);
    if (!code) code = stream_sync(device_comm(r.device));
    return close_all(&r, ar, code);
}

Test(allreduce_cuda_fail, a_rank_that_has_left_is_named_at_once, .timeout = 60) {
    need_gpus(2);
    for (int form = 0; form < 2 + EMULATED; form++) { /* stepwise, spin, staged */
        struct job job = {.page = share(sizeof(struct page)), .timeout_s = 30, .kind = DEVICE_CUDA};
        struct launch_result result;
        int64_t start = now_ns();
        set_gpus(form == 0 ? 1 : 2);
        set_peers(form < 2 ? "1" : "0");
        cr_assert_neq(launch_all(2, leaver_entry, &job, &result), OK);
        cr_assert_eq(job.page->code[0], ERR_PEER, "%s", job.page->text[0]);
        cr_assert(strstr(job.page->text[0], "rank 1 has left"), "%s", job.page->text[0]);
        cr_assert(now_ns() - start < 10 * 1000000000ll);
    }
}

/* ---- what init refuses ---- */

static int init_entry(void *context) {
    struct rank r;
    struct allreduce *ar = NULL;
    return close_all(&r, ar, open_all(&r, context, NULL, &ar));
}

static void init_fails(int gpus, const char *variable, const char *value, const char *words,
                       const char *more) {
    struct job job = {.page = share(sizeof(struct page)), .timeout_s = 20, .kind = DEVICE_CUDA};
    struct launch_result result;
    set_gpus(gpus);
    setenv(variable, value, 1);
    int code = launch_all(2, init_entry, &job, &result);
    unsetenv(variable);
    cr_assert_neq(code, OK, "%s=%s", variable, value);
    cr_assert(strstr(error_message(), words) && strstr(error_message(), more), "%s=%s: %s",
              variable, value, error_message());
}

Test(allreduce_cuda_fail, what_cannot_begin_says_why, .timeout = 60) {
    if (!EMULATED) cr_skip_test("faults need the emulated runtime");
    init_fails(1, "EMULATED_CUDA_FAULT", "driver:values", "stream memory operations",
               "open devices of the kind \"cpu\"");
    init_fails(1, "EMULATED_CUDA_FAULT", "ipc:1@1", "import of memory", "container");
    init_fails(2, "EMULATED_CUDA_FAULT", "host:2@0", "out of pinned host memory", "rank 0");
    init_fails(2, "EMULATED_MULTIPROCESSORS", "5", "blocks of its kernel at once, 32 are needed",
               "open devices of the kind \"cpu\"");
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
    if (!code && device_ledger(r.device).now[MEM_COMM] == 0)
        code = fail(ERR_CHECK, "the slab is not in the ledger");
    for (int i = 0; i < calls && !code; i++)
        code = allreduce_enqueue(ar, device_comm(r.device), r.data, count, 0, 7, i);
    if (!code) code = stream_sync(device_comm(r.device));
    struct plan plan;
    if (!code) code = plan_build(&plan, job->algorithm, r.n, r.rank, count, &config.plan);
    if (!code) moved = plan_traffic(&plan, want);
    if (!code) plan_free(&plan);
    const struct span_log *log = code ? NULL : stream_spans(device_comm(r.device));
    if (!code && log->count != (size_t)calls)
        code = fail(ERR_CHECK, "%zu spans of %d calls", log->count, calls);
    for (int i = 0; i < calls && !code; i++) {
        const struct span *s = &log->spans[i];
        if (s->bytes != moved || s->phase != PHASE_ALLREDUCE || s->step != i ||
            strcmp(s->name, "allreduce bucket 7"))
            code = fail(ERR_CHECK, "span %d: %s, %llu bytes, step %d", i, s->name,
                        (unsigned long long)s->bytes, s->step);
    }
    for (int k = 0; k < r.n * r.n && !code; k++)
        if (device_traffic(r.device)->bytes[k / r.n][k % r.n] != (uint64_t)calls * want[k])
            code = fail(ERR_CHECK, "traffic from %d to %d is not the plan's", k / r.n, k % r.n);
    allreduce_free(ar);
    if (!code && device_ledger(r.device).now[MEM_COMM] != 0)
        code = fail(ERR_CHECK, "memory was not given back");
    return rank_close(&r, code);
}

Test(allreduce_cuda_fail, spans_traffic_and_memory_are_exact, .timeout = 120) {
    need_gpus(3);
    for (int gpus = 1; gpus <= 3; gpus += 2)
        for (int a = 0; a < ALGORITHMS; a++) {
            struct job job = {.page = share(sizeof(struct page)),
                              .timeout_s = 50,
                              .kind = DEVICE_CUDA,
                              .algorithm = algorithms[a]};
            set_gpus(gpus);
            run_well(3, count_entry, &job);
        }
}
