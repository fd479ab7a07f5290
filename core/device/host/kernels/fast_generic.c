#define ALL_GROUPS /* the fast path for any processor: kernels that do not use groups, and the table */
#include "device/host/kernels/n16_generic.c"
