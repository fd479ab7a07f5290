/* The kernels for AVX-512, for groups of 16 samples if GROUP is not defined. */
#include "device/host/kernels/fast.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")
#endif
#define WIDE 16
#define OF_ISA(name) n16_avx512_##name /* what the kernels of all group sizes share */
#ifndef GROUP
#define GROUP 16
#endif
#include "device/host/kernels/n16.inc.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
