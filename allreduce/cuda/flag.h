/* Flags inside kernels: how a GPU's thread loads, stores and polls one, and how it reads the GPU's
 * clock. Each function has the GPU's own instruction, and the equivalent code for kernels that are
 * compiled for the host.
 *
 * All of them act at system scope, since a flag may be in another GPU's memory or in the host's.
 * Flags are 64 bits wide. The 32-bit functions are for a kernel's own state: the stop word, the
 * failure of a rank, the channels that are done. */
#ifndef ALLREDUCE_CUDA_FLAG_H
#define ALLREDUCE_CUDA_FLAG_H

#include "device/cuda/kernels/kernel.h"

/* The number of polls of a flag between two looks at the clock, on a GPU about 0.7 ms. */
#ifdef __CUDA_ARCH__
enum { SPIN_POLLS = 1024 };
#else
#include <sched.h>
#include <time.h>
enum { SPIN_POLLS = 32 };
#endif

/* For polls. An acquire at every poll would invalidate the multiprocessor's L1 each time, also for
 * kernels that run at the same time. */
DUET_HD uint64_t flag_load_relaxed(const uint64_t *flag) {
#ifdef __CUDA_ARCH__
    uint64_t epoch;
    asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(epoch) : "l"(flag) : "memory");
    return epoch;
#else
    return __atomic_load_n(flag, __ATOMIC_RELAXED);
#endif
}

DUET_HD uint64_t flag_load_acquire(const uint64_t *flag) {
#ifdef __CUDA_ARCH__
    uint64_t epoch;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(epoch) : "l"(flag) : "memory");
    return epoch;
#else
    return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
#endif
}

DUET_HD void flag_store_release(uint64_t *flag, uint64_t epoch) {
#ifdef __CUDA_ARCH__
    asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(flag), "l"(epoch) : "memory");
#else
    __atomic_store_n(flag, epoch, __ATOMIC_RELEASE);
#endif
}

DUET_HD uint32_t u32_load_relaxed(const uint32_t *memory) {
#ifdef __CUDA_ARCH__
    uint32_t value;
    asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(value) : "l"(memory) : "memory");
    return value;
#else
    return __atomic_load_n(memory, __ATOMIC_RELAXED);
#endif
}

DUET_HD void u32_store_release(uint32_t *memory, uint32_t value) {
#ifdef __CUDA_ARCH__
    asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(memory), "r"(value) : "memory");
#else
    __atomic_store_n(memory, value, __ATOMIC_RELEASE);
#endif
}

/* Atomic add among the threads of this GPU; returns the old value. */
DUET_HD uint32_t u32_add(uint32_t *memory, uint32_t value) {
#ifdef __CUDA_ARCH__
    uint32_t old;
    asm volatile("atom.acq_rel.gpu.add.u32 %0, [%1], %2;"
                 : "=r"(old)
                 : "l"(memory), "r"(value)
                 : "memory");
    return old;
#else
    return __atomic_fetch_add(memory, value, __ATOMIC_ACQ_REL);
#endif
}

/* Stores `value` if the memory holds 0; returns the old value. */
DUET_HD uint32_t u32_store_if_zero(uint32_t *memory, uint32_t value) {
#ifdef __CUDA_ARCH__
    uint32_t old;
    asm volatile("atom.acq_rel.sys.cas.b32 %0, [%1], 0, %2;"
                 : "=r"(old)
                 : "l"(memory), "r"(value)
                 : "memory");
    return old;
#else
    uint32_t old = 0;
    __atomic_compare_exchange_n(memory, &old, value, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    return old;
#endif
}

/* Nanoseconds from a monotonic clock, for deadlines. */
DUET_HD uint64_t spin_now(void) {
#ifdef __CUDA_ARCH__
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
#endif
}

DUET_HD void spin_pause(void) {
#ifdef __CUDA_ARCH__
    __nanosleep(200);
#else
    sched_yield();
#endif
}

#endif
