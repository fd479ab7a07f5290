/* comm/ and processes that stand still: ranks that are stopped or blocked end by the launcher's
 * deadline; ranks that compute or poll do not, however long they take; time in which the launcher
 * itself could not run does not count. */
#include "tests/core/comm/shared.h"

static const double STALL_S = 1;
static const double SECONDS_TO_END = 5; /* a job promises one; slow machines get longer */
enum { WORLD = 3, WORK_MS = 2500 };     /* longer than STALL_S */

enum kind {
    PAUSE,        /* sleeps for ever */
    COMPUTE,      /* uses CPU time for WORK_MS and calls nothing of comm/ */
    POLL,         /* sleeps, but calls comm_check now and then, for WORK_MS */
    RANK_0_SLEEPS /* rank 0 sleeps for WORK_MS while the others compute */
};

static void compute(int ms) {
    volatile uint64_t x = 1;
    struct timespec t;
    int64_t start, now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    start = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    do {
        for (int i = 0; i < 100000; i++)
            x = x * 3 + 1;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        now = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    } while (now - start < (int64_t)ms * 1000000);
}

static int still_entry(void *context) {
    const struct job_case *test = context;
    struct comm *comm = join(test);
    if (!comm) return 1;
    __atomic_fetch_add(&test->page->ready, 1, __ATOMIC_SEQ_CST);
    while (test->kind == PAUSE)
        pause();
    if (test->kind == RANK_0_SLEEPS && comm_rank(comm) == 0)
        sleep_ms(WORK_MS);
    else if (test->kind != POLL)
        compute(WORK_MS);
    for (int64_t end = deadline_after(WORK_MS * 1e-3); test->kind == POLL && now_ns() < end;)
        if (comm_check(comm) == OK) sleep_ms(50);
    RANK_OK(comm, test->page, comm_barrier(comm, "after the work"));
    return end_rank(comm, OK);
}

static struct launch_result run_still(int world, int kind, struct job_case *test, int *code) {
    *test = (struct job_case){.page = new_page(), .kind = kind, .timeout_s = 60};
    struct launch launch = {
        .world_size = world, .entry = still_entry, .context = test, .stall_timeout_s = STALL_S};
    struct launch_result result;
    *code = launch_ranks(&launch, &result);
    return result;
}

static void must_stall(int code, struct launch_result result, const char *why) {
    cr_assert(code == ERR_TIMEOUT && result.exit_status == 1 && result.rank == 0, "%d %d %d: %s",
              code, result.exit_status, result.rank, error_message());
    cr_assert(strstr(error_message(), ": no progress for 1 s: ") && strstr(error_message(), why),
              "%s", error_message());
    cr_assert(nobody_left(0));
}

Test(comm_stall, blocked_ranks_end, .timeout = 60) {
    adopt_orphans();
    for (int world = 1; world <= WORLD; world += WORLD - 1) {
        struct job_case test;
        int code;
        int64_t start = now_ns();
        struct launch_result result = run_still(world, PAUSE, &test, &code);
        must_stall(code, result, "it waits for a file");
        cr_assert((double)(now_ns() - start) * 1e-9 < STALL_S + SECONDS_TO_END);
    }
}

static void wait_until_ready(const struct page *page, int ranks) {
    while (__atomic_load_n(&page->ready, __ATOMIC_SEQ_CST) < ranks)
        sleep_ms(1);
}

/* A process of its own stops all ranks: this one is their launcher. */
static pid_t start_stopper(const struct page *page, int world) {
    pid_t stopper = fork();
    if (stopper) return stopper;
    wait_until_ready(page, world);
    for (int r = 0; r < world; r++)
        kill(page->pids[r], SIGSTOP);
    _exit(0);
}

Test(comm_stall, stopped_ranks_end, .timeout = 60) {
    adopt_orphans();
    for (int world = 1; world <= WORLD; world += WORLD - 1) {
        struct job_case test = {.page = new_page(), .kind = COMPUTE, .timeout_s = 60};
        struct launch launch = {.world_size = world,
                                .entry = still_entry,
                                .context = &test,
                                .stall_timeout_s = STALL_S};
        struct launch_result result;
        pid_t stopper = start_stopper(test.page, world);
        int code = launch_ranks(&launch, &result);
        waitpid(stopper, NULL, 0);
        must_stall(code, result, "it was stopped");
    }
}

Test(comm_stall, slow_ranks_go_on, .timeout = 60) {
    static const struct { int kind, world; } jobs[] = {{COMPUTE, 1}, {POLL, 2}, {RANK_0_SLEEPS, 2}};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        struct job_case test;
        int code;
        run_still(jobs[i].world, jobs[i].kind, &test, &code);
        cr_assert_eq(code, OK, "kind %d, %d ranks: %s", jobs[i].kind, jobs[i].world,
                     error_message());
    }
}

Test(comm_stall, without_a_limit_a_program_may_sleep, .timeout = 60) {
    char *argv[] = {"sleep", "2", NULL};
    struct launch launch = {.world_size = 2, .argv = argv, .program = "sleep"};
    struct launch_result result;
    cr_assert_eq(launch_ranks(&launch, &result), OK, "%s", error_message());
}

/* ---- when the launcher stands still too ---- */

/* A launcher with a process group of its own, which a test can stop as a whole. */
static pid_t start_group(struct job_case *test, int world, int (*entry)(void *)) {
    pid_t launcher = fork();
    if (launcher) {
        wait_until_ready(test->page, world);
        return launcher;
    }
    setpgid(0, 0);
    struct launch launch = {
        .world_size = world, .entry = entry, .context = test, .stall_timeout_s = STALL_S};
    struct launch_result result;
    int code = launch_ranks(&launch, &result);
    if (code && entry == still_entry) fprintf(stderr, "%s\n", error_message());
    _exit(result.exit_status);
}

static int status_of(pid_t launcher) {
    int status;
    cr_assert_eq(waitpid(launcher, &status, 0), launcher);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Ctrl-Z, then fg. */
Test(comm_stall, a_stop_of_all_does_not_count, .timeout = 60) {
    struct job_case test = {.page = new_page(), .kind = COMPUTE, .timeout_s = 60};
    pid_t launcher = start_group(&test, 1, still_entry);
    kill(-launcher, SIGSTOP);
    sleep_ms((int)(3 * STALL_S * 1000));
    kill(-launcher, SIGCONT);
    cr_assert_eq(status_of(launcher), 0);
}

/* Rank 1 fails; the others notice and take 100 ms of work to leave. */
static int leaving_entry(void *context) {
    const struct job_case *test = context;
    struct comm *comm = join(test);
    if (!comm) return 1;
    __atomic_fetch_add(&test->page->ready, 1, __ATOMIC_SEQ_CST);
    if (comm_rank(comm) == 1) {
        wait_until_ready(test->page, WORLD);
        int code = fail_rank(comm, test->page, fail(ERR_FAILED, "the test wants it"));
        __atomic_fetch_add(&test->page->ready, 1, __ATOMIC_SEQ_CST);
        return code; /* its end wakes the launcher */
    }
    while (comm_check(comm) == OK)
        sleep_ms(1);
    for (int i = 0; i < 20; i++) /* in pieces: a long sleep would be over after the stop */
        sleep_ms(5);
    return fail_rank(comm, test->page, comm_check(comm));
}

/* All processes stand still right after a failure, for longer than ranks have to leave: the
 * survivors must still get the time to report. */
Test(comm_stall, survivors_have_time_after_a_standstill, .timeout = 60) {
    for (int i = 0; i < 3; i++) {
        struct job_case test = {.page = new_page(), .timeout_s = 60};
        pid_t launcher = start_group(&test, WORLD + 1, leaving_entry);
        sleep_ms(20); /* the launcher notices that rank 1 has ended */
        kill(-launcher, SIGSTOP);
        sleep_ms(1500);
        kill(-launcher, SIGCONT);
        cr_assert_eq(status_of(launcher), 1);
        for (int r = 0; r < WORLD; r += 2)
            cr_assert_eq(test.page->codes[r], ERR_PEER, "rank %d was killed before it could report",
                         r);
    }
}
