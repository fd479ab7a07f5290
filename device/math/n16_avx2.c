/* The fast path for AVX2 with fused multiply-add. */
#include "device/math/fast.h"

#if defined(__x86_64__)
#pragma GCC target("avx2,fma")
#define KERNELS n16_avx2_kernels
#include "device/math/n16.inc.h"
#endif
