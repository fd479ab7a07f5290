/* The kernels for one sample on any processor. */
#define GROUP 1
#include "device/host/kernels/n16_generic.c"
