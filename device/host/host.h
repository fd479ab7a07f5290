/* The emulated GPU's own structs. Inside device/host_*.c only; C11 atomics, so no C++.
 *
 * One mechanism runs everything: a command {function, copied arguments, the facts of its span}.
 * A stream differs only in when it runs a command:
 *
 *     inline   at once, in the caller                                    compute of `host`
 *     queue    in order, in the stream's own thread                      comm of `host`
 *     late     the same, but only as far as somebody has demanded        both of `host-late`
 *
 * Locks: device->lock, event->lock and stream->lock are never held together, so they cannot
 * deadlock; and no lock is held while a command runs. */
#ifndef DEVICE_HOST_H
#define DEVICE_HOST_H

#include <stdatomic.h>

#include "device/arena.h"
#include "device/table.h"

enum { ARGS_LIMIT = 512, ERROR_TEXT = 512 };
enum policy { POLICY_INLINE, POLICY_QUEUE, POLICY_LATE };

/* The first error of a stream or event; later ones are dropped. Who takes `taken` writes the
 * text, then `code` (release); readers look at `code` first (acquire), so they see the text
 * whole. */
struct sticky_error {
    atomic_int taken, code;
    char text[ERROR_TEXT];
};
void sticky_set(struct sticky_error *error, int code, const char *text); /* any thread */
int sticky_get(struct sticky_error *error); /* fail()s again with the text; OK if none */

/* Memory: one memfd, mapped shared, handed out by the allocator of device/arena.h. */
struct host_memfd {
    int fd;
    char *base;
    size_t bytes;
};
/* device: its number, for errors */
int host_memfd_init(struct host_memfd *memory, int device, size_t bytes);
void host_memfd_release(struct host_memfd *memory); /* half-built is fine, after memory->fd = -1 */

struct command {
    host_function *function;
    int control; /* 1: records and waits: run also after an error, and write their own span */
    struct span facts;
    _Alignas(16) unsigned char args[ARGS_LIMIT];
};

struct host_stream {
    struct stream head;
    enum policy policy;
    struct sticky_error error;
    /* queue and late only */
    int has_thread;
    pthread_t thread;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t work;  /* to the thread: a command, a demand or the end */
    pthread_cond_t done;  /* to those in sync: a command was finished */
    struct command *ring; /* command i lies at i % capacity */
    size_t capacity;
    uint64_t enqueued, finished; /* commands since the stream began */
    uint64_t demanded;           /* late: the thread may run the commands below this number */
    atomic_int closing;          /* ends waits early */
};
int host_stream_init(struct host_stream *stream, struct device *device, enum lane lane,
                     enum policy policy);
void host_stream_close(struct host_stream *stream); /* zeroed or half-built is fine */

/* Hands a command to the stream by its policy: run on the spot, or copied with the first
 * args_bytes of its args. A stream in error takes only control commands; returns the stream's
 * error. */
int host_submit(struct host_stream *stream, struct command *command, size_t args_bytes);

/* The span facts of a command of `stream`, name cut to fit; the times are filled in when it
 * runs. */
void host_facts(const struct host_stream *stream, const char *name, uint64_t bytes,
                struct span *facts);

/* The position just behind the command that its one user enqueues next: commands 0 .. position -
 * 1. */
uint64_t host_next_position(struct host_stream *stream);

/* Lets a late stream run the commands below number `position`; nothing on the others. Any
 * thread. */
void host_demand(struct host_stream *stream, uint64_t position);
int host_sync(struct stream *stream);

struct host_device {
    struct device head;
    struct host_memfd memfd;
    struct arena arena;
    struct host_stream compute, comm;
    host_kernel *kernels[OP_COUNT]; /* fast where there is one, else the reference */
    pthread_mutex_t imports_lock;
    struct mapping *imports; /* host/ipc.c; owned */
};

/* A condition variable on base/clock.h's axis, and a wait on it up to `deadline` ns of that
 * axis. */
int host_cond_init(pthread_cond_t *cond);
void host_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t deadline);

/* How often a wait that lasts looks whether it is interrupted, or its stream is being closed. */
static const int64_t HOST_POLL_NS = 20 * 1000000;

int host_event_create(struct device *device, struct event **out);
void host_event_destroy(struct event *event);
int host_event_record(struct event *event, struct stream *stream);
int host_event_wait(struct stream *stream, struct event *event);
int host_event_sync(struct event *event);
int host_event_done(struct event *event);

int host_launch(struct stream *stream, enum op op, const struct op_args *args);
/* host/race.c: before its kernel runs, in that thread */
void host_race_check(enum op op, const struct op_args *args);
int host_copy(struct stream *stream, struct device *to, void *destination, struct device *from,
              const void *source, size_t bytes);
int host_copy_imported(struct stream *stream, void *destination, const void *imported,
                       int source_device, size_t bytes);
int host_write(struct stream *stream, void *destination, const void *value, size_t bytes);
int host_call(struct stream *stream, const char *span_name, uint64_t span_bytes,
              host_function *function, const void *args, size_t args_bytes);

int host_export(struct device *device, const void *memory, size_t bytes,
                struct memory_handle *handle, int *fd);
int host_import(struct device *device, const struct memory_handle *handle, int fd, void **out);
void host_unimport(struct device *device, void *memory);
void host_unimport_all(struct host_device *device);

/* The machine's memory that is free to take now, the limits of this process's cgroups included.
 * `root` is put before /proc and /sys: "" but for tests. */
uint64_t host_memory_available(const char *root);

#endif
