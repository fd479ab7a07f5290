#define GROUP 2 /* the kernels for any processor, in groups of 2 samples */
#include "device/host/kernels/n16_generic.c"
