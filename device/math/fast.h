/* The tables of the fast path, one an instruction set; NULL entries: the reference serves. Chosen by
 * host_fast_kernel. */
#ifndef DEVICE_MATH_FAST_H
#define DEVICE_MATH_FAST_H

#include "base/philox.h"
#include "device/math/hash_mix.h"
#include "device/math/reference.h"

#if defined(__x86_64__)
extern host_kernel *const n16_avx512_kernels[OP_COUNT], *const n16_avx2_kernels[OP_COUNT];
#endif
extern host_kernel *const n16_generic_kernels[OP_COUNT];

#endif
