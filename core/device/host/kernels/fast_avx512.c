/* The fast path for AVX-512: its kernels that do not use groups, and its table. */
#define ALL_GROUPS
#include "device/host/kernels/n16_avx512.c"
