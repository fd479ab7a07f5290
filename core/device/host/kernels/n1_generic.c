#define GROUP 1 /* the kernels for any processor, in groups of one sample */
#include "device/host/kernels/n16_generic.c"
