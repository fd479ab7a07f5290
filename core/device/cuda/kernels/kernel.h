/* The parts that all CUDA kernels of the ops share. A kernel is an ordinary function that gets the
 * number of its thread:
 *
 *     DUET_HD void k_relu_forward(const struct elementwise *e, struct thread_index at);
 *
 * On a GPU a short __global__ function calls it with the thread's own index (the .cu files, with
 * the macros of launch.h). A test calls it on the host for every block and every thread, one after
 * another, and compares the result with the reference. So index arithmetic, tails and the order of
 * every sum are tested on machines without a GPU.
 *
 * If the threads of a block work together through shared memory, the kernel is cut into phases with
 * a barrier after each. On the host a phase is a loop over all threads. A read in the same phase in
 * which another thread writes is a race. tests/cuda/test_races.c looks for races under
 * ThreadSanitizer, where each of the kernel's threads has its own stack.
 *
 * gcc compiles the source as C and nvcc as CUDA C++, with the same bits. All operations are IEEE's,
 * nothing is contracted (nvcc's --fmad=false), and only an explicit fmaf is fused. */
#ifndef DEVICE_CUDA_KERNELS_KERNEL_H
#define DEVICE_CUDA_KERNELS_KERNEL_H

#include <math.h>

#include "device/op.h"

#ifdef __CUDACC__
#define DUET_HD static __host__ __device__ __forceinline__
/* a function whose value the compiler knows */
#define DUET_CONSTANT static constexpr __host__ __device__ __forceinline__
#define ZEROED \
    {}
#else
#define DUET_HD static inline
#define DUET_CONSTANT static inline
#define ZEROED \
    { 0 }
#endif

/* Defined while nvcc compiles for the GPU; it compiles everything once more for the host. */
#ifdef __CUDA_ARCH__
#define DUET_UNROLL _Pragma("unroll")
#else
#define DUET_UNROLL
#endif

/* A kernel whose threads work together, DUET_BLOCK void k_x(p, shared, at), is written as phases:
 *
 *     BLOCK_PHASE(at) { what thread at.thread does }
 *
 * with a barrier after each. A thread's data that outlive a phase are at [STATE(at)] in an array of
 * STATES entries: registers on the GPU, one entry per thread on the host. Every thread reaches
 * every BLOCK_PHASE, so a loop around one has bounds that the whole block shares. */
enum { BLOCK_LIMIT = 256 }; /* threads of the largest block */
#ifdef __CUDACC__
#define DUET_BLOCK static __device__ __forceinline__
#define BLOCK_BARRIER() __syncthreads()
#else
#define DUET_BLOCK static inline
#endif
/* Threads run in parallel on a GPU, and in tests/stand_ins/gpu_of_threads.h. */
#ifdef BLOCK_BARRIER
enum { STATES = 1 };
#define STATE(at) 0
#define BLOCK_PHASE(at) for (int phase_ = 1; phase_; phase_ = 0, BLOCK_BARRIER())
#else
enum { STATES = BLOCK_LIMIT };
#define STATE(at) ((at).thread)
#define BLOCK_PHASE(at) for ((at).thread = 0; (at).thread < (at).threads; (at).thread++)
#endif

/* The phases that add up the parts of `threads` threads in halves, until `last` are left: in each,
 * thread t does what follows, and takes the part of thread t + half. */
#define BLOCK_FOLD(at, half, threads, last)                        \
    for (uint32_t half = (threads) / 2; half >= (last); half /= 2) \
    BLOCK_PHASE(at) if ((at).thread < half)

/* DUET_KERNEL names a kernel in a launch, on a GPU by its address. DUET_BLOCK_KERNEL is the first
 * statement of a __global__ function whose kernel is written in phases; on a GPU it is empty. The
 * tests' emulated runtime defines its own versions (tests/stand_ins/cuda_emulation/launch.h), since
 * one run of a kernel in phases covers all threads of the block there. */
#ifndef DUET_KERNEL
#define DUET_KERNEL(...) ((const void *)(__VA_ARGS__))
#define DUET_BLOCK_KERNEL(at) ((void)(at))
#endif

/* A thread's number in its block, and the block's in the grid. Both have one dimension. */
struct thread_index {
    uint32_t block, blocks, thread, threads;
};

DUET_HD size_t thread_first(struct thread_index at) {
    return (size_t)at.block * at.threads + at.thread;
}

DUET_HD size_t thread_stride(struct thread_index at) {
    return (size_t)at.blocks * at.threads;
}

DUET_HD double not_a_number(void) {
    return (double)NAN;
}

DUET_HD int is_nan(float x) {
    return x != x;
}

DUET_HD uint32_t bits_of(float x) {
#ifdef __CUDA_ARCH__
    return __float_as_uint(x);
#else
    union {
        float f;
        uint32_t u;
    } both;
    both.f = x;
    return both.u;
#endif
}

/* Four floats in one 16-byte access. `p` is in global memory, at a multiple of 16 bytes. Otherwise
 * a GPU faults, and on the host a build with SAN=undefined reports an error. The store is an
 * intrinsic, since nvcc may turn an assignment into four stores. */
struct four_floats {
    float at[4];
} __attribute__((aligned(16)));

DUET_HD void load_4(float v[4], const float *p) {
#ifdef __CUDA_ARCH__
    const float4 four = *(const float4 *)p;
    v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
#else
    const struct four_floats *four = (const struct four_floats *)(const void *)p;
    for (int i = 0; i < 4; i++)
        v[i] = four->at[i];
#endif
}

DUET_HD void store_4(float *p, const float v[4]) {
#ifdef __CUDA_ARCH__
    __stwb((float4 *)p, make_float4(v[0], v[1], v[2], v[3]));
#else
    struct four_floats *four = (struct four_floats *)(void *)p;
    for (int i = 0; i < 4; i++)
        four->at[i] = v[i];
#endif
}

static inline int is_aligned_16(const void *p) {
    return (uintptr_t)p % 16 == 0;
}

/* Division by a number that is known at launch takes a multiplication and a shift instead of about
 * twenty instructions. With s = ceil(log2 d) and m = floor(2^32 (2^s - d) / d) + 1,
 *
 *     x / d = (high(x m) + x) >> s      for all x < 2^31 and 1 <= d < 2^31
 *
 * where high is the upper half of the 64-bit product (Granlund, Montgomery: "Division by invariant
 * integers using multiplication", 1994, section 4; below 2^31 the sum does not overflow). Every
 * index that a launch divides is below 2^31. */
struct divider {
    uint32_t d, multiplier, shift;
};

static inline struct divider divider_of(uint32_t d) {
    struct divider v = {d, 0, 0};
    while (((uint64_t)1 << v.shift) < d)
        v.shift++;
    v.multiplier = (uint32_t)((((uint64_t)1 << 32) * (((uint64_t)1 << v.shift) - d)) / d + 1);
    return v;
}

DUET_HD uint32_t high_product(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
    return __umulhi(a, b);
#else
    return (uint32_t)(((uint64_t)a * b) >> 32);
#endif
}

/* Returns x / d, and sets *rest to the remainder. */
DUET_HD uint32_t divide(struct divider v, uint32_t x, uint32_t *rest) {
    uint32_t quotient = (high_product(x, v.multiplier) + x) >> v.shift;
    *rest = x - quotient * v.d;
    return quotient;
}

#endif
