/* The fast path for AVX512. */
#include "device/host/kernels/fast.h"

#if defined(__x86_64__)
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")
#define KERNELS n16_avx512_kernels
#include "device/host/kernels/n16.inc.h"
#endif
