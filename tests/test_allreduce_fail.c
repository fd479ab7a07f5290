/* What becomes of an allreduce when a rank dies, stops, or asks for something else. */
#include "tests/test_allreduce.h"

enum { COUNT = 100000 };

static int count_call(void *args) {
    int *calls = *(int **)args;
    __atomic_fetch_add(calls, 1, __ATOMIC_RELAXED);
    return OK;
}

/* Calls for ever, until something goes wrong. */
static int endless_entry(void *context) {
    struct job *job = context;
    struct rank r;
    struct allreduce *ar = NULL;
    struct allreduce_config config = allreduce_config_default();
    config.algorithm = job->algorithm;
    int code = rank_open(&r, job, COUNT), *calls = &job->page->calls[r.rank];
    if (!code) code = allreduce_init(&ar, r.comm, r.device, &config);
    if (!code) code = allreduce_register(ar, r.data, COUNT);
    for (long step = 0; !code; step++) {
        code = allreduce_enqueue(ar, device_comm(r.device), r.data, COUNT, 0, 2, step);
        if (!code)
            code = stream_call_host(device_comm(r.device), "count", 0, count_call, &calls, sizeof calls);
        if (!code) code = stream_sync(device_comm(r.device));
    }
    /* A failure must not make the end wait: give everything back while the victim is dead or stopped. */
    int64_t start = now_ns();
    char text[600];
    snprintf(text, sizeof text, "%s", error_message());
    allreduce_free(ar);
    if (now_ns() - start > 500 * 1000000ll) code = ERR_CHECK;
    fail(code, "%s", text);
    return rank_close(&r, code);
}

/* A process that signals the victim once it has made some calls; ends by itself. Returns its pid. */
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

static void lose_a_rank(enum allreduce_algorithm algorithm, int n, int victim, int signal, double timeout_s,
                        struct page *page, int64_t *when, struct launch_result *result) {
    struct job job = {.page = page, .algorithm = algorithm, .timeout_s = timeout_s};
    struct launch launch = {.world_size = n, .entry = endless_entry, .context = &job};
    memset(page, 0, sizeof *page);
    int status;
    pid_t killer = start_killer(page, victim, signal, when);
    cr_assert_neq(launch_ranks(&launch, result), OK);
    cr_assert_eq(waitpid(killer, &status, 0), killer);
    cr_assert_eq(status, 0, "the ranks never made 20 calls: %s", error_message());
}

Test(allreduce_fail, survivors_of_a_killed_rank_know_within_a_second, .timeout = 120) {
    struct page *page = new_page();
    int64_t *when = mmap(NULL, sizeof *when, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(when != MAP_FAILED);
    for (int a = 0; a < ALGORITHMS; a++) {
        for (int victim = 0; victim < 3; victim++) {
            struct launch_result result;
            lose_a_rank(algorithms[a], 3, victim, SIGKILL, 60, page, when, &result);
            const char *name = allreduce_algorithm_name(algorithms[a]);
            cr_assert_eq(result.exit_status, 128 + SIGKILL, "%s: status %d", name, result.exit_status);
            cr_assert_eq(result.rank, victim, "%s: rank %d is blamed for %d", name, result.rank, victim);
            for (int r = 0; r < 3; r++) {
                if (r == victim) continue;
                cr_assert_eq(page->code[r], ERR_PEER, "%s: rank %d got %d: %s", name, r, page->code[r],
                             page->text[r]);
                cr_assert(page->ended_ns[r] - *when < 1000000000, "%s: rank %d took %lld ms", name, r,
                          (long long)((page->ended_ns[r] - *when) / 1000000));
            }
        }
    }
}

Test(allreduce_fail, a_stopped_rank_is_named_at_the_deadline, .timeout = 120) {
    struct page *page = new_page();
    int64_t *when = mmap(NULL, sizeof *when, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(when != MAP_FAILED);
    for (int a = 0; a < ALGORITHMS; a++) {
        struct launch_result result;
        lose_a_rank(algorithms[a], 2, 1, SIGSTOP, 0.7, page, when, &result);
        const char *name = allreduce_algorithm_name(algorithms[a]), *text = page->text[0];
        cr_assert_eq(page->code[0], ERR_TIMEOUT, "%s: %d: %s", name, page->code[0], text);
        cr_assert(strstr(text, "rank 0") && strstr(text, "allreduce") && strstr(text, "bucket 2") &&
                      strstr(text, "step ") && strstr(text, "no word from rank 1"),
                  "%s: %s", name, text);
        cr_assert_eq(result.exit_status, 1);
    }
}

/* ---- ranks that disagree ---- */

static int disagree_entry(void *context) {
    struct job *job = context;
    struct rank r;
    struct allreduce *ar = NULL;
    struct allreduce_config config = allreduce_config_default();
    int code = rank_open(&r, job, COUNT);
    if (job->victim == 0 && r.rank == 1) config.algorithm = ALLREDUCE_RING;
    if (job->victim == 1 && r.rank == 1) config.plan.slice = 99;
    if (!code) code = allreduce_init(&ar, r.comm, r.device, &config);
    if (!code) code = allreduce_register(ar, r.data, job->victim == 2 && r.rank == 1 ? 10 : 20);
    allreduce_free(ar);
    return rank_close(&r, code);
}

Test(allreduce_fail, ranks_that_disagree_are_told, .timeout = 30) {
    static const char *const words[] = {"ring", "slice", "10"};
    for (int what = 0; what < 3; what++) {
        struct job job = {.page = new_page(), .victim = what, .timeout_s = 20};
        struct launch launch = {.world_size = 3, .entry = disagree_entry, .context = &job};
        struct launch_result result;
        cr_assert_eq(launch_ranks(&launch, &result), ERR_USAGE, "%d: %s", what, error_message());
        cr_assert_eq(result.exit_status, 2);
        cr_assert(strstr(error_message(), words[what]), "%s", error_message());
    }
}
