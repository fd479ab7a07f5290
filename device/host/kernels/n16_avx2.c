/* The fast path for AVX2 with fused multiply-add. */
#include "device/host/kernels/fast.h"

#if defined(__x86_64__)
#pragma GCC target("avx2,fma")
#define KERNELS n16_avx2_kernels
#include "device/host/kernels/n16.inc.h"
#endif
