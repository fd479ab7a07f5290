/* Which kinds of device this program has: the place to add another. */
#include "device/table.h"

const struct device_ops *device_kind_ops(enum device_kind kind) {
    switch (kind) {
    case DEVICE_HOST:
    case DEVICE_HOST_LATE: return &host_device_ops;
    case DEVICE_CUDA: return cuda_device_ops;
    }
    return NULL;
}
