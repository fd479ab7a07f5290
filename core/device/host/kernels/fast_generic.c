/* The fast path for any processor: its kernels that do not use groups, and its table. */
#define ALL_GROUPS
#include "device/host/kernels/n16_generic.c"
