#define GROUP 4 /* the kernels for any processor, in groups of 4 samples */
#include "device/host/kernels/n16_generic.c"
