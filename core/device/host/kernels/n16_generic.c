/* The fast path for any processor: four lanes, as SSE and NEON have. */
#include "device/host/kernels/fast.h"

#define WIDE 4
#define OF_SIXTEEN(name) n16_generic_##name /* called by the kernels of all groups */
#ifndef GROUP
#define GROUP 16
#define KERNELS n16_generic_kernels
#define KERNELS_OF_8 n8_generic_kernels
#define KERNELS_OF_4 n4_generic_kernels
#endif
#include "device/host/kernels/n16.inc.h"
