#define GROUP 1 /* the AVX-512 kernels for groups of one sample */
#include "device/host/kernels/n16_avx512.c"
