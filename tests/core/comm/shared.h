/* Jobs for the tests of comm/: forked ranks, and one page that all of them share with the test. */
#ifndef TESTS_COMM_SHARED_H
#define TESTS_COMM_SHARED_H

#include <errno.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "comm/comm.h"
#include "tests/harness/ranks.h"

/* What ranks report to the test, in memory that is shared over fork. */
struct page {
    int pids[MAX_DEVICES];
    int codes[MAX_DEVICES];        /* code of the call that ended the rank's work; -1: none yet */
    char texts[MAX_DEVICES][1024]; /* its error text */
    int ready;                     /* how many ranks are where the test wants them; atomic */
    struct comm_flag never_posted __attribute__((aligned(128)));
};

/* The context of a rank's entry function. Each test uses the fields that it needs. */
struct job_case {
    struct page *page;
    int victim, phase, kind;
    double timeout_s;
};

static inline struct page *new_page(void) {
    struct page *page = share(sizeof *page);
    for (int r = 0; r < MAX_DEVICES; r++)
        page->codes[r] = -1;
    return page;
}

static inline void sleep_ms(int ms) {
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    while (nanosleep(&time, &time) && errno == EINTR)
        continue;
}

/* Makes the orphans of a killed launcher children of the test, so that waitpid knows of them
 * all. */
static inline void adopt_orphans(void) {
    cr_assert_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
}

/* True once no child and no orphan is left; waits for at most `seconds`. Under AddressSanitizer a
 * rank looks for leaks by a helper process; if the rank is killed meanwhile, that helper becomes an
 * orphan that takes a while to end, hence the longer limit. */
static inline int nobody_left(double seconds) {
#if defined __SANITIZE_ADDRESS__
    seconds += 5;
#endif
    int64_t deadline = deadline_after(seconds);
    do {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid < 0 && errno == ECHILD) return 1;
        if (pid == 0) sleep_ms(2);
    } while (now_ns() < deadline);
    return 0;
}

static inline struct comm *join(const struct job_case *test) {
    struct comm *comm;
    struct comm_options options = {.timeout_s = test->timeout_s};
    if (comm_open(&comm, &options)) return NULL;
    test->page->pids[comm_rank(comm)] = (int)getpid();
    return comm;
}

/* Leaves the job; returns the rank's exit status. Under AddressSanitizer a leak is a failure. */
static inline int end_rank(struct comm *comm, int code) {
    comm_close(comm);
    return rank_status(code);
}

/* What a rank's main does with a failure: it reports it to the launcher (and here to the test's
 * page) and leaves. */
static inline int fail_rank(struct comm *comm, struct page *page, int code) {
    int rank = comm_rank(comm);
    page->codes[rank] = code;
    snprintf(page->texts[rank], sizeof page->texts[rank], "%s", error_message());
    comm_abort(comm, code, error_message());
    return end_rank(comm, code);
}

static inline struct launch_result run_ranks(int ranks, int (*entry)(void *), struct job_case *test,
                                             int *code) {
    struct launch_result result;
    *code = launch_all(ranks, entry, test, &result);
    return result;
}

/* Checks inside a rank. The text of a failed check becomes the job's error, which run_well
 * prints. */
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
