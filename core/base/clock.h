/* Time: one monotonic clock for spans, deadlines and benchmarks. CLOCK_MONOTONIC is the same in
 * every process of a machine, so the spans of different ranks share one time axis. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds since some fixed moment; only differences are meaningful. */
static inline int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* CPU time of the calling thread in nanoseconds. Reading it is a system call. */
static inline int64_t thread_cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A deadline is a time on that clock. A waiter computes it once and passes it down, so that no
 * inner call restarts the time. */
static inline int64_t deadline_after(double seconds) {
    return now_ns() + (int64_t)(seconds * 1e9);
}

#endif
