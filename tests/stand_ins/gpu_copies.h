/* Copies that a GPU's thread does not wait for (cp.async). Here each is made as late as possible,
 * when the thread waits for it. A thread that reads earlier, or never waits, does not find the
 * data. Include this before the kernels' headers. */
#ifndef TESTS_STAND_INS_GPU_COPIES_H
#define TESTS_STAND_INS_GPU_COPIES_H

#include <stdint.h>

#include "tests/harness/harness.h"

enum { GPU_COPIERS = 512, GPU_COPIES = 32 };
static struct gpu_copies {
    float *to[GPU_COPIES];
    const float *from[GPU_COPIES];
    int count;
} gpu_copies_of[GPU_COPIERS];
static uint32_t gpu_copier; /* the thread that runs */

/* The sanitizer shall see the copies, and not this list's own reads and writes. */
#define GPU_NO_SANITIZE __attribute__((no_sanitize("thread"), noinline, unused))

__attribute__((noinline, unused)) static void gpu_copy(float *to, const float *from) {
    *to = *from;
}

GPU_NO_SANITIZE static void gpu_copy_ahead(float *to, const float *from) {
    struct gpu_copies *own = &gpu_copies_of[gpu_copier];
    cr_assert_lt(own->count, GPU_COPIES);
    own->to[own->count] = to;
    own->from[own->count++] = from;
}

GPU_NO_SANITIZE static void gpu_copies_arrived(void) {
    struct gpu_copies *own = &gpu_copies_of[gpu_copier];
    for (int i = 0; i < own->count; i++)
        gpu_copy(own->to[i], own->from[i]);
    own->count = 0;
}

/* At the end of a block every copy has been waited for. */
GPU_NO_SANITIZE static void gpu_copies_done(void) {
    for (int t = 0; t < GPU_COPIERS; t++)
        cr_assert_eq(gpu_copies_of[t].count, 0,
                     "thread %d: copies under way that it has not waited for", t);
}

#define DUET_COPY_AHEAD(to, from) gpu_copy_ahead(to, from)
#define DUET_COPIES_ARRIVED() gpu_copies_arrived()

#endif
