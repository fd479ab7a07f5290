/* The arena of a model's buffers. buffer.h draws it. */
#include "nn/buffer.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { ARENA_ALIGN = 8 }; /* bytes; the size of the largest element type */

size_t buffer_spec_bytes(const struct buffer_spec *spec) {
    return dims_count(spec->dims, spec->rank) * dtype_bytes(spec->dtype);
}

static size_t aligned(size_t offset, size_t align) {
    return (offset + align - 1) / align * align;
}

size_t buffer_offset(const struct buffer_spec *specs, int count, int index) {
    size_t offset = 0;
    for (int i = 0; i < index; i++)
        offset = aligned(offset, dtype_bytes(specs[i].dtype)) + buffer_spec_bytes(&specs[i]);
    return aligned(offset, index < count ? dtype_bytes(specs[index].dtype) : ARENA_ALIGN);
}

void buffer_initial(const struct buffer_spec *specs, int count, void *arena) {
    memset(arena, 0, buffer_offset(specs, count, count));
    for (int i = 0; i < count; i++) {
        char *at = (char *)arena + buffer_offset(specs, count, i);
        for (size_t k = 0; k < dims_count(specs[i].dims, specs[i].rank); k++) {
            if (specs[i].dtype == DTYPE_I64)
                ((int64_t *)at)[k] = (int64_t)specs[i].initial;
            else
                ((float *)at)[k] = (float)specs[i].initial;
        }
    }
}

static void lay_out(struct buffer_set *set, const struct buffer_spec *specs) {
    static const int one[1] = {1};
    for (int i = 0; i < set->count; i++) {
        struct buffer *b = &set->buffer[i];
        const struct buffer_spec *spec = b->spec = &specs[i];
        b->offset = buffer_offset(specs, set->count, i);
        b->value = tensor_plain((char *)set->arena + b->offset, spec->dtype,
                                spec->rank ? spec->rank : 1, spec->rank ? spec->dims : one);
    }
}

static int write_initial(struct buffer_set *set, const struct buffer_spec *specs) {
    void *host = malloc(set->bytes);
    if (!host) return fail(ERR_MEMORY, "buffers: out of host memory for %zu bytes", set->bytes);
    buffer_initial(specs, set->count, host);
    int code = buffer_set_write(set, host);
    free(host);
    return code;
}

int buffer_set_init(struct buffer_set *set, struct device *device, const struct buffer_spec *specs,
                    int count) {
    memset(set, 0, sizeof *set);
    set->device = device;
    if (!count) return OK;
    set->count = count;
    set->bytes = buffer_offset(specs, count, count);
    if (set->bytes / sizeof(float) > INT32_MAX) { /* they are sent as one tensor of floats */
        size_t bytes = set->bytes;
        memset(set, 0, sizeof *set);
        return fail(ERR_USAGE, "buffers: %zu bytes in all: a model may have 2^33 - 4", bytes);
    }
    set->buffer = calloc((size_t)count, sizeof *set->buffer);
    int code = set->buffer ? device_alloc(device, &set->arena, set->bytes, MEM_PARAMS)
                           : fail(ERR_MEMORY, "buffers: out of host memory for all %d", count);
    if (!code) {
        lay_out(set, specs);
        code = write_initial(set, specs);
    }
    if (code) buffer_set_free(set);
    return code;
}

void buffer_set_free(struct buffer_set *set) {
    if (!set) return;
    if (set->device) device_free(set->device, set->arena);
    free(set->buffer);
    memset(set, 0, sizeof *set);
}

int buffer_set_read(struct buffer_set *set, void *host) {
    if (!set->bytes) return OK;
    struct stream *stream = device_compute(set->device);
    CHECK(copy_to_host(stream, host, set->arena, set->bytes));
    return stream_sync(stream);
}

int buffer_set_write(struct buffer_set *set, const void *host) {
    if (!set->bytes) return OK;
    struct stream *stream = device_compute(set->device);
    CHECK(copy_to_device(stream, set->arena, host, set->bytes));
    return stream_sync(stream);
}
