/* The fast path for AVX-512. */
#include "device/host/kernels/fast.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")
#endif
#define WIDE 16
#define OF_SIXTEEN(name) n16_avx512_##name /* called by the kernels of all groups */
#ifndef GROUP
#define GROUP 16
#define KERNELS n16_avx512_kernels
#define KERNELS_OF_8 n8_avx512_kernels
#define KERNELS_OF_4 n4_avx512_kernels
#endif
#include "device/host/kernels/n16.inc.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
