/* The fast path for AVX2: its kernels that do not use groups, and its table. */
#define ALL_GROUPS
#include "device/host/kernels/n16_avx2.c"
