/* Signals to the launcher of comm/: SIGINT (Ctrl-C), SIGTERM, SIGHUP, SIGKILL and SIGSTOP, while
 * the ranks wait, ignore signals, or work. No process may be left. */
#include "tests/core/comm/shared.h"

/* A job promises to end within a second; slow machines and sanitizers get longer. */
static const double SECONDS_TO_END = 5;

enum { WORLD = 3, END_TEXT = MAX_DEVICES - 1, GO_ON = 1000 };
enum kind {
    WAITING, /* wait in a barrier that rank 0 never enters */
    DEAF,    /* ignore SIGTERM and SIGINT and never look at the abort word */
    WORKING, /* call comm_gather until the test sets page->ready to GO_ON */
};

static int signal_entry(void *context) {
    const struct job_case *test = context;
    struct page *page = test->page;
    struct comm *comm = join(test);
    int code = OK, all[MAX_DEVICES] = {0};
    if (!comm) return 1;
    if (test->kind == DEAF) signal(SIGTERM, SIG_IGN), signal(SIGINT, SIG_IGN);
    __atomic_fetch_add(&page->ready, 1, __ATOMIC_SEQ_CST);
    while (test->kind == DEAF)
        sleep_ms(100);
    while (test->kind == WORKING && !code && all[0] < GO_ON) {
        int ready = __atomic_load_n(&page->ready, __ATOMIC_SEQ_CST);
        code = comm_gather(comm, &ready, sizeof ready, all);
    }
    while (test->kind == WAITING && !code) {
        code = comm_rank(comm) == 0 ? comm_check(comm) : comm_barrier(comm, "never");
        if (comm_rank(comm) == 0) sleep_ms(2);
    }
    return code ? fail_rank(comm, page, code) : end_rank(comm, OK);
}

/* Forks a launcher with a process group of its own; returns once all its ranks have joined. */
static pid_t start_launcher(struct job_case *test, int kind, int ignored) {
    *test = (struct job_case){.page = new_page(), .kind = kind, .timeout_s = 60};
    pid_t launcher = fork();
    if (launcher == 0) {
        setpgid(0, 0);
        if (ignored) signal(ignored, SIG_IGN);
        int code;
        struct launch_result result = run_ranks(WORLD, signal_entry, test, &code);
        snprintf(test->page->texts[END_TEXT], sizeof test->page->texts[0], "%d %s", result.signal,
                 code ? error_message() : "");
        _exit(result.exit_status);
    }
    int64_t deadline = deadline_after(20);
    while (__atomic_load_n(&test->page->ready, __ATOMIC_SEQ_CST) < WORLD && now_ns() < deadline)
        sleep_ms(1);
    cr_assert_eq(test->page->ready, WORLD);
    return launcher;
}

static int wait_for(pid_t launcher) {
    int status = 0;
    cr_assert_eq(waitpid(launcher, &status, 0), launcher);
    return status;
}

Test(comm_signals, end_the_ranks_and_the_launcher, .timeout = 60) {
    static const int SIGNALS[] = {SIGTERM, SIGINT, SIGHUP};
    adopt_orphans();
    for (int i = 0; i < 3; i++)
        for (int kind = WAITING; kind <= DEAF; kind++) {
            struct job_case test;
            char expected[100];
            pid_t launcher = start_launcher(&test, kind, 0);
            int64_t start = now_ns();
            kill(launcher, SIGNALS[i]);
            int status = wait_for(launcher);
            cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGNALS[i],
                      "signal %d kind %d: status %x", SIGNALS[i], kind, (unsigned)status);
            cr_assert(nobody_left(0), "signal %d kind %d: a process is left", SIGNALS[i], kind);
            cr_assert((double)(now_ns() - start) * 1e-9 < SECONDS_TO_END, "signal %d kind %d",
                      SIGNALS[i], kind);
            snprintf(expected, sizeof expected, "%d ended by signal %d (%s) to the launcher",
                     SIGNALS[i], SIGNALS[i], strsignal(SIGNALS[i]));
            cr_assert_str_eq(test.page->texts[END_TEXT], expected);
            for (int r = 0; r < WORLD && kind == WAITING; r++)
                cr_assert_eq(test.page->codes[r], ERR_PEER, "rank %d: %d", r, test.page->codes[r]);
        }
}

/* The terminal sends Ctrl-C to every process of the group: ranks may die of it before the launcher
 * has read its own signal. */
Test(comm_signals, control_c_reaches_all, .timeout = 60) {
    adopt_orphans();
    for (int i = 0; i < 20; i++) {
        struct job_case test;
        pid_t launcher = start_launcher(&test, WAITING, 0);
        for (int r = 0; r < WORLD && i % 2; r++)
            kill(test.page->pids[r], SIGINT);
        if (i % 2) sleep_ms(3); /* the launcher sees dead ranks before its own signal */
        kill(i % 2 ? launcher : -launcher, SIGINT);
        int status = wait_for(launcher);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 130, "status %x", (unsigned)status);
        cr_assert(!strncmp(test.page->texts[END_TEXT], "2 ended by signal 2", 19), "%s",
                  test.page->texts[END_TEXT]);
        cr_assert(nobody_left(0));
    }
}

Test(comm_signals, killed_launcher_takes_all_along, .timeout = 60) {
    adopt_orphans();
    for (int kind = WAITING; kind <= WORKING; kind++) {
        struct job_case test;
        pid_t launcher = start_launcher(&test, kind, 0);
        kill(launcher, SIGKILL);
        int status = wait_for(launcher);
        cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        cr_assert(nobody_left(SECONDS_TO_END), "kind %d: a process is left", kind);
    }
}

/* nohup: a signal that the launcher ignores stays ignored. */
Test(comm_signals, ignored_signal_stays_ignored, .timeout = 30) {
    struct job_case test;
    pid_t launcher = start_launcher(&test, WORKING, SIGHUP);
    kill(launcher, SIGHUP);
    sleep_ms(60);
    __atomic_store_n(&test.page->ready, GO_ON, __ATOMIC_SEQ_CST);
    int status = wait_for(launcher);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x: %s", (unsigned)status,
              test.page->texts[END_TEXT]);
}

/* Ctrl-Z and fg: the time in which the whole job was stopped hardly counts for a deadline. */
static int pausing_entry(void *context) {
    const struct job_case *test = context;
    struct comm *comm = join(test);
    if (!comm) return 1;
    __atomic_fetch_add(&test->page->ready, 1, __ATOMIC_SEQ_CST);
    while (comm_rank(comm) == 0 && __atomic_load_n(&test->page->ready, __ATOMIC_SEQ_CST) < GO_ON)
        sleep_ms(1);
    if (comm_rank(comm) == 0) sleep_ms(100); /* the others wait first, and look at the clock */
    RANK_OK(comm, test->page, comm_barrier(comm, "after the pause"));
    return end_rank(comm, OK);
}

Test(comm_signals, stopped_job_goes_on, .timeout = 60) {
    /* a stop, however long, is charged one second of the three */
    struct job_case test = {.page = new_page(), .timeout_s = 3};
    pid_t launcher = fork();
    if (launcher == 0) {
        setpgid(0, 0);
        int code;
        struct launch_result result = run_ranks(WORLD, pausing_entry, &test, &code);
        if (code) fprintf(stderr, "%s\n", error_message());
        _exit(result.exit_status);
    }
    while (__atomic_load_n(&test.page->ready, __ATOMIC_SEQ_CST) < WORLD)
        sleep_ms(1);
    kill(-launcher, SIGSTOP);
    sleep_ms(3500);
    __atomic_store_n(&test.page->ready, GO_ON, __ATOMIC_SEQ_CST);
    kill(-launcher, SIGCONT);
    int status = wait_for(launcher);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
}
