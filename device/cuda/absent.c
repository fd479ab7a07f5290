/* Linked where the CUDA files are not: the kind exists, this program has no table for it, and
 * device_open says so. The Makefile takes either this file or the other device/cuda*, never both
 * (device/table.h). */
#include "device/table.h"

const struct device_ops *const cuda_device_ops = NULL;
