/* The AVX2 kernels for groups of 4 samples. */
#define GROUP 4
#define KERNELS n4_avx2_kernels
#include "device/host/kernels/n16_avx2.c"
