/* comm/ where the system refuses something: each refusal is one true line and no process is left.
 * System calls are refused by a seccomp filter, as a sandbox does it. */
#include <sys/resource.h>

#include "tests/comm/shared.h"
#include "tests/harness/refuse.h"

enum { WORLD = 2, SKIPPED = 77 };

/* From now on this process and its children get EPERM from that system call. 0: not possible. */
static int refuse(long number) {
    struct refused_call call = {.number = number};
    return refuse_call(&call, EPERM);
}

static int well_entry(void *context) {
    struct job_case *test = context;
    struct comm *comm = join(test);
    if (!comm) return 1;
    RANK_OK(comm, test->page, comm_barrier(comm, "together"));
    return end_rank(comm, OK);
}

/* Ranks that would go on for ever: the launcher must end them although it cannot wait for them. */
static int endless_entry(void *context) {
    struct job_case *test = context;
    if (!join(test)) return 1;
    for (;;)
        sleep_ms(100);
}

/* Runs a job in a process from which spoil() has taken something. Returns its exit status; the
 * error text is on the page. */
static int run_spoilt(int (*spoil)(void), int (*entry)(void *), struct job_case *test) {
    *test = (struct job_case){.page = new_page(), .timeout_s = 20};
    pid_t launcher = fork();
    if (launcher == 0) {
        if (!spoil()) _exit(SKIPPED);
        int code;
        struct launch_result result = run_ranks(WORLD, entry, test, &code);
        snprintf(test->page->texts[WORLD], sizeof test->page->texts[0], "%s",
                 code ? error_message() : "");
        _exit(result.exit_status);
    }
    int status;
    cr_assert_eq(waitpid(launcher, &status, 0), launcher);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
        cr_skip_test("no seccomp filters here: %s", strerror(errno));
    cr_assert(nobody_left(0), "a process is left");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int refuse_waitid(void) {
    return refuse(SYS_waitid);
}
static int refuse_memfd(void) {
    return refuse(SYS_memfd_create);
}
static int refuse_pidfd(void) {
    return refuse(SYS_pidfd_open);
}
static int ignore_children(void) {
    return signal(SIGCHLD, SIG_IGN) != SIG_ERR;
}
static int limit_file_size(void) {
    struct rlimit none = {0, 0};
    signal(SIGXFSZ, SIG_IGN);
    return !setrlimit(RLIMIT_FSIZE, &none);
}

Test(comm_refused, one_true_line_each, .timeout = 60) {
    static const struct {
        int (*spoil)(void);
        int (*entry)(void *);
        const char *text;
    } CASES[] = {
        {refuse_waitid, endless_entry, "cannot wait for rank 0 (pid "},
        {refuse_waitid, well_entry, "waitid: Operation not permitted"},
        {refuse_memfd, well_entry,
         "memory of the job: memfd_create: Operation not permitted: the kernel or a sandbox"},
        {ignore_children, well_entry, "waitid: No child processes"},
        {limit_file_size, well_entry, ": File too large: raise the limit of file sizes (ulimit"},
    };
    adopt_orphans();
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct job_case test;
        int64_t start = now_ns();
        int status = run_spoilt(CASES[i].spoil, CASES[i].entry, &test);
        cr_expect_eq(status, 1, "case %zu: status %d", i, status);
        cr_expect(strstr(test.page->texts[WORLD], CASES[i].text), "case %zu: %s", i,
                  test.page->texts[WORLD]);
        cr_expect((double)(now_ns() - start) * 1e-9 < 10, "case %zu took too long", i);
    }
}

/* pidfds help, but a job works without them. */
Test(comm_refused, works_without_pidfds, .timeout = 60) {
    struct job_case test;
    adopt_orphans();
    cr_assert_eq(run_spoilt(refuse_pidfd, well_entry, &test), 0, "%s", test.page->texts[WORLD]);
}

/* Where a rank cannot even map the shared memory, its reason reaches nobody but by its own
 * output. */
static int no_memory_entry(void *context) {
    const struct job_case *test = context;
    struct rlimit none = {1, 1};
    struct comm *comm;
    setrlimit(RLIMIT_AS, &none);
    int code = comm_open(&comm, NULL);
    test->page->codes[atoi(getenv("RANK"))] = code;
    return error_exit_status(code);
}

Test(comm_refused, shared_memory_that_cannot_be_mapped, .timeout = 60) {
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    cr_skip_test("a sanitizer needs memory of its own");
#endif
    struct job_case test = {.page = new_page(), .timeout_s = 20};
    int code;
    struct launch_result result = run_ranks(1, no_memory_entry, &test, &code);
    cr_assert_eq(test.page->codes[0], ERR_MEMORY, "%d", test.page->codes[0]);
    cr_assert(!comm_open_was_reported(ERR_MEMORY) && comm_open_was_reported(ERR_FAILED));
    cr_assert(code == ERR_FAILED && result.exit_status == 1, "%d", code);
    cr_assert(!strstr(error_message(), "above") || strstr(error_message(), "if it printed one"),
              "%s", error_message());
}
