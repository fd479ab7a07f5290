/* Ranks of a test's job: memory that they share with the test, their launch, and how one ends. */
#ifndef TESTS_HARNESS_RANKS_H
#define TESTS_HARNESS_RANKS_H

#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "comm/launch.h"
#include "tests/harness/harness.h"

/* Zeros, in memory that is shared over fork. */
static inline void *share(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(memory != MAP_FAILED);
    return memory;
}

/* Runs `entry`, which returns an exit status, in n ranks. */
static inline int launch_all(int n, int (*entry)(void *), void *context,
                             struct launch_result *result) {
    struct launch launch = {.world_size = n, .entry = entry, .context = context};
    return launch_ranks(&launch, result);
}

/* A job that must succeed. */
static inline void run_well(int n, int (*entry)(void *), void *context) {
    struct launch_result result;
    int code = launch_all(n, entry, context, &result);
    cr_assert(code == OK && result.exit_status == 0, "%d ranks: status %d: %s", n,
              result.exit_status, error_message());
}

#if defined __SANITIZE_ADDRESS__
int __lsan_do_recoverable_leak_check(void);
#endif

/* The exit status of a rank that has closed everything. Under AddressSanitizer a leak is a
 * failure. */
static inline int rank_status(int code) {
#if defined __SANITIZE_ADDRESS__
    if (__lsan_do_recoverable_leak_check()) return 99;
#endif
    return error_exit_status(code);
}

#endif
