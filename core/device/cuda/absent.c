/* Linked if CUDA is not built in. The kind of device exists, but this program has no table for it,
 * and device_open says so. mk/cuda.mk takes either this file or all others of this folder. */
#include "device/table.h"

const struct device_ops *const cuda_device_ops = NULL;
