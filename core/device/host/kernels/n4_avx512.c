#define GROUP 4 /* the AVX-512 kernels for groups of 4 samples */
#include "device/host/kernels/n16_avx512.c"
