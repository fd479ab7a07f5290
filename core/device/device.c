/* The part of devices that all kinds share: their properties, and memory with its exact ledger. The
 * differences between a CPU thread and a GPU are behind device->ops (device/table.h). */
#include "device/device.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/advice.h"
#include "base/clock.h"
#include "base/error.h"
#include "device/table.h"

enum { ALIGNMENT = 256 };

int device_index(const struct device *device) {
    return device->config.index;
}

const char *device_name(const struct device *device) {
    return device->name;
}

int device_cores(const struct device *device) {
    return device->cores ? device->cores : 1;
}

const struct device_config *device_config(const struct device *device) {
    return &device->config;
}

int device_is_dry(const struct device *device) {
    return device->config.kind == DEVICE_DRY;
}

enum layout device_layout(const struct device *device) {
    return device->layout;
}

int device_whole_batch(const struct device *device, enum op op) {
    int library = device->config.kind == DEVICE_CUDA && device->config.math == DEVICE_MATH_LIBRARY;
    switch (op) {
    case OP_LINEAR_FORWARD:
    case OP_LINEAR_BACKWARD_DATA: return !library;
    default: return 1;
    }
}

/* The message gives the size requested, the free memory, the holders of the rest, and a way out. If
 * enough is free but not in one piece, it names the largest piece. */
static int out_of_memory(const struct device *device, size_t bytes, size_t largest_gap,
                         enum mem_cause cause) {
    const struct ledger *l = &device->ledger;
    char asked[32], left[32], capacity[32], piece[64] = "", largest[32], who[256];
    if (bytes <= l->capacity - l->total)
        snprintf(piece, sizeof piece, " (largest piece %s)",
                 format_bytes(largest_gap, largest, sizeof largest));
    ledger_describe(l, who, sizeof who);
    return fail(ERR_MEMORY,
                "out of memory on device %d: %s asked for %s, %s of %s free%s, held: %s: use a "
                "smaller batch or model, "
                "or " ADVICE_MORE_MEMORY,
                device->config.index, format_bytes(bytes, asked, sizeof asked),
                mem_cause_name(cause), format_bytes(l->capacity - l->total, left, sizeof left),
                format_bytes(l->capacity, capacity, sizeof capacity), piece, who);
}

/* The bytes that an allocation occupies; 0 if they do not fit a size_t. */
static size_t occupied(size_t bytes) {
    if (bytes == 0) return ALIGNMENT; /* so that every pointer is distinct */
    return bytes > SIZE_MAX - ALIGNMENT ? 0 : (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int alloc_locked(struct device *device, void **out, size_t bytes, enum mem_cause cause) {
    size_t size = occupied(bytes), capacity = (size_t)device->ledger.capacity, largest = 0;
    void *memory = NULL;
    if (size)
        memory = allocations_gap(&device->allocations, device->memory, capacity, size, &largest);
    if (!memory) return out_of_memory(device, bytes, largest, cause);
    CHECK(allocations_add(&device->allocations, memory, size, cause));
    ledger_add(&device->ledger, cause, size);
    if (device->config.check_operands) device->ops->spoil(device, memory, size);
    *out = memory;
    return OK;
}

int device_alloc(struct device *device, void **out, size_t bytes, enum mem_cause cause) {
    *out = NULL;
    pthread_mutex_lock(&device->lock);
    int code = alloc_locked(device, out, bytes, cause);
    pthread_mutex_unlock(&device->lock);
    return code;
}

void device_free(struct device *device, void *memory) {
    if (!memory) return;
    struct allocation a;
    pthread_mutex_lock(&device->lock);
    if (allocations_remove(&device->allocations, memory, &a))
        ledger_remove(&device->ledger, a.cause, a.bytes);
    pthread_mutex_unlock(&device->lock);
}

int device_host_alloc(struct device *device, void **out, size_t bytes) {
    *out = NULL;
    return device->ops->host_alloc(device, out, bytes);
}

void device_host_free(struct device *device, void *memory) {
    if (memory) device->ops->host_free(device, memory);
}

struct ledger device_ledger(const struct device *device) {
    /* const promises an unchanged ledger; the lock is not part of that promise */
    pthread_mutex_t *lock = (pthread_mutex_t *)&device->lock;
    pthread_mutex_lock(lock);
    struct ledger ledger = device->ledger;
    pthread_mutex_unlock(lock);
    return ledger;
}

const struct traffic *device_traffic(const struct device *device) {
    return &device->traffic;
}

struct traffic *device_traffic_mutable(struct device *device) {
    return &device->traffic;
}

int device_export(struct device *device, const void *memory, struct memory_handle *handle,
                  int *fd) {
    memset(handle, 0, sizeof *handle);
    *fd = -1;
    pthread_mutex_lock(&device->lock);
    const struct allocation *a = allocations_find(&device->allocations, memory, 1);
    size_t bytes = a ? (size_t)(a->address + a->bytes - (const char *)memory) : 0;
    pthread_mutex_unlock(&device->lock);
    if (!bytes)
        return fail(ERR_FAILED, "export from %s: %p: no live allocation of this device holds it",
                    device->name, memory);
    snprintf(handle->kind, sizeof handle->kind, "%s", device->ops->name);
    handle->base = (uint64_t)(uintptr_t)device->memory;
    handle->bytes = device->ledger.capacity;
    handle->offset = (uint64_t)((const char *)memory - device->memory);
    handle->size = bytes;
    handle->pid = (int32_t)getpid();
    handle->device = device->config.index;
    return device->ops->export_memory(device, handle, fd);
}

/* The handle came from another process, so it is checked before it is used. */
static int check_handle(const struct device *device, const struct memory_handle *handle) {
    if (strncmp(handle->kind, device->ops->name, sizeof handle->kind))
        return fail(ERR_FAILED, "import of device memory: the handle is of another kind of device");
    if (handle->size && handle->offset <= handle->bytes &&
        handle->size <= handle->bytes - handle->offset)
        return OK;
    return fail(ERR_FAILED,
                "import of device memory: %llu bytes at %llu: outside of the %llu bytes of "
                "device %d, process %d",
                (unsigned long long)handle->size, (unsigned long long)handle->offset,
                (unsigned long long)handle->bytes, handle->device, handle->pid);
}

int device_import(struct device *device, const struct memory_handle *handle, int fd, void **out) {
    *out = NULL;
    CHECK(check_handle(device, handle));
    return device->ops->import_memory(device, handle, fd, out);
}

int device_reaches(struct device *device, const struct memory_handle *handle) {
    return !device->ops->reaches || device->ops->reaches(device, handle);
}

int device_meet(struct device *device, struct device *peer) {
    return device->ops->meet ? device->ops->meet(device, peer) : OK;
}

const char *device_p2p_fault(const struct device *device) {
    return device->ops->p2p_fault ? device->ops->p2p_fault(device) : "";
}

int device_is_stuck(const struct device *device) {
    return device->ops->is_stuck && device->ops->is_stuck(device);
}

void device_unimport(struct device *device, void *memory) {
    if (memory) device->ops->unimport_memory(device, memory);
}
