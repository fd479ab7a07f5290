#define GROUP 2 /* the AVX-512 kernels for groups of 2 samples */
#include "device/host/kernels/n16_avx512.c"
