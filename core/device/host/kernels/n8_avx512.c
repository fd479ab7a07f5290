/* The AVX-512 kernels for groups of 8 samples. */
#define GROUP 8
#include "device/host/kernels/n16_avx512.c"
