#define GROUP 2 /* the AVX2 kernels for groups of 2 samples */
#include "device/host/kernels/n16_avx2.c"
