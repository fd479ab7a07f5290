/* A GPU made of loops: it runs the blocks of a kernel one after another, and in a block the threads
 * of each phase one after another. It cannot see a race; gpu_of_threads.h, with the same words, is
 * for that. Included before the kernels' headers. (tests/README.md: which stand-in when.) */
#ifndef TESTS_STAND_INS_GPU_OF_LOOPS_H
#define TESTS_STAND_INS_GPU_OF_LOOPS_H

#include "tests/stand_ins/gpu_copies.h"

#include "device/cuda/kernels/kernel.h"

struct grid {
    uint32_t blocks, threads;
};

typedef void thread_kernel(const void *param, struct place at); /* runs one thread */
/* Runs a block of a kernel that is written in phases. */
typedef void block_kernel(const void *param, void *shared, struct place at);

static inline void gpu_run_threads(thread_kernel *kernel, const void *param, struct grid grid) {
    for (uint32_t b = 0; b < grid.blocks; b++)
        for (uint32_t t = 0; t < grid.threads; t++)
            kernel(param, (struct place){b, grid.blocks, t, grid.threads});
}

/* Shared memory has exactly its size, and starts as NaN. */
static inline void gpu_run_blocks(block_kernel *kernel, const void *param, size_t shared_bytes,
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
