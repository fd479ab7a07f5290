/* The table of the reference kernels: reference_NAME computes the op NAME. */
#include "device/host/kernels/reference.h"

#define REFERENCE_ROW(NAME, name, text) [OP_##NAME] = reference_##name,
host_kernel *const host_reference_kernels[OP_COUNT] = {DEVICE_OPS(REFERENCE_ROW)};
