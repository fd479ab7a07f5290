/* The commands of the emulated GPU's streams: kernels, copies, small writes and host functions.
 * Each is a function of its arguments; the stream's policy decides when and where it runs. */
#include <string.h>

#include "base/error.h"
#include "device/host/host.h"

struct kernel_call {
    host_kernel *kernel;
    enum op op;
    struct op_args args;
};

static int run_kernel(void *args) {
    struct kernel_call *call = args;
    if (!call->kernel) return OK; /* on a dry device */
    host_race_check(call->op, &call->args);
    call->kernel(&call->args);
    return OK;
}

/* Scratch memory for fast kernels that need some. It grows when an op needs more than any before,
 * which happens in the first step. The smaller memory from before stays allocated, because a queued
 * command may hold its address. */
static int make_scratch(struct host_device *d, enum op op, const struct op_args *args) {
    size_t bytes = d->head.config.reference_math ? 0 : host_scratch_bytes(op, args);
    if (bytes <= d->scratch_bytes) return OK;
    void *larger;
    CHECK(device_alloc(&d->head, &larger, bytes, MEM_WORKSPACE));
    d->scratch = larger;
    d->scratch_bytes = bytes;
    return OK;
}

int host_launch(struct stream *stream, enum op op, const struct op_args *args) {
    struct host_stream *s = (struct host_stream *)stream;
    struct host_device *device = (struct host_device *)stream->device;
    struct command c;
    struct kernel_call *call = (struct kernel_call *)c.args;
    call->kernel = device_is_dry(&device->head) ? NULL : device->kernels[op];
    call->op = op;
    call->args = *args;
    CHECK(make_scratch(device, op, args));
    call->args.scratch = device->scratch;
    c.function = run_kernel;
    c.control = 0;
    if (s->head.spans.on) {
        stream_facts(&s->head, op_name_of(op, args), 0, &c.facts);
        c.facts.flops = op_flops(op, args);
    }
    return host_submit(s, &c, sizeof *call);
}

/* A GPU can only read and write pinned host memory. Its driver makes other copies by way of a
 * pinned buffer, piece by piece, and so does the emulated GPU. The buffer stays in the innermost
 * cache. gcc inlines copies of at most 8 KiB, where no sanitizer sees them: a piece may be
 * larger. */
enum { BOUNCE = 16 << 10 };

static void copy_by_way(char *destination, const char *source, size_t bytes) {
    char bounce[BOUNCE];
    for (size_t done = 0; done < bytes; done += BOUNCE) {
        size_t size = bytes - done < BOUNCE ? bytes - done : BOUNCE;
        memcpy(bounce, source + done, size);
        memcpy(destination + done, bounce, size);
    }
}

static int is_pageable(struct device *device, const void *host, size_t bytes) {
    pthread_mutex_lock(&device->lock);
    int pinned = allocations_find(&((struct host_device *)device)->pinned, host, bytes) != NULL;
    pthread_mutex_unlock(&device->lock);
    return !pinned;
}

struct copy_call {
    void *destination;
    const void *source;
    size_t bytes;
    struct traffic *traffic; /* of the device that executes the copy */
    int from, to;            /* the ends of the link; equal: nothing is charged */
    int pageable;            /* 1: one of the ends is host memory that is not pinned */
    int dry;                 /* 1: nothing is moved; host memory of the caller becomes zeros */
};

static int run_copy(void *args) {
    struct copy_call *call = args;
    if (call->dry) {
        if (call->to == LINK_HOST) memset(call->destination, 0, call->bytes);
    } else if (call->pageable)
        copy_by_way(call->destination, call->source, call->bytes);
    else
        memcpy(call->destination, call->source, call->bytes);
    if (call->from != call->to) traffic_add(call->traffic, call->from, call->to, call->bytes);
    return OK;
}

static int submit_copy(struct host_stream *s, const char *name, int to, void *destination, int from,
                       const void *source, size_t bytes) {
    struct command c;
    struct copy_call *call = (struct copy_call *)c.args;
    if (bytes == 0) return sticky_get(&s->error);
    int dry = device_is_dry(s->head.device);
    const void *host = dry                 ? NULL
                       : from == LINK_HOST ? source
                       : to == LINK_HOST   ? destination
                                           : NULL;
    *call = (struct copy_call){destination,
                               source,
                               bytes,
                               &s->head.device->traffic,
                               from,
                               to,
                               host && is_pageable(s->head.device, host, bytes),
                               dry};
    c.function = run_copy;
    c.control = 0;
    if (s->head.spans.on) stream_facts(&s->head, name, from != to ? bytes : 0, &c.facts);
    return host_submit(s, &c, sizeof *call);
}

int host_copy(struct stream *stream, struct device *to, void *destination, struct device *from,
              const void *source, size_t bytes) {
    const char *name = !from ? "copy to device" : !to ? "copy to host" : "copy peer";
    return submit_copy((struct host_stream *)stream, name, to ? to->config.index : LINK_HOST,
                       destination, from ? from->config.index : LINK_HOST, source, bytes);
}

struct write_call {
    void *destination;
    struct device *device;
    size_t bytes;
    unsigned char value[256]; /* the limit of device.h, which device/stream.c checks */
};

static int run_write(void *args) {
    struct write_call *call = args;
    if (!device_is_dry(call->device)) memcpy(call->destination, call->value, call->bytes);
    traffic_add(&call->device->traffic, LINK_HOST, call->device->config.index, call->bytes);
    return OK;
}

int host_write(struct stream *stream, void *destination, const void *value, size_t bytes) {
    struct host_stream *s = (struct host_stream *)stream;
    struct command c;
    struct write_call *call = (struct write_call *)c.args;
    if (bytes == 0) return sticky_get(&s->error);
    call->destination = destination;
    call->device = stream->device;
    call->bytes = bytes;
    memcpy(call->value, value, bytes);
    c.function = run_write;
    c.control = 0;
    if (s->head.spans.on) stream_facts(&s->head, "write", bytes, &c.facts);
    return host_submit(s, &c, offsetof(struct write_call, value) + bytes);
}

int host_call(struct stream *stream, const char *span_name, uint64_t span_bytes,
              host_function *function, const void *args, size_t args_bytes) {
    struct host_stream *s = (struct host_stream *)stream;
    struct command c;
    if (args_bytes) memcpy(c.args, args, args_bytes);
    c.function = function;
    c.control = 0;
    if (s->head.spans.on) stream_facts(&s->head, span_name, span_bytes, &c.facts);
    return host_submit(s, &c, args_bytes);
}
