#define GROUP 4 /* the AVX2 kernels for groups of 4 samples */
#include "device/host/kernels/n16_avx2.c"
