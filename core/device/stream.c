/* The part of streams that all kinds share. Each call is checked in the caller before it is
 * enqueued, so a mistake is reported where it is made. The kind decides how the work then runs. */
#include <stdio.h>

#include "base/error.h"
#include "device/scheduled.h"
#include "device/table.h"

enum { WRITE_LIMIT = 256, CALL_ARGS_LIMIT = 512 }; /* bytes, as device.h promises */

struct stream *device_compute(struct device *device) {
    return device->compute;
}

struct stream *device_comm(struct device *device) {
    return device->comm;
}

struct stream *device_copy(struct device *device) {
    return device->copy;
}

void stream_set_phase(struct stream *stream, enum phase phase, int32_t step) {
    stream->phase = phase;
    stream->step = step;
}

enum phase stream_phase(const struct stream *stream) {
    return stream->phase;
}

enum phase stream_swap_phase(struct stream *stream, enum phase phase) {
    enum phase before = stream->phase;
    stream->phase = phase;
    return before;
}

void stream_set_ends(struct stream *stream, const struct span_ends *ends) {
    stream->ends = ends ? *ends : (struct span_ends){0, 0, 0};
}

/* The bit of a device; 0 of the host, and of devices that no set can hold. */
static uint64_t bit_of(const struct device *device) {
    int index = device ? device->config.index : -1;
    return index >= 0 && index < MAX_DEVICES ? (uint64_t)1 << index : 0;
}

/* The ends of a copy; NULL: the host. */
static struct span_ends ends_of(const struct device *from, const struct device *to) {
    return (struct span_ends){.sources = bit_of(from),
                              .destinations = bit_of(to),
                              .kind =
                                  (uint8_t)((from ? 0 : SPAN_FROM_HOST) | (to ? 0 : SPAN_TO_HOST))};
}

/* A copy as the kind of device makes it, its span with both ends. */
static int copy_between(struct stream *stream, struct device *to, void *destination,
                        struct device *from, const void *source, size_t bytes) {
    struct span_ends ends = ends_of(from, to);
    stream_set_ends(stream, &ends);
    scheduled_copy(stream,
                   !from ? "copy to device"
                   : !to ? "copy to host"
                         : "copy peer",
                   from, to, bytes);
    int code = stream->device->ops->copy(stream, to, destination, from, source, bytes);
    stream_set_ends(stream, NULL);
    return code;
}

struct span_log *stream_spans(struct stream *stream) {
    return &stream->spans;
}

int64_t device_clock_error_ns(const struct device *device) {
    const struct stream *streams[] = {device->compute, device->comm, device->copy};
    int64_t most = 0;
    for (int i = 0; i < 3; i++)
        if (streams[i]->clock_error_ns > most) most = streams[i]->clock_error_ns;
    return most;
}

int stream_sync(struct stream *stream) {
    scheduled_sync(stream);
    return stream->device->ops->sync(stream);
}

int event_create(struct device *device, struct event **out) {
    *out = NULL;
    return device->ops->event_create(device, out);
}

void event_destroy(struct event *event) {
    if (event) event->ops->event_destroy(event);
}

int event_record(struct event *event, struct stream *stream) {
    if (event->device != stream->device)
        return fail(ERR_FAILED,
                    "event of another device recorded on a stream of %s: create it on that device",
                    stream->device->name);
    scheduled_record(stream, event);
    return event->ops->event_record(event, stream);
}

int stream_wait(struct stream *stream, struct event *event) {
    if (event->ops != stream->device->ops)
        return fail(
            ERR_FAILED,
            "a stream of %s cannot wait for an event of another kind of device: sync it first",
            stream->device->name);
    scheduled_wait(stream, event);
    return stream->device->ops->event_wait(stream, event);
}

int event_sync(struct event *event) {
    scheduled_host_wait(event);
    return event->ops->event_sync(event);
}

int event_done(struct event *event) {
    return event->ops->event_done(event);
}

/* address .. address + bytes must be in one live allocation of this very device. `number` is the
 * operand's index for the message; below 0 it has none. */
static int check_own(struct device *device, const char *what, const char *operand, int number,
                     const void *address, size_t bytes) {
    pthread_mutex_lock(&device->lock);
    int own = allocations_find(&device->allocations, address, bytes) != NULL;
    pthread_mutex_unlock(&device->lock);
    if (own) return OK;
    char size[32], index[16] = "";
    if (number >= 0) snprintf(index, sizeof index, "[%d]", number);
    return fail(ERR_FAILED,
                "%s on %s: %s%s (%p, %s): not in device %d's memory: copy it there first", what,
                device->name, operand, index, address, format_bytes(bytes, size, sizeof size),
                device->config.index);
}

static int check_tensors(struct device *device, enum op op, const char *operand,
                         const struct tensor *t, int count) {
    for (int i = 0; i < count; i++)
        if (t[i].data)
            CHECK(check_own(device, op_name(op), operand, i, t[i].data, tensor_bytes(&t[i])));
    return OK;
}

/* Kernels of a device that keeps activations plain know no other layout. */
static int check_layout(const struct device *device, enum op op, const struct op_args *args) {
    if (device->layout != LAYOUT_PLAIN || !op_takes_n16(args)) return OK;
    return fail(ERR_FAILED, "%s on %s: an operand in N16: this device takes plain tensors only",
                op_name(op), device->name);
}

int launch(struct stream *stream, enum op op, const struct op_args *args) {
    struct device *device = stream->device;
    CHECK(op_check(op, args));
    CHECK(check_layout(device, op, args));
    if (device->config.check_operands) {
        CHECK(check_tensors(device, op, "in", args->in, OP_INPUTS));
        CHECK(check_tensors(device, op, "out", args->out, OP_OUTPUTS));
        if (args->step)
            CHECK(check_own(device, op_name(op), "step", -1, args->step, sizeof *args->step));
    }
    scheduled_launch(stream, op, args);
    return device->ops->launch(stream, op, args);
}

int copy_to_device(struct stream *stream, void *destination, const void *host_source,
                   size_t bytes) {
    struct device *device = stream->device;
    if (device->config.check_operands)
        CHECK(check_own(device, "copy to device", "destination", -1, destination, bytes));
    return copy_between(stream, device, destination, NULL, host_source, bytes);
}

int copy_to_host(struct stream *stream, void *host_destination, const void *source, size_t bytes) {
    struct device *device = stream->device;
    if (device->config.check_operands)
        CHECK(check_own(device, "copy to host", "source", -1, source, bytes));
    return copy_between(stream, NULL, host_destination, device, source, bytes);
}

int copy_peer(struct stream *stream, struct device *to, void *destination, struct device *from,
              const void *source, size_t bytes) {
    const struct device_ops *ops = stream->device->ops;
    if (to != stream->device || from != stream->device)
        if (to->ops != ops || from->ops != ops)
            return fail(
                ERR_FAILED,
                "copy from %s to %s on a stream of %s: kinds differ: go through host memory",
                from->name, to->name, stream->device->name);
    if (stream->device->config.check_operands) {
        CHECK(check_own(to, "copy peer", "destination", -1, destination, bytes));
        CHECK(check_own(from, "copy peer", "source", -1, source, bytes));
    }
    return copy_between(stream, to, destination, from, source, bytes);
}

int stream_write(struct stream *stream, void *destination, const void *value, size_t bytes) {
    struct device *device = stream->device;
    if (bytes > WRITE_LIMIT)
        return fail(ERR_FAILED, "write on %s: %zu bytes: at most %d; use copy_to_device",
                    device->name, bytes, WRITE_LIMIT);
    if (device->config.check_operands)
        CHECK(check_own(device, "write", "destination", -1, destination, bytes));
    struct span_ends ends = ends_of(NULL, device);
    stream_set_ends(stream, &ends);
    scheduled_copy(stream, "write", NULL, device, bytes);
    int code = device->ops->write(stream, destination, value, bytes);
    stream_set_ends(stream, NULL);
    return code;
}

int stream_call_host(struct stream *stream, const char *span_name, uint64_t span_bytes,
                     host_function *function, const void *args, size_t args_bytes) {
    struct device *device = stream->device;
    if (args_bytes > CALL_ARGS_LIMIT)
        return fail(ERR_FAILED, "%s on %s: %zu bytes of arguments: at most %d; pass a pointer",
                    span_name, device->name, args_bytes, CALL_ARGS_LIMIT);
    if (!device->ops->call_host)
        return fail(ERR_FAILED, "%s on %s: this kind of device runs no host functions", span_name,
                    device->name);
    scheduled_group_begin(stream, span_name, span_bytes);
    int code = device->ops->call_host(stream, span_name, span_bytes, function, args, args_bytes);
    scheduled_group_end(stream);
    return code;
}
