/* The kernels of any processor for groups of 8 samples. */
#define GROUP 8
#define KERNELS n8_generic_kernels
#include "device/host/kernels/n16_generic.c"
