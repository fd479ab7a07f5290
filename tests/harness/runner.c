/* The small test runner, which tests/harness/harness.h uses when Criterion is unusable, mainly
 * under ThreadSanitizer.
 *
 * Each test registers itself before main, in a constructor. main runs them one after another, each
 * in a forked child with its own process group, so that a test past its timeout is killed with
 * every rank that it started. The child, its threads and its forked ranks write whether it failed
 * or was skipped, and why, into a shared page. The parent reads that page after it has reaped the
 * child, together with the child's exit status.
 *
 *     test_x                          runs all tests
 *     test_x --filter 'ring/sums_*'   those whose suite/name matches the shell pattern
 *     test_x --here --filter ring/x   runs one test in this process, without a timeout, for tools
 *                                     that examine the program that they start
 *     test_x --list                   prints suite/name, one per line */
#include "tests/harness/harness.h"

#include <errno.h>
#include <fnmatch.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

/* Sanitizers make a test 5 to 15 times slower; its own timeout is meant for plain builds. */
#define TIMEOUT_FACTOR 4.0
#define TIMEOUT_DEFAULT 120.0

struct page {
    atomic_int failed, skipped;
    char reason[256];
};

static struct harness_test *first_test, **test_tail = &first_test;
static struct page *page;

/* The sanitizer's runtime calls this when it starts. A race ends the process at once, with a status
 * that no test expects. A process with threads may fork, and the child may start threads: ranks do
 * that. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) {
    return "halt_on_error=1:exitcode=66:die_after_fork=0";
}

void harness_add(struct harness_test *test) {
    *test_tail = test;
    test_tail = &test->next;
}

void harness_fail(bool fatal, const char *file, int line, const char *expression,
                  const char *format, ...) {
    char message[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    fprintf(stderr, "[----] %s:%d: Assertion Failed: %s is false.%s\n", file, line, expression,
            message);
    atomic_store(&page->failed, 1);
    if (fatal) _exit(1); /* not exit: other threads of the test may still run */
}

static const struct harness_test *under_way; /* in the child */

void harness_skip(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(page->reason, sizeof page->reason, format, args);
    va_end(args);
    atomic_store(&page->skipped, 1);
    if (under_way->fini) under_way->fini(); /* removes the scratch folder */
    _exit(0);
}

static void run_child(const struct harness_test *test, pid_t runner) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* the test ends if Ctrl-C ends the runner */
    if (getppid() != runner) _exit(1);
    under_way = test;
    if (test->init) test->init();
    test->body();
    if (test->fini) test->fini();
    exit(0); /* not _exit: sanitizers check for leaks at exit */
}

/* Waits for the child up to the timeout; true if it ended by itself. It still has to be reaped. */
static bool wait_child(pid_t child, double seconds) {
    int fd = (int)syscall(SYS_pidfd_open, child, 0);
    int64_t deadline = deadline_after(seconds);
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    int ready = 0;
    while (fd >= 0 && ready <= 0) {
        int64_t left = deadline - now_ns();
        if (left <= 0) break;
        ready = poll(&poll_fd, 1, (int)(left / 1000000) + 1);
        if (ready < 0 && errno != EINTR) break;
    }
    if (fd >= 0) close(fd);
    return ready > 0;
}

enum outcome { PASSED, FAILED, CRASHED, SKIPPED };

static enum outcome run_test(const struct harness_test *test) {
    const char *suite = test->suite, *name = test->name;
    double timeout = (test->timeout > 0 ? test->timeout : TIMEOUT_DEFAULT) * TIMEOUT_FACTOR;
    int64_t start = now_ns();
    memset(page, 0, sizeof *page);
    fflush(NULL);
    pid_t runner = getpid(), child = fork();
    if (child < 0) {
        fprintf(stderr, "[FAIL] %s::%s: fork: %s\n", suite, name, strerror(errno));
        return FAILED;
    }
    if (child == 0) run_child(test, runner);
    setpgid(child, child); /* the child does the same; either may come first */
    bool ended = wait_child(child, timeout);
    /* Even after a good end, since ranks that the test left behind would disturb the next one. The
     * child is not reaped yet, so the number of its group cannot belong to another one. */
    kill(-child, SIGKILL);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    double seconds = (double)(now_ns() - start) * 1e-9;

    if (!ended) {
        fprintf(stderr, "[FAIL] %s::%s: Timed out. (%.2fs)\n", suite, name, seconds);
        return FAILED;
    }
    if (atomic_load(&page->skipped) && !atomic_load(&page->failed)) {
        fprintf(stderr, "[SKIP] %s::%s: %s\n", suite, name, page->reason);
        return SKIPPED;
    }
    if (WIFSIGNALED(status) && WTERMSIG(status) != test->signal) {
        fprintf(stderr, "[FAIL] %s::%s: CRASH! %s:%d, signal %d (%s)\n", suite, name, test->file,
                test->line, WTERMSIG(status), strsignal(WTERMSIG(status)));
        return CRASHED;
    }
    bool as_told = test->signal ? WIFSIGNALED(status)
                                : WIFEXITED(status) && WEXITSTATUS(status) == test->exit_code;
    if (!atomic_load(&page->failed) && as_told) return PASSED;
    fprintf(stderr, "[FAIL] %s::%s: (%.2fs) exit status %d\n", suite, name, seconds,
            WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    return FAILED;
}

/* A failure that is fatal ends the process itself. */
static int run_here(const struct harness_test *test) {
    if (test->init) test->init();
    test->body();
    if (test->fini) test->fini();
    return atomic_load(&page->failed) ? 1 : 0;
}

int main(int argc, char **argv) {
    const char *filter = NULL;
    bool list = false, here = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--filter") && i + 1 < argc)
            filter = argv[++i];
        else if (!strncmp(argv[i], "--filter=", 9))
            filter = argv[i] + 9;
        else if (!strcmp(argv[i], "--list"))
            list = true;
        else if (!strcmp(argv[i], "--here"))
            here = true;
        /* Criterion's options, which have no effect here */
        else if (strncmp(argv[i], "-j", 2) && strcmp(argv[i], "--verbose")) {
            fprintf(stderr, "%s: unknown option: %s: use --filter SUITE/NAME or --list\n", argv[0],
                    argv[i]);
            return 2;
        }
    }
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    int count[4] = {0};
    for (struct harness_test *test = first_test; test; test = test->next) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", test->suite, test->name);
        if (test->disabled || (filter && fnmatch(filter, path, FNM_EXTMATCH))) continue;
        if (here) return run_here(test);
        if (list)
            puts(path);
        else
            count[run_test(test)]++;
    }
    if (list) return 0;
    if (here) {
        fprintf(stderr, "%s: no test %s\n", argv[0], filter ? filter : "");
        return 2;
    }
    int tested = count[PASSED] + count[FAILED] + count[CRASHED],
        failing = count[FAILED] + count[CRASHED];
    fprintf(stderr, "[====] Synthesis: Tested: %d | Passing: %d | Failing: %d | Crashing: %d \n",
            tested, count[PASSED], failing, count[CRASHED]);
    return failing ? 1 : 0;
}
