#define GROUP 8 /* the AVX2 kernels for groups of 8 samples */
#include "device/host/kernels/n16_avx2.c"
