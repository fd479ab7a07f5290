/* The kernels of any processor for groups of 4 samples. */
#define GROUP 4
#define KERNELS n4_generic_kernels
#include "device/host/kernels/n16_generic.c"
