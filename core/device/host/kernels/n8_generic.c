/* The kernels for groups of 8 samples on any processor. */
#define GROUP 8
#define KERNELS n8_generic_kernels
#include "device/host/kernels/n16_generic.c"
