/* comm/ and a machine that stands still: time in which the launcher could not run counts for
 * nothing. */
#include "tests/core/comm/shared.h"

enum { WORLD = 3 };

static void wait_until_ready(const struct page *page, int ranks) {
    while (__atomic_load_n(&page->ready, __ATOMIC_SEQ_CST) < ranks)
        sleep_ms(1);
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
    for (int i = 0; i < 20; i++) /* in pieces: one long sleep would end during the stop */
        sleep_ms(5);
    return fail_rank(comm, test->page, comm_check(comm));
}

/* A launcher with a process group of its own, which the test can stop as a whole. */
static pid_t start_group(struct job_case *test) {
    pid_t launcher = fork();
    if (launcher) {
        wait_until_ready(test->page, WORLD + 1);
        return launcher;
    }
    setpgid(0, 0);
    struct launch launch = {.world_size = WORLD, .entry = leaving_entry, .context = test};
    struct launch_result result;
    launch_ranks(&launch, &result);
    _exit(result.exit_status);
}

/* All processes stand still right after a failure, for longer than ranks have to leave: the
 * survivors must still get the time to report. */
Test(comm_standstill, survivors_have_time_after_it, .timeout = 60) {
    for (int i = 0; i < 3; i++) {
        struct job_case test = {.page = new_page(), .timeout_s = 60};
        pid_t launcher = start_group(&test);
        int status;
        sleep_ms(20); /* the launcher notices that rank 1 has ended */
        kill(-launcher, SIGSTOP);
        sleep_ms(1500);
        kill(-launcher, SIGCONT);
        cr_assert_eq(waitpid(launcher, &status, 0), launcher);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1, "%d", status);
        for (int r = 0; r < WORLD; r += 2)
            cr_assert_eq(test.page->codes[r], ERR_PEER, "rank %d was killed before it could report",
                         r);
    }
}
