/* The functions that a kind of device must implement. This is the contract between the common files
 * of device/ and the folders device/host and device/cuda, one for each kind.
 *
 * To add a kind, make a folder with one struct device_ops and its functions, add the kind's name to
 * enum device_kind (device.h), and add its table and its name to device/kinds.c. A function may be
 * NULL only if its comment below says so. A kind embeds struct device, struct stream and struct
 * event as the first member of its own structs, so that the files of device/ can use them without
 * knowing the kind.
 *
 * device.c and stream.c do the work that must be exact and equal for all kinds: the ledger, the
 * table of live allocations, and checks of shapes and operands. A kind gets checked arguments.
 *
 * A build without CUDA links device/cuda/absent.c, which defines the symbol cuda_device_ops as
 * NULL. A build with CUDA leaves that file out and links the others of device/cuda, which define it
 * as their table. So mk/cuda.mk alone decides, and no #ifdef is needed. (A weak symbol would not
 * do: the linker does not fetch a library member for one.) */
#ifndef DEVICE_TABLE_H
#define DEVICE_TABLE_H

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "device/allocations.h"
#include "device/device.h"

struct device_ops {
    const char *name;    /* "cpu": device_name says "cpu(0)" */
    size_t device_bytes; /* size of the kind's device struct, which is zeroed before start */

    int (*probe)(int *count);                    /* implements device_probe */
    void (*libraries)(char *text, size_t bytes); /* device_libraries; NULL: it uses none */

    /* start sets memory, ledger.capacity, layout, compute, comm and copy. stop ends the streams and
     * frees all memory, also after a start that failed halfway. device.c frees the struct. */
    int (*start)(struct device *device);
    void (*stop)(struct device *device);

    /* Fills new device memory with the bits of NaN, which exposes a kernel that relies on zeros. It
     * is called if operands are checked; device->lock is held. */
    void (*spoil)(struct device *device, void *memory, size_t bytes);
    /* Implement device_host_alloc and device_host_free, host memory for transfers. */
    int (*host_alloc)(struct device *device, void **out, size_t bytes);
    void (*host_free)(struct device *device, void *memory);

    /* As in device.h, but the arguments are checked. In copy a NULL device is the host. */
    int (*sync)(struct stream *stream);
    int (*event_create)(struct device *device, struct event **out);
    void (*event_destroy)(struct event *event);
    int (*event_record)(struct event *event, struct stream *stream);
    int (*event_wait)(struct stream *stream, struct event *event);
    int (*event_sync)(struct event *event);
    int (*event_done)(struct event *event);
    int (*launch)(struct stream *stream, enum op op, const struct op_args *args);
    int (*copy)(struct stream *stream, struct device *to, void *destination, struct device *from,
                const void *source, size_t bytes);
    int (*write)(struct stream *stream, void *destination, const void *value, size_t bytes);
    /* NULL: this kind runs no host functions */
    int (*call_host)(struct stream *stream, const char *span_name, uint64_t span_bytes,
                     host_function *function, const void *args, size_t args_bytes);

    /* Memory of other processes, as in device.h. export_memory fills in what is the kind's own;
     * device.c has filled in the rest. import_memory gets a checked handle. */
    int (*export_memory)(struct device *device, struct memory_handle *handle, int *fd);
    int (*import_memory)(struct device *device, const struct memory_handle *handle, int fd,
                         void **out);
    void (*unimport_memory)(struct device *device, void *memory);
    /* Implements device_reaches. NULL: every device of the kind reaches every other. */
    int (*reaches)(struct device *device, const struct memory_handle *handle);
    /* Implement device_meet, device_p2p_fault and device_is_stuck. NULL: not needed. */
    int (*meet)(struct device *device, struct device *peer);
    const char *(*p2p_fault)(const struct device *device);
    int (*is_stuck)(const struct device *device);
};

/* The common part of each kind's device struct. kinds.c sets it before start, unless a comment says
 * otherwise. */
struct device {
    const struct device_ops *ops;
    struct device_config config;
    char name[16];
    enum layout layout;                   /* set by start */
    int cores;                            /* set by start; 0 counts as 1 */
    struct stream *compute, *comm, *copy; /* set by start */
    char *memory;         /* ledger.capacity bytes, which device.c divides; set by start */
    pthread_mutex_t lock; /* guards ledger and allocations */
    struct ledger ledger;
    struct allocations allocations; /* all live ones, by address */
    struct traffic traffic;         /* relaxed atomics */
};

/* The common part of each kind's stream struct; start sets it. */
struct stream {
    struct device *device;
    enum lane lane;
    enum phase phase;      /* of the next work; set by the thread that uses the stream */
    int32_t step;          /* of what is enqueued next; set by the thread that uses the stream */
    struct span_ends ends; /* likewise; zeroed except during a call that copies */
    /* The eager program's operations that the next kernel replaces: scheduled.h. */
    int operations, additions, concatenates, copies_input;
    struct span_log spans; /* written by the thread that executes the stream */
    /* The largest error of its spans' times relative to the host's clock; 0 if they use that clock.
     * The kind sets it if spans are on. */
    int64_t clock_error_ns;
};

/* Fills in the span of work on the stream, except its flops and times. The name is copied and cut
 * to fit. */
static inline void stream_facts(const struct stream *s, const char *name, uint64_t bytes,
                                struct span *facts) {
    memset(facts, 0, sizeof *facts);
    facts->bytes = bytes;
    facts->step = s->step;
    facts->rank = (int16_t)s->device->config.rank;
    facts->device = (int16_t)s->device->config.index;
    facts->lane = (uint8_t)s->lane;
    facts->phase = (uint8_t)s->phase;
    span_set_ends(facts, &s->ends);
    snprintf(facts->name, sizeof facts->name, "%s", name);
}

/* The common part of each kind's event struct. */
struct event {
    const struct device_ops *ops; /* a copy, since an event may be destroyed after its device */
    struct device *device;
    uint64_t scheduled, records; /* with a schedule: its key there, and how often it was recorded */
};

/* Every wait calls this repeatedly. Any code but OK, which comes with a message, ends the wait. */
static inline int device_interrupted(const struct device *device) {
    const struct device_config *c = &device->config;
    return c->interrupted ? c->interrupted(c->interrupt_context) : 0;
}

/* DEVICE_HOST, DEVICE_HOST_LATE and DEVICE_DRY, in host/device.c. */
extern const struct device_ops host_device_ops;
/* DEVICE_CUDA, in cuda/device.c; NULL from cuda/absent.c. */
extern const struct device_ops *const cuda_device_ops;

#endif
