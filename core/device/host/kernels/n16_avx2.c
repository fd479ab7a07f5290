/* The fast path for AVX2 with fused multiply-add. */
#include "device/host/kernels/fast.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#define LANES 8
#define KERNELS n16_avx2_kernels
#include "device/host/kernels/n16.inc.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
