/* The kinds of device and their names, where a new kind is added. The file also opens and closes a
 * device of a kind. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/advice.h"
#include "base/error.h"
#include "device/device.h"
#include "device/table.h"

enum { DEFAULT_TIMEOUT_S = 300 };

/* NULL: the kind is not built into this program. */
static const struct device_ops *ops_of(enum device_kind kind) {
    switch (kind) {
    case DEVICE_HOST:
    case DEVICE_HOST_LATE:
    case DEVICE_DRY: return &host_device_ops;
    case DEVICE_CUDA: return cuda_device_ops;
    }
    return NULL;
}

static const char *name_of(enum device_kind kind) {
    switch (kind) {
    case DEVICE_HOST: return "cpu";
    case DEVICE_HOST_LATE: return "cpu-late";
    case DEVICE_DRY: return "dry";
    case DEVICE_CUDA: return "cuda";
    }
    return "unknown";
}

static int check_config(const struct device_config *config) {
    if (config->index < 0 || config->index >= MAX_DEVICES)
        return fail(ERR_USAGE, "device %d does not exist: devices are numbered 0 to %d",
                    config->index, MAX_DEVICES - 1);
    if (!isfinite(config->timeout_s) || config->timeout_s < 0)
        return fail(ERR_USAGE, "timeout of device %d: %g s: give 0 seconds or more", config->index,
                    config->timeout_s);
    return OK;
}

static int kind_ops(const struct device_ops **ops, enum device_kind kind) {
    *ops = ops_of(kind);
    if (*ops) return OK;
    return fail(ERR_USAGE,
                "device %s: not built into this program: build it with make CUDA=1, or " ADVICE_CPU,
                name_of(kind));
}

int device_probe(enum device_kind kind, int *count) {
    const struct device_ops *ops;
    *count = 0;
    CHECK(kind_ops(&ops, kind));
    return ops->probe(count);
}

void device_libraries(enum device_kind kind, char *text, size_t bytes) {
    const struct device_ops *ops = ops_of(kind);
    snprintf(text, bytes, "%s", "");
    if (ops && ops->libraries) ops->libraries(text, bytes);
}

int device_open(struct device **out, const struct device_config *config) {
    *out = NULL;
    CHECK(check_config(config));
    const struct device_ops *ops;
    CHECK(kind_ops(&ops, config->kind));
    struct device *device = (struct device *)calloc(1, ops->device_bytes);
    if (!device)
        return fail(ERR_MEMORY, "out of host memory: device %d could not be opened", config->index);
    device->ops = ops;
    device->config = *config;
    if (config->timeout_s == 0) device->config.timeout_s = DEFAULT_TIMEOUT_S;
    snprintf(device->name, sizeof device->name, "%s(%d)", ops->name, config->index);
    pthread_mutex_init(&device->lock, NULL);

    int code = ops->start(device);
    if (code) {
        device_close(device);
        return code;
    }
    *out = device;
    return OK;
}

void device_close(struct device *device) {
    if (!device) return;
    device->ops->stop(device);
    allocations_free(&device->allocations);
    pthread_mutex_destroy(&device->lock);
    free(device);
}
