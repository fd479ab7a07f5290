/* A GPU made of threads, with which ThreadSanitizer finds the races between threads of a kernel.
 *
 * Each thread of a block has its own stack and runs the kernel like a GPU's thread, up to the next
 * barrier; then the next thread runs (ucontext). The sanitizer sees each as a thread (a fiber), and
 * only three things order two of them:
 *
 *     the launch              the host's earlier work precedes everything in the grid
 *     a barrier of a block    its threads' earlier work precedes their later work
 *     the end of the grid     everything in the grid comes before what the host does next
 *
 * So if one thread reads a value in the phase in which another writes it, a data race is reported,
 * as on a GPU, whichever thread ran first here. The same holds between blocks, and between the
 * kernels of ranks that run at once, which only release and acquire can order (allreduce/cuda). A
 * block of which some threads end while others wait at a barrier is a failure too.
 *
 * Making a fiber takes milliseconds, so blocks take their threads from one of GPU_SETS sets, drawn
 * at random. Two blocks of one set are in order, so of a race between two given blocks 1 / GPU_SETS
 * goes unseen. What is never seen here: what a warp does in one instruction (tensor cores, for
 * which the host's text is in); caches that a weaker memory model allows to be stale where
 * release and acquire are right; atomics of less than the system's width; alignment.
 *
 * The scheduler is not instrumented. Included before the kernels' headers, whose barrier it
 * defines. */
#ifndef TESTS_STAND_INS_GPU_OF_THREADS_H
#define TESTS_STAND_INS_GPU_OF_THREADS_H

#include <sanitizer/tsan_interface.h>
#include <stdint.h>
#include <ucontext.h>
#include <unistd.h>

#include "tests/stand_ins/gpu_copies.h"

static void gpu_barrier(void);
static void gpu_yield(void);
#define BLOCK_BARRIER() gpu_barrier()

#include "device/cuda/kernels/kernel.h"

struct grid {
    uint32_t blocks, threads;
};

typedef void thread_kernel(const void *param, struct thread_index at);
typedef void block_kernel(const void *param, void *shared, struct thread_index at);

enum { GPU_STACK = 64 << 10, GPU_SETS = 3 };
enum gpu_state { GPU_RUNS, GPU_AT_BARRIER, GPU_ENDED };

/* A fiber keeps its stack: another fiber's traces on it would look like races. */
struct gpu_thread {
    ucontext_t context;
    void *fiber;
    char *stack;
    enum gpu_state state;
};

struct gpu_block {
    thread_kernel *thread_kernel; /* set if threads work by themselves, else NULL */
    block_kernel *block_kernel;
    const void *param;
    void *shared;
    struct thread_index at; /* without .thread, which each thread has for itself */
    struct gpu_thread **thread;
    /* Addresses that tell the sanitizer the order: what the block follows, and what follows it. */
    char *begin, *end;
    /* Two more, which the barriers use in turn, so that a late thread does not see the next
     * barrier. */
    char *barrier;
    uint32_t barriers;
};

struct gpu_set {
    struct gpu_thread **thread;
    uint32_t count;
};

static struct gpu {
    ucontext_t scheduler;
    void *host; /* the host's fiber */
    struct gpu_block *block;
    uint32_t thread; /* the running one */
    char begin, end; /* the addresses of a grid that the host waits for */
    struct gpu_set set[GPU_SETS];
    uint64_t draw;
} gpu;

/* Returns to the scheduler. */
GPU_NO_SANITIZE static void gpu_leave(enum gpu_state state) {
    struct gpu_thread *self = gpu.block->thread[gpu.thread];
    self->state = state;
    __tsan_switch_to_fiber(gpu.host, __tsan_switch_to_fiber_no_sync);
    swapcontext(&self->context, &gpu.scheduler);
}

GPU_NO_SANITIZE static void gpu_barrier(void) {
    struct gpu_block *block = gpu.block;
    char *meeting = &block->barrier[block->barriers % 2];
    __tsan_release(meeting);
    gpu_leave(GPU_AT_BARRIER);
    __tsan_acquire(meeting);
}

GPU_NO_SANITIZE static void gpu_yield(void) {
    gpu_leave(GPU_RUNS);
}

GPU_NO_SANITIZE static void gpu_entry(void) {
    struct gpu_block *block = gpu.block;
    struct thread_index at = block->at;
    at.thread = gpu.thread;
    __tsan_acquire(block->begin);
    if (block->thread_kernel)
        block->thread_kernel(block->param, at);
    else
        block->block_kernel(block->param, block->shared, at);
    __tsan_release(block->end);
    gpu_leave(GPU_ENDED);
}

static struct gpu_thread **gpu_threads(struct gpu_set *set, uint32_t count) {
    if (set->count >= count) return set->thread;
    set->thread = realloc(set->thread, count * sizeof(struct gpu_thread *));
    cr_assert_not_null(set->thread);
    for (; set->count < count; set->count++) {
        struct gpu_thread *thread = calloc(1, sizeof *thread);
        cr_assert_not_null(thread);
        thread->stack = malloc(GPU_STACK);
        thread->fiber = __tsan_create_fiber(0);
        set->thread[set->count] = thread;
    }
    return set->thread;
}

/* Addresses that were never used before, since the sanitizer remembers what they stood for. Freed
 * with the grid. */
static char *gpu_addresses(size_t count) {
    char *addresses = malloc(count);
    cr_assert_not_null(addresses);
    return addresses;
}

/* Starts a block with the threads of `set`, or of a set drawn at random if that is NULL. */
static void gpu_start_block(struct gpu_block *block, struct gpu_set *set) {
    gpu.draw = gpu.draw * 6364136223846793005u + 1442695040888963407u;
    block->thread =
        gpu_threads(set ? set : &gpu.set[(gpu.draw >> 33) % GPU_SETS], block->at.threads);
    block->barriers = 0;
    for (uint32_t t = 0; t < block->at.threads; t++) {
        struct gpu_thread *thread = block->thread[t];
        thread->state = GPU_RUNS;
        getcontext(&thread->context);
        thread->context.uc_stack.ss_sp = thread->stack;
        thread->context.uc_stack.ss_size = GPU_STACK;
        makecontext(&thread->context, gpu_entry, 0);
    }
}

/* Runs every thread that can run, up to where it waits. 1: the block is done. */
GPU_NO_SANITIZE static int gpu_step_block(struct gpu_block *block) {
    uint32_t count[3] = {0, 0, 0};
    gpu.block = block;
    for (gpu.thread = 0; gpu.thread < block->at.threads; gpu.thread++) {
        struct gpu_thread *thread = block->thread[gpu.thread];
        if (thread->state == GPU_RUNS) {
            gpu_copier = gpu.thread;
            __tsan_switch_to_fiber(thread->fiber, __tsan_switch_to_fiber_no_sync);
            swapcontext(&gpu.scheduler, &thread->context);
        }
        count[thread->state]++;
    }
    if (count[GPU_RUNS]) return 0;
    if (count[GPU_AT_BARRIER] && count[GPU_ENDED]) {
        fprintf(stderr, "block %u: %u threads wait at barrier %u, %u have ended\n", block->at.block,
                count[GPU_AT_BARRIER], block->barriers, count[GPU_ENDED]);
        _exit(1);
    }
    if (count[GPU_ENDED]) return 1;
    block->barriers++;
    for (uint32_t t = 0; t < block->at.threads; t++)
        block->thread[t]->state = GPU_RUNS;
    return 0;
}

static inline void gpu_begin(void) {
    gpu.host = __tsan_get_current_fiber();
    __tsan_release(&gpu.begin);
}

static inline void gpu_end(void) {
    __tsan_acquire(&gpu.end);
}

/* Runs a block of a grid that the host waits for. */
static inline void gpu_run_block(struct gpu_block *block) {
    block->begin = &gpu.begin, block->end = &gpu.end;
    gpu_start_block(block, NULL);
    while (!gpu_step_block(block)) {
    }
    gpu_copies_done();
}

static inline void gpu_run_threads(thread_kernel *kernel, const void *param, struct grid grid) {
    gpu_begin();
    for (uint32_t b = 0; b < grid.blocks; b++) {
        struct gpu_block block = {
            .thread_kernel = kernel, .param = param, .at = {b, grid.blocks, 0, grid.threads}};
        gpu_run_block(&block);
    }
    gpu_end();
}

/* Each block's shared memory has its own address, too, until the grid ends. */
static inline void gpu_run_blocks(block_kernel *kernel, const void *param, size_t shared_bytes,
                                  struct grid grid) {
    size_t bytes = (shared_bytes + 15) / 16 * 16;
    char *shared = aligned_alloc(16, grid.blocks * bytes),
         *barriers = gpu_addresses(2 * grid.blocks);
    cr_assert_not_null(shared);
    memset(shared, 0xff, grid.blocks * bytes);
    gpu_begin();
    for (uint32_t b = 0; b < grid.blocks; b++) {
        struct gpu_block block = {.block_kernel = kernel,
                                  .param = param,
                                  .shared = shared + b * bytes,
                                  .at = {b, grid.blocks, 0, grid.threads},
                                  .barrier = barriers + 2 * b};
        gpu_run_block(&block);
    }
    gpu_end();
    free(shared);
    free(barriers);
}

#endif
