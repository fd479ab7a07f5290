/* The whole emulated GPU: its memory, three streams, and a table of kernels. `host` and `host-late`
 * differ only in the policy of their streams; `dry` has no memory behind its addresses. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/advice.h"
#include "base/error.h"
#include "device/host/host.h"

static const uint64_t PAGE = 2 << 20; /* a huge page */

static int probe(int *count) {
    *count = MAX_DEVICES; /* more devices than cores share the cores */
    return OK;
}

/* What is mapped: whole pages. */
static int mapped_size(const struct device_config *config, size_t *bytes) {
    if (config->memory_bytes == 0 || config->memory_bytes > (uint64_t)INT64_MAX - PAGE)
        return fail(ERR_USAGE, "memory of device %d: %llu bytes: " ADVICE_MEMORY_SIZE,
                    config->index, (unsigned long long)config->memory_bytes);
    *bytes = (size_t)((config->memory_bytes + PAGE - 1) / PAGE * PAGE);
    return OK;
}

static void choose_kernels(struct host_device *d) {
    for (int op = 0; op < OP_COUNT; op++) {
        host_kernel *fast =
            d->head.config.reference_math ? NULL : host_fast_kernel((enum op)op, NULL);
        d->kernels[op] = fast ? fast : host_reference_kernels[op];
    }
}

static int start(struct device *device) {
    struct host_device *d = (struct host_device *)device;
    int dry = device_is_dry(device);
    enum policy others = device->config.kind == DEVICE_HOST_LATE ? POLICY_LATE
                         : dry                                   ? POLICY_INLINE
                                                                 : POLICY_QUEUE;
    size_t mapped = 0, bytes = (size_t)device->config.memory_bytes;
    d->memfd.fd = -1;
    pthread_mutex_init(&d->imports_lock, NULL);
    CHECK(mapped_size(&device->config, &mapped));
    int index = device->config.index;
    if (!dry) CHECK(host_memfd_init(&d->memfd, index, mapped));
    device->memory = dry ? dry_memory(index) : d->memfd.base;
    device->ledger.capacity = bytes;
    device->layout = device->config.reference_math ? LAYOUT_PLAIN : LAYOUT_N16;
    choose_kernels(d);
    device->compute = &d->compute.head;
    device->comm = &d->comm.head;
    device->copy = &d->copy.head;
    CHECK(host_stream_init(&d->compute, device, LANE_COMPUTE,
                           others == POLICY_LATE || device->config.async ? others : POLICY_INLINE));
    CHECK(host_stream_init(&d->comm, device, LANE_COMM, others));
    return host_stream_init(&d->copy, device, LANE_COPY, others);
}

static void stop(struct device *device) {
    struct host_device *d = (struct host_device *)device;
    host_stream_close(&d->copy);
    host_stream_close(&d->comm);
    host_stream_close(&d->compute);
    host_unimport_all(d);
    host_memfd_release(&d->memfd);
    allocations_free(&d->pinned);
    pthread_mutex_destroy(&d->imports_lock);
}

static void spoil(struct device *device, void *memory, size_t bytes) {
    if (!device_is_dry(device)) memset(memory, 0xff, bytes);
}

/* Memory from here counts as pinned: host_copy treats other memory differently. */
static int alloc_host(struct device *device, void **out, size_t bytes) {
    struct host_device *d = (struct host_device *)device;
    char size[32];
    int code = ERR_MEMORY;
    if (device_is_dry(device)) return *out = dry_host_memory(), OK;
    if (bytes > PTRDIFF_MAX || posix_memalign(out, 256, bytes ? bytes : 1)) *out = NULL;
    pthread_mutex_lock(&device->lock);
    if (*out) code = allocations_add(&d->pinned, *out, bytes, MEM_INPUT);
    pthread_mutex_unlock(&device->lock);
    if (!code) return OK;
    free(*out);
    *out = NULL;
    return fail(ERR_MEMORY, "out of host memory: %s asked for %s's transfers: use a smaller batch",
                format_bytes(bytes, size, sizeof size), device->name);
}

static void free_host(struct device *device, void *memory) {
    struct allocation removed;
    if (device_is_dry(device)) return;
    pthread_mutex_lock(&device->lock);
    allocations_remove(&((struct host_device *)device)->pinned, memory, &removed);
    pthread_mutex_unlock(&device->lock);
    free(memory);
}

const struct device_ops host_device_ops = {
    .name = "cpu",
    .device_bytes = sizeof(struct host_device),
    .probe = probe,
    .start = start,
    .stop = stop,
    .spoil = spoil,
    .host_alloc = alloc_host,
    .host_free = free_host,
    .sync = host_sync,
    .event_create = host_event_create,
    .event_destroy = host_event_destroy,
    .event_record = host_event_record,
    .event_wait = host_event_wait,
    .event_sync = host_event_sync,
    .event_done = host_event_done,
    .launch = host_launch,
    .copy = host_copy,
    .write = host_write,
    .call_host = host_call,
    .export_memory = host_export,
    .import_memory = host_import,
    .unimport_memory = host_unimport,
};
