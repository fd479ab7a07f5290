/* The kernels for groups of 8 samples on any processor. */
#define GROUP 8
#include "device/host/kernels/n16_generic.c"
