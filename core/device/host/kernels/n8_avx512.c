/* The AVX-512 kernels for groups of 8 samples. */
#define GROUP 8
#define KERNELS n8_avx512_kernels
#include "device/host/kernels/n16_avx512.c"
