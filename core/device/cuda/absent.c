/* This file is linked if CUDA is not built in. The kind of device then has no table, and
 * device_open reports that. mk/cuda.mk takes either this file or all others in this folder. */
#include "device/table.h"

const struct device_ops *const cuda_device_ops = NULL;
