/* The seam between "what a device is" (device.c, the same for every kind) and "how one kind does
 * it".
 *
 * A kind is one struct device_ops and one file or two that fill it in: host_*.c for emulated
 * devices; a GPU is one more table in device/cuda_*.c, its kernels in device/cuda_*.cu. device.c
 * keeps what must be exact and alike everywhere: the ledger, the table of live allocations,
 * operand checks, shape checks. A kind embeds the structs below as the first member of its own,
 * so that device.c can make and reach them without knowing the kind.
 *
 * Kinds are found in device/kinds.c. A build without CUDA links device/cuda/absent.c, which
 * defines the one symbol cuda_device_ops as NULL; a build with CUDA leaves that file out and
 * links all other device/cuda*, which define it as their table. So the choice lies in the
 * Makefile alone, and nowhere is there an #ifdef. (A weak symbol would not do: the linker does
 * not fetch a library member for one.) */
#ifndef DEVICE_TABLE_H
#define DEVICE_TABLE_H

#include <pthread.h>

#include "device/allocations.h"
#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct device_ops {
    const char *name; /* "cpu": device_name is name(index) */
    /* of the kind's own struct, whose first member is struct device; zeroed before start */
    size_t device_bytes;

    int (*probe)(int *count);                    /* as device_probe */
    void (*libraries)(char *text, size_t bytes); /* as device_libraries; NULL: it uses none */

    /* start sets ledger.capacity, layout, compute and comm; stop takes what a failed start has
     * left, ends the streams and gives all memory back. The struct itself belongs to device.c. */
    int (*start)(struct device *device);
    void (*stop)(struct device *device);

    /* Raw memory, `bytes` a positive multiple of 256. Called under device->lock. alloc returns
     * NULL when there is no room; largest_free says how much one alloc could get, for the
     * message. */
    void *(*alloc)(struct device *device, size_t bytes);
    void (*free)(struct device *device, void *memory, size_t bytes);
    size_t (*largest_free)(struct device *device);
    int (*host_alloc)(struct device *device, void **out, size_t bytes);
    void (*host_free)(struct device *device, void *memory);

    /* As the functions of device.h; arguments are checked. In copy a NULL device is the host. */
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
    int (*copy_imported)(struct stream *stream, void *destination, const void *imported,
                         int source_device, size_t bytes);
    int (*write)(struct stream *stream, void *destination, const void *value, size_t bytes);
    int (*call_host)(struct stream *stream, const char *span_name, uint64_t span_bytes,
                     host_function *function, const void *args,
                     size_t args_bytes); /* NULL: this kind has no host executors */

    /* Recording; all NULL where a kind cannot. What may not be recorded never gets here
     * (recording.c). record_end: out NULL throws it away; the stream is usable again whatever it
     * returns. */
    int (*record_begin)(struct stream *stream);
    int (*record_end)(struct stream *stream, struct recording **out);
    int (*replay)(struct stream *stream, struct recording *recording, const char *span_name);
    void (*recording_free)(struct recording *recording);

    /* export: offset and size inside the kind's own unit of sharing. */
    int (*export_memory)(struct device *device, const void *memory, size_t bytes,
                         struct memory_handle *handle, int *fd);
    int (*import_memory)(struct device *device, const struct memory_handle *handle, int fd,
                         void **out);
    void (*unimport_memory)(struct device *device, void *memory);
};

/* What stream.c and device.c ask about recordings: recording.c. */
struct recording {
    const struct device_ops *ops;
    struct stream *stream;
};
/* ERR_FAILED "what on cuda(0): ..." where the stream is recorded, or the calling thread records
 * the device's compute stream: what is asked for cannot be part of it. The recording is broken
 * by that. */
int record_refuse(struct stream *stream, const char *what);
int record_refuse_on(struct device *device, const char *what);
/* Passes `code` on; while the stream is recorded an error breaks the recording. */
int record_keep(struct stream *stream, int code);
/* Does the calling thread record the device's compute stream? */
int record_is_mine(const struct device *device);

/* The common heads. Set by device.c before start, unless said. */
struct device {
    const struct device_ops *ops;
    struct device_config config;
    char name[16];
    enum layout layout;            /* set by start */
    struct stream *compute, *comm; /* set by start */
    pthread_mutex_t lock;          /* guards ledger, allocations and the kind's own allocator */
    struct ledger ledger;
    struct allocations allocations; /* all that is live, by address */
    struct traffic traffic;         /* relaxed atomics */
};

struct stream { /* set by start; phase and step by the thread that uses the stream */
    struct device *device;
    enum lane lane;
    enum phase phase;
    int32_t step;
    struct span_log spans; /* written by whoever executes the stream */
    /* the thread that records this stream, 0: none; relaxed atomic, for other threads ask */
    uintptr_t recorder;
    int record_error;      /* the first call that failed while recording, */
    char record_text[512]; /* and what it said; both the recorder's own */
};

struct event {
    /* here too, so that an event may be destroyed after its device was closed */
    const struct device_ops *ops;
    struct device *device;
};

/* What each wait asks between two looks at what it waits for: OK, or the code (with its text)
 * that ends it. */
static inline int device_interrupted(const struct device *device) {
    const struct device_config *c = &device->config;
    return c->interrupted ? c->interrupted(c->interrupt_context) : 0;
}

/* The table of a kind; NULL if it is not built into this program. */
const struct device_ops *device_kind_ops(enum device_kind kind);

/* host/device.c: DEVICE_HOST and DEVICE_HOST_LATE */
extern const struct device_ops host_device_ops;
/* cuda/device.c, or NULL from cuda_absent.c */
extern const struct device_ops *const cuda_device_ops;

#ifdef __cplusplus
}
#endif
#endif
