#define GROUP 1 /* the AVX2 kernels for groups of one sample */
#include "device/host/kernels/n16_avx2.c"
