/* The kernels for AVX2 with fused multiply-add, for groups of 16 samples without GROUP. */
#include "device/host/kernels/fast.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#define WIDE 8
#define OF_ISA(name) n16_avx2_##name /* what the kernels of all group sizes share */
#ifndef GROUP
#define GROUP 16
#endif
#include "device/host/kernels/n16.inc.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
