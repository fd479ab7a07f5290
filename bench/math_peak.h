/* Measures the peak of multiply-adds on one core, with enough chains of them in registers that none
 * waits for the previous one. */
#ifndef BENCH_MATH_PEAK_H
#define BENCH_MATH_PEAK_H

#include <stdint.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* The CPU time of this thread; other threads on the core do not count. */
static inline int64_t busy_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static inline double peak_avx512(void) {
    __m512 a[16], m = _mm512_set1_ps(.999f);
    for (int i = 0; i < 16; i++)
        a[i] = _mm512_set1_ps((float)i);
    int64_t begin = busy_ns();
    for (int i = 0; i < 2000000; i++) {
        _Pragma("GCC unroll 16") for (int j = 0; j < 16; j++) a[j] = _mm512_fmadd_ps(a[j], m, m);
    }
    double gflops = 2000000 * 16 * 32.0 / (double)(busy_ns() - begin);
    for (int i = 1; i < 16; i++)
        a[0] = _mm512_add_ps(a[0], a[i]);
    volatile float keep = _mm512_cvtss_f32(a[0]);
    (void)keep;
    return gflops;
}

__attribute__((target("avx2,fma"))) static inline double peak_avx2(void) {
    __m256 a[12], m = _mm256_set1_ps(.999f);
    for (int i = 0; i < 12; i++)
        a[i] = _mm256_set1_ps((float)i);
    int64_t begin = busy_ns();
    for (int i = 0; i < 2000000; i++) {
        _Pragma("GCC unroll 16") for (int j = 0; j < 12; j++) a[j] = _mm256_fmadd_ps(a[j], m, m);
    }
    double gflops = 2000000 * 12 * 16.0 / (double)(busy_ns() - begin);
    for (int i = 1; i < 12; i++)
        a[0] = _mm256_add_ps(a[0], a[i]);
    volatile float keep = _mm256_cvtss_f32(a[0]);
    (void)keep;
    return gflops;
}
#endif

/* GFLOP/s of an instruction set, the best of five turns; 0 if it has no loop here. */
static inline double peak_of(const char *isa) {
    double best = 0;
#if defined(__x86_64__)
    for (int i = 0; i < 5; i++) {
        double peak = strcmp(isa, "avx512") == 0 ? peak_avx512()
                      : strcmp(isa, "avx2") == 0 ? peak_avx2()
                                                 : 0;
        if (peak > best) best = peak;
    }
#else
    (void)isa;
#endif
    return best;
}

#endif
