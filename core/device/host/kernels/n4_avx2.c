/* The AVX2 kernels for groups of 4 samples. */
#define GROUP 4
#include "device/host/kernels/n16_avx2.c"
