/* The tables of the fast path, one for each instruction set; host_fast_kernel chooses one. An entry
 * is NULL if the op has no fast kernel and uses the reference. */
#ifndef DEVICE_HOST_KERNELS_FAST_H
#define DEVICE_HOST_KERNELS_FAST_H

#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/philox.h"
#include "device/attention.h"
#include "device/clip.h"
#include "device/host/kernels/conv_way.h"
#include "device/host/kernels/hash_mix.h"
#include "device/host/kernels/reference.h"

#if defined(__x86_64__)
extern host_kernel *const n16_avx512_kernels[OP_COUNT], *const n16_avx2_kernels[OP_COUNT];
#endif
/* Queries whose scores are in the scratch memory at once. */
enum { ATTENTION_BAND = 64 };

extern host_kernel *const n16_generic_kernels[OP_COUNT];

#endif
