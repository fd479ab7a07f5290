/* Words that ranks say to each other from inside kernels, and the GPU's clock: a GPU's own
 * instructions, and beside them what stands for them where the kernels' text is compiled for the
 * host.
 *
 * Their width is the system: the word may lie in another GPU's memory, or in the host's. */
#ifndef ALLREDUCE_CUDA_WORDS_H
#define ALLREDUCE_CUDA_WORDS_H

#include "device/cuda/kernels/kernel.h"

#ifdef __CUDA_ARCH__
enum { SPIN_POLLS = 1024 }; /* between two looks at the clock: some 0.7 ms of polling */
#else
#include <sched.h>
#include <time.h>
enum { SPIN_POLLS = 32 };
#endif

/* For polls: an acquire at each of them would empty the multiprocessor's L1 each time, also for
 * kernels that run beside. */
DUET_HD uint64_t word_relaxed(const uint64_t *word) {
#ifdef __CUDA_ARCH__
    uint64_t value;
    asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
#else
    return __atomic_load_n(word, __ATOMIC_RELAXED);
#endif
}

DUET_HD uint64_t word_acquire(const uint64_t *word) {
#ifdef __CUDA_ARCH__
    uint64_t value;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
#else
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
#endif
}

DUET_HD void word_release(uint64_t *word, uint64_t value) {
#ifdef __CUDA_ARCH__
    asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
#else
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
#endif
}

DUET_HD uint32_t half_word_relaxed(const uint32_t *word) {
#ifdef __CUDA_ARCH__
    uint32_t value;
    asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
#else
    return __atomic_load_n(word, __ATOMIC_RELAXED);
#endif
}

DUET_HD void half_word_release(uint32_t *word, uint32_t value) {
#ifdef __CUDA_ARCH__
    asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
#else
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
#endif
}

/* Both return the old value. */
DUET_HD uint32_t half_word_add(uint32_t *word, uint32_t value) {
#ifdef __CUDA_ARCH__
    uint32_t old;
    asm volatile("atom.acq_rel.gpu.add.u32 %0, [%1], %2;"
                 : "=r"(old)
                 : "l"(word), "r"(value)
                 : "memory");
    return old;
#else
    return __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
#endif
}

DUET_HD uint32_t half_word_take(uint32_t *word, uint32_t value) { /* only if it is 0 */
#ifdef __CUDA_ARCH__
    uint32_t old;
    asm volatile("atom.acq_rel.sys.cas.b32 %0, [%1], 0, %2;"
                 : "=r"(old)
                 : "l"(word), "r"(value)
                 : "memory");
    return old;
#else
    uint32_t old = 0;
    __atomic_compare_exchange_n(word, &old, value, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    return old;
#endif
}

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
