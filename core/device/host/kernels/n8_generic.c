#define GROUP 8 /* the kernels for any processor, in groups of 8 samples */
#include "device/host/kernels/n16_generic.c"
