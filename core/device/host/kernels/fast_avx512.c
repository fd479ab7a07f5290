#define ALL_GROUPS /* the fast path for AVX-512: kernels that do not use groups, and the table */
#include "device/host/kernels/n16_avx512.c"
