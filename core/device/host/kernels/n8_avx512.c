#define GROUP 8 /* the AVX-512 kernels for groups of 8 samples */
#include "device/host/kernels/n16_avx512.c"
