#define ALL_GROUPS /* the fast path for AVX2: kernels that do not use groups, and the table */
#include "device/host/kernels/n16_avx2.c"
