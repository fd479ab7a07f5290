/* The kernels for groups of 4 samples on any processor. */
#define GROUP 4
#include "device/host/kernels/n16_generic.c"
