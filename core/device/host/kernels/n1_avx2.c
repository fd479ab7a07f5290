/* The AVX2 kernels for one sample. */
#define GROUP 1
#include "device/host/kernels/n16_avx2.c"
