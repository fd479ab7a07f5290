/* The fast path for AVX2 with fused multiply-add. */
#include "device/host/kernels/fast.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#define WIDE 8
#define OF_SIXTEEN(name) n16_avx2_##name /* called by the kernels of all groups */
#ifndef GROUP
#define GROUP 16
#define KERNELS n16_avx2_kernels
#define KERNELS_OF_8 n8_avx2_kernels
#define KERNELS_OF_4 n4_avx2_kernels
#endif
#include "device/host/kernels/n16.inc.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
