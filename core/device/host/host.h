/* The emulated GPU: what the files in device/host share. It uses C11 atomics, so it is not for C++.
 *
 * One mechanism runs everything, a command {function, copied arguments, the facts of its span}.
 * Streams differ only in when they run a command:
 *
 *     inline   at once, in the caller                              compute stream of `host`
 *     queue    in order, in the stream's own thread                its other two streams; with
 *                                                                  config.async the first as well
 *     late     the same, but only as far as demanded               all streams of `host-late`
 *
 * A dry device (device.h) is this device with inline streams and without memory. It differs in
 * three ways: its addresses have no memory (dry.c), it skips kernels, and its copies
 * only charge their links.
 *
 * The files, from the bottom up: wait.c (errors that stay, timed waits), stream.c (commands and
 * when they run), event.c, copy.c (the commands of ops, copies and writes), memfd.c, memory.c and
 * ipc.c (the memory), race.c, and device.c, which puts the device together.
 *
 * Locks: device->lock, event->lock and stream->lock are never held together, so they cannot
 * deadlock. No lock is held while a command runs. */
#ifndef DEVICE_HOST_HOST_H
#define DEVICE_HOST_HOST_H

#include <stdatomic.h>

#include "device/table.h"

enum { ARGS_LIMIT = 1040, ERROR_TEXT = 512 };
enum policy { POLICY_INLINE, POLICY_QUEUE, POLICY_LATE };

/* The first error of a stream or event; later ones are dropped. The thread that sets `taken` first
 * writes the text and then `code` (release). Readers load `code` first (acquire), so they see the
 * whole text. */
struct sticky_error {
    atomic_int taken, code;
    char text[ERROR_TEXT];
};
/* Any thread may call set. get makes the error current again (fail) and returns its code, or OK
 * without an error. */
void sticky_set(struct sticky_error *error, int code, const char *text);
int sticky_get(struct sticky_error *error);

/* The address range of dry device `index`. No process can map these addresses, so an access by
 * mistake ends the process at once. dry_host_memory stands for all host memory of dry devices, and
 * dry_imported for all memory of other processes. */
char *dry_memory(int index);
char *dry_host_memory(void);
char *dry_imported(void);

/* The memory of a device: a shared mapping of one memfd, which device.c divides. */
struct host_memfd {
    int fd; /* -1: none */
    char *base;
    size_t bytes;
};
/* `device` is the device's number. Once fd is -1, release accepts half-built memory. */
int host_memfd_init(struct host_memfd *memory, int device, size_t bytes);
void host_memfd_release(struct host_memfd *memory);

struct command {
    host_function *function;
    int control;       /* 1: a record or wait; runs after errors, too; writes its own span */
    struct span facts; /* filled in only while spans are on */
    _Alignas(16) unsigned char args[ARGS_LIMIT];
};

struct host_stream {
    struct stream head;
    enum policy policy;
    struct sticky_error error;

    /* Only for the policies queue and late: */
    int has_thread;
    pthread_t thread;
    pthread_mutex_t lock;        /* guards everything below */
    pthread_cond_t work;         /* tells the thread of a command, a demand or the end */
    pthread_cond_t done;         /* tells threads in sync that a command has finished */
    struct command *ring;        /* owned; command i is at i % capacity */
    size_t capacity;             /* capacity of ring, in commands */
    uint64_t enqueued, finished; /* commands since the stream was made */
    uint64_t demanded;           /* late devices: commands numbered below this may run */
    atomic_int closing;          /* 1: waits end early */
};
int host_stream_init(struct host_stream *stream, struct device *device, enum lane lane,
                     enum policy policy);
void host_stream_close(struct host_stream *stream); /* zeroed or half-built is fine */

/* Gives a command to the stream. Depending on the stream's policy it runs at once, or is queued
 * with a copy of the first args_bytes of its args. A stream in error accepts only control commands.
 * Returns the stream's error. */
int host_submit(struct host_stream *stream, struct command *command, size_t args_bytes);

/* The number of commands that will have been enqueued once the stream's user has enqueued the next
 * one. */
uint64_t host_next_position(struct host_stream *stream);

/* Lets a late stream run its first `position` commands; does nothing on other streams. Any thread
 * may call it. */
void host_demand(struct host_stream *stream, uint64_t position);
int host_sync(struct stream *stream);

struct host_device {
    struct device head;
    struct host_memfd memfd;
    struct allocations pinned; /* memory from host_alloc; guarded by head.lock */
    struct host_stream compute, comm, copy;
    host_kernel *kernels[OP_COUNT]; /* the fast kernel if the op has one, else the reference */
    void *scratch;                  /* device memory for the kernels of the compute stream */
    size_t scratch_bytes;
    pthread_mutex_t imports_lock;
    struct mapping *imports; /* owned; device/host/ipc.c */
};

/* How often a wait checks whether it is interrupted or its stream is being closed. */
static const int64_t HOST_POLL_NS = 20 * 1000000;

int host_event_create(struct device *device, struct event **out);
void host_event_destroy(struct event *event);
int host_event_record(struct event *event, struct stream *stream);
int host_event_wait(struct stream *stream, struct event *event);
int host_event_sync(struct event *event);
int host_event_done(struct event *event);

int host_launch(struct stream *stream, enum op op, const struct op_args *args);
/* Tells ThreadSanitizer what a kernel will read and write. The kernel's thread calls it just before
 * the kernel (device/host/race.c). */
void host_race_check(enum op op, const struct op_args *args);
int host_copy(struct stream *stream, struct device *to, void *destination, struct device *from,
              const void *source, size_t bytes);
int host_write(struct stream *stream, void *destination, const void *value, size_t bytes);
int host_call(struct stream *stream, const char *span_name, uint64_t span_bytes,
              host_function *function, const void *args, size_t args_bytes);

int host_export(struct device *device, struct memory_handle *handle, int *fd);
int host_import(struct device *device, const struct memory_handle *handle, int fd, void **out);
void host_unimport(struct device *device, void *memory);
void host_unimport_all(struct host_device *device);

/* The bytes of the machine's memory that are available now, within the limits of this process's
 * cgroups. `root` is prepended to /proc and /sys; it is "" except in tests. */
uint64_t host_memory_available(const char *root);

#endif
