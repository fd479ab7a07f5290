/* A GPU made of loops: runs a kernel's blocks one after another, and in a block the threads of
 * each phase. What that cannot see is a race; gpu_of_threads.h, with the same words, is for
 * that. Included before the kernels' headers. */
#ifndef TESTS_GPU_OF_LOOPS_H
#define TESTS_GPU_OF_LOOPS_H

#include "tests/stand_ins/gpu_copies.h"

#include "device/cuda/kernels/kernel.h"

struct grid {
    uint32_t blocks, threads;
};

typedef void lonely_kernel(const void *param, struct place at); /* one thread */
/* a block, written in phases */
typedef void sharing_kernel(const void *param, void *shared, struct place at);

static inline void gpu_run_threads(lonely_kernel *kernel, const void *param, struct grid grid) {
    for (uint32_t b = 0; b < grid.blocks; b++)
        for (uint32_t t = 0; t < grid.threads; t++)
            kernel(param, (struct place){b, grid.blocks, t, grid.threads});
}

/* Shared memory has exactly its size and starts as NaN. */
static inline void gpu_run_blocks(sharing_kernel *kernel, const void *param, size_t shared_bytes,
                                  struct grid grid) {
    for (uint32_t b = 0; b < grid.blocks; b++) {
        void *shared = aligned_alloc(16, (shared_bytes + 15) / 16 * 16);
        cr_assert_not_null(shared);
        memset(shared, 0xff, shared_bytes);
        kernel(param, shared, (struct place){b, grid.blocks, 0, grid.threads});
        gpu_copies_done();
        free(shared);
    }
}

#endif
