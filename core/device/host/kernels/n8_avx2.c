/* The AVX2 kernels for groups of 8 samples. */
#define GROUP 8
#define KERNELS n8_avx2_kernels
#include "device/host/kernels/n16_avx2.c"
