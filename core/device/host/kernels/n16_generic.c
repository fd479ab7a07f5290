/* The fast path for any processor: four lanes, as SSE and NEON have. Where the target has no fused
 * multiply-add each lane calls fmaf, which is slow and gives the same bits. */
#include "device/host/kernels/fast.h"

#define LANES 4
#define KERNELS n16_generic_kernels
#include "device/host/kernels/n16.inc.h"
