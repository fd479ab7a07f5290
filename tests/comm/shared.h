/* Jobs for the tests of comm/: ranks by fork, and one page that all of them and the test share. */
#ifndef TESTS_TEST_COMM_H
#define TESTS_TEST_COMM_H

#include "tests/harness/harness.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "comm/comm.h"
#include "comm/launch.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* What ranks tell the test, in memory shared over fork. */
struct page {
    int pids[MAX_DEVICES];
    int codes[MAX_DEVICES];        /* of the call that ended the rank's work */
    char texts[MAX_DEVICES][1024]; /* its error text */
    int ready;                     /* ranks that have come as far as they should; atomic */
    int launcher;                  /* pid of a launcher that the test forked */
};

/* What a rank's function finds behind its context pointer. */
struct job_case {
    struct page *page;
    int victim, phase, kind;
    double timeout_s;
    int fds[2];
};

static inline struct page *new_page(void) {
    struct page *page =
        mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(page != MAP_FAILED);
    for (int r = 0; r < MAX_DEVICES; r++)
        page->codes[r] = -1;
    return page;
}

static inline void sleep_ms(int ms) {
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    while (nanosleep(&time, &time) && errno == EINTR)
        continue;
}

/* Orphans of a killed launcher become children of the test: waitpid then knows of every process. */
static inline void adopt_orphans(void) {
    cr_assert_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
}

/* True once no child and no orphan is left; waits for at most `seconds`. In address sanitizer
 * builds a rank looks for leaks by a process that the sanitizer starts; where the rank is killed
 * meanwhile, that one is an orphan of nobody here, on its way out. */
static inline bool nobody_left(double seconds) {
#if defined __SANITIZE_ADDRESS__
    seconds += 5;
#endif
    int64_t deadline = deadline_after(seconds);
    do {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid < 0 && errno == ECHILD) return true;
        if (pid == 0) sleep_ms(2);
    } while (now_ns() < deadline);
    return false;
}

static inline struct comm *join(const struct job_case *test) {
    struct comm *comm;
    struct comm_options options = {.timeout_s = test->timeout_s};
    if (comm_open(&comm, &options)) return NULL;
    test->page->pids[comm_rank(comm)] = (int)getpid();
    return comm;
}

/* A rank must give back all it took: in address sanitizer builds its leaks are a failure. */
#if defined __SANITIZE_ADDRESS__
int __lsan_do_recoverable_leak_check(void);
#endif
static inline int end_rank(struct comm *comm, int code) {
    comm_close(comm);
#if defined __SANITIZE_ADDRESS__
    if (__lsan_do_recoverable_leak_check()) return 99;
#endif
    return error_exit_status(code);
}

/* As a program's main does it: the failure goes to the launcher, the text to the test's page. */
static inline int fail_rank(struct comm *comm, struct page *page, int code) {
    int rank = comm_rank(comm);
    page->codes[rank] = code;
    snprintf(page->texts[rank], sizeof page->texts[rank], "%s", error_message());
    comm_abort(comm, code, error_message());
    return end_rank(comm, code);
}

static inline struct launch_result run_ranks(int ranks, int (*entry)(void *), struct job_case *test,
                                             int *code) {
    struct launch launch = {.world_size = ranks, .entry = entry, .context = test};
    struct launch_result result;
    *code = launch_ranks(&launch, &result);
    return result;
}

/* A job that must go well. */
static inline void run_well(int ranks, int (*entry)(void *), struct job_case *test) {
    int code;
    struct launch_result result = run_ranks(ranks, entry, test, &code);
    cr_assert(code == OK && result.exit_status == 0 && result.rank == -1, "%d ranks: status %d: %s",
              ranks, result.exit_status, error_message());
}

/* A check inside a rank: its text becomes the job's error, which run_well prints. */
#define RANK_CHECK(comm, page, condition, ...)                                                   \
    do {                                                                                         \
        if (!(condition)) return fail_rank(comm, page, fail(ERR_CHECK, #condition __VA_ARGS__)); \
    } while (0)
#define RANK_OK(comm, page, call)                       \
    do {                                                \
        int code_ = (call);                             \
        if (code_) return fail_rank(comm, page, code_); \
    } while (0)

#endif
