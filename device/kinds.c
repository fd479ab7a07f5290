/* The kinds of device and their names: the place to add another. */
#include "device/table.h"

const struct device_ops *device_kind_ops(enum device_kind kind) {
    switch (kind) {
    case DEVICE_HOST:
    case DEVICE_HOST_LATE:
    case DEVICE_DRY: return &host_device_ops;
    case DEVICE_CUDA: return cuda_device_ops;
    }
    return NULL;
}

const char *device_kind_name(enum device_kind kind) {
    switch (kind) {
    case DEVICE_HOST: return "cpu";
    case DEVICE_HOST_LATE: return "cpu-late";
    case DEVICE_DRY: return "dry";
    case DEVICE_CUDA: return "cuda";
    }
    return "unknown";
}
