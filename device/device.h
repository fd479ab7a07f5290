/* Devices: what a GPU is to the rest of the house. Memory, streams, events, copies, launches,
 * IPC, behind one table of functions per kind (device/table.h), chosen at run time. The reading
 * order of the folder: this file, op.h, tensor.h; then table.h, device.c and stream.c (what all
 * kinds share); then host.h and host_*.c (the emulated GPU).
 *
 * Everything is asynchronous by contract: a launch, copy or write may return before it is done,
 * and its result may be read only after an event recorded behind it, or a sync. Kinds differ in
 * how late they are: `host` runs the compute stream inline in the caller and the communication
 * stream in one thread of its own; `host-late` queues everything and runs it only once somebody
 * waits for it (tests: whoever leans on an early completion is caught); `cuda` is a GPU.
 *
 * Threads: a device's compute stream is used by one thread at a time; so is its communication
 * stream. Allocation, ledger and traffic may be used from any thread.
 *
 * Errors: an asynchronous failure stays in its stream and is returned, with its text, by every
 * later call on it. What is queued behind it is skipped, but events are still signalled (with
 * the error), so nobody hangs. A call refused at once (a wrong shape, a foreign operand) leaves
 * the stream as it was. */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include "device/op.h"
#include "trace/ledger.h"
#include "trace/span.h"

#ifdef __cplusplus
extern "C" {
#endif

struct device;
struct stream;
struct event;
struct recording;

enum device_kind { DEVICE_HOST, DEVICE_HOST_LATE, DEVICE_CUDA };

/* Who multiplies on a GPU: Duet's own kernels, or cuBLAS and, where it is found, cuDNN
 * (device/cuda/library.h). */
enum device_math { DEVICE_MATH_OWN, DEVICE_MATH_LIBRARY };

struct device_config {
    enum device_kind kind;
    int index;   /* the device's number in the job: DP 0..W-1, DDP the rank */
    int rank;    /* written into spans; 0 outside DDP */
    int devices; /* devices of the job, for the share of a GPU that several have; 0: 1 */
    /* the device's memory; rounded up to 2 MiB; cuda: 0 takes the default share */
    uint64_t memory_bytes;
    /* tests, debug: operands must lie in the device's own memory; new memory is NaN */
    int check_operands;
    int spans;          /* 1: record spans */
    int reference_math; /* host: 1 = the plain reference kernels only, nothing in N16 */
    /* cuda: matrix products and convolutions may round their inputs to tf32 */
    int allow_tf32;
    enum device_math math; /* cuda: LIBRARY where cuBLAS is not found is ERR_USAGE */
    double timeout_s;      /* deadline of every wait inside the device layer; 0: 300 */
    /* Asked, by whichever thread waits, in every wait inside the device layer that lasts: a code
     * other than OK ends the wait with that code and its error text (a job passes comm_check, so
     * a rank that waits for its device sees that another one failed). It is quick, safe from any
     * thread, and calls nothing of this layer. NULL: never. */
    int (*interrupted)(void *context);
    void *interrupt_context;
};

/* How many physical devices of a kind there are. ERR_USAGE and one line where there are none:
 * the kind is not built in, no driver, a driver too old, no GPU. *count is at least 1 on OK.
 * Makes no context on any GPU. */
int device_probe(enum device_kind kind, int *count);

/* The libraries that a kind may use, with their versions, or why one cannot be: "cuBLAS 13.1.0;
 * cuDNN: not found: ...". "" where it uses none. Loads them, which may take seconds. */
void device_libraries(enum device_kind kind, char *text, size_t bytes);

/* Opens device config->index. ERR_USAGE: the kind is not built in, there is no such device, or a
 * setting makes no sense. device_close ends its streams (what is queued is dropped, its events
 * are signalled with an error, a host function that runs is waited for), frees all its memory;
 * NULL is fine. */
int device_open(struct device **out, const struct device_config *config);
void device_close(struct device *device);

int device_index(const struct device *device);
/* "cpu(0)" or "cuda(0)": the device's own storage */
const char *device_name(const struct device *device);
const struct device_config *device_config(const struct device *device);

/* The layout of activations: N16, or PLAIN for reference math and on cuda. */
enum layout device_layout(const struct device *device);

/* The default of --device-memory for `devices` emulated devices: the smaller of 16 GiB and 80 %
 * of the memory available now (cgroup included), over the devices. */
uint64_t device_default_memory(int devices);

/* Memory: 256-byte aligned, contents undefined, charged to `cause` with what it occupies:
 * `bytes` rounded up to 256. bytes == 0 gives a valid distinct pointer. ERR_MEMORY says "out of
 * memory on device 0", what was asked, what is free, and who holds the rest. Free only what no
 * queued work uses any more. */
int device_alloc(struct device *device, void **out, size_t bytes, enum mem_cause cause);
void device_free(struct device *device, void *memory); /* NULL is fine */

/* Host memory that copies may read asynchronously (pinned on cuda). Any thread. */
int device_host_alloc(struct device *device, void **out, size_t bytes);
void device_host_free(struct device *device, void *memory);

/* Snapshots. Traffic lists only what this device executed. */
struct ledger device_ledger(const struct device *device);
const struct traffic *device_traffic(const struct device *device);
/* for executors that load remotely */
struct traffic *device_traffic_mutable(struct device *device);
void device_traffic_reset(struct device *device);
void device_peak_reset(struct device *device); /* peaks start anew from what is held now */

/* Streams: two per device, made at open. The phase is put into the spans of what is enqueued
 * next. The log of spans is written by whoever runs the stream: read it after a sync. */
struct stream *device_compute(struct device *device);
struct stream *device_comm(struct device *device);
struct device *stream_device(struct stream *stream);
void stream_set_phase(struct stream *stream, enum phase phase, int32_t step);
/* waits until all enqueued work is done; returns its first error */
int stream_sync(struct stream *stream);
struct span_log *stream_spans(struct stream *stream);

/* Events: record marks a point of a stream; wait makes a stream (not the caller) wait for the
 * most recent record; sync makes the caller wait; done asks. An event never recorded counts as
 * done. It is recorded on streams of the device that made it, one stream at a time (ERR_FAILED
 * else); any stream of any device of the same kind in the process may wait. An error of the
 * recording stream is passed on by wait and sync. On host-late, sync and a wait that is itself
 * demanded run what they need, and no more; done only asks, but from the 64th time on it demands
 * too, so that a loop that polls comes to its end. A wait that blocked its stream is a span with
 * waiting = 1; what a caller waits in sync is the caller's to record. */
int event_create(struct device *device, struct event **out);
void event_destroy(struct event *event); /* NULL is fine; must not be waited for any more */
int event_record(struct event *event, struct stream *stream);
int stream_wait(struct stream *stream, struct event *event);
int event_sync(struct event *event);
int event_done(struct event *event); /* 1 done (or its stream failed), 0 not yet */

/* Kernels. Checks shapes (op_check) and, with check_operands, that operands are this device's
 * own. */
int launch(struct stream *stream, enum op op, const struct op_args *args);

/* 1: a sample's result of this op does not depend on the samples that share the launch, so a
 * whole batch may take one. 0: it may (convolutions and linear layers by a library): one segment
 * a launch, forward and backward alike. Asked for ops that treat each sample alike; what sums
 * over samples is launched by segment anyway. */
int device_whole_batch(const struct device *device, enum op op);

/* Copies of `bytes` bytes, charged to the link (LINK_HOST stands for host memory) of the device
 * that executes them. Host memory must stay valid and unchanged until the copy is done. Source
 * and destination do not overlap. copy_peer: between devices of this process, executed by
 * `stream`, whichever device that belongs to; source and destination may be the same device (a
 * local move, not charged). */
int copy_to_device(struct stream *stream, void *destination, const void *host_source, size_t bytes);
int copy_to_host(struct stream *stream, void *host_destination, const void *source, size_t bytes);
int copy_peer(struct stream *stream, struct device *to, void *destination, struct device *from,
              const void *source, size_t bytes);

/* Writes a small value (at most 256 bytes), captured at the call: the step block of each step.
 * Charged as a copy from the host. */
int stream_write(struct stream *stream, void *destination, const void *value, size_t bytes);

/* Recording: a sequence of launches taken down once and replayed with one call, where the kind
 * can (CUDA graphs; 1 from device_can_record). What differs from replay to replay is read from
 * device memory: the step block.
 *
 *     CHECK(stream_record_begin(compute));       nothing runs from here on, everything is taken down
 *     code = forward(...);                       launches, copies inside the device, event_record
 *     CHECK_KEEP(stream_record_end(compute, code ? NULL : &recording), code);    always, once begun
 *     each step: stream_replay(compute, recording, "forward")
 *
 * Only the compute stream is recorded, begin to end by one thread, which calls nothing else of
 * the device layer in between. What may not be recorded is refused with its name: syncs, waits,
 * event_done (it says 0), stream_write, copies from or to the host, another device or an import,
 * replays, allocation. Any call that fails in between breaks the recording; it goes on being
 * taken down, but record_end keeps nothing and returns that first error (also an out of NULL
 * throws it away). After record_end the stream is as it was before begin, whatever happened.
 *
 * The memory and the events that were recorded must outlive the recording. A recorded event is
 * recorded anew by each replay: a stream that shall wait for it is told to behind stream_replay,
 * for before it the wait is for the replay before. There are no spans while recording; a replay
 * is one span of this name, of all its flops. A recording belongs to its stream. recording_free:
 * NULL is fine; before its device is closed; waits for the last replay. */
int device_can_record(const struct device *device);
int stream_record_begin(struct stream *compute);
int stream_record_end(struct stream *compute, struct recording **out);
int stream_replay(struct stream *compute, struct recording *recording, const char *span_name);
void recording_free(struct recording *recording);

/* Memory of another process, as CUDA IPC would show it. export: a handle for the allocation that
 * holds `memory`, to be sent to the peer together with file descriptor *fd (-1 if the kind needs
 * none; owned by the device, do not close). import: maps it; the fd received from the peer may
 * be closed afterwards. unimport before the exporter frees. Imported memory is reached by
 * collectives and copy_imported alone. */
struct memory_handle {
    unsigned char bytes[128]; /* the kind's own */
    uint64_t offset, size;    /* of the exported memory inside the allocation */
    int32_t pid, device;
};
int device_export(struct device *device, const void *memory, struct memory_handle *handle, int *fd);
int device_import(struct device *device, const struct memory_handle *handle, int fd, void **out);
void device_unimport(struct device *device, void *memory);

/* Copies `bytes` bytes of memory that device_import of the stream's device gave out (or of its
 * middle) into that device's own memory; charged to the link source_device -> own, source_device
 * being the exporter's number (memory_handle.device). Nothing orders it with the exporter's
 * work: flags or messages between the two processes say when the source is written, and when it
 * may be written again. */
int copy_imported(struct stream *stream, void *destination, const void *imported, int source_device,
                  size_t bytes);

/* Collective steps see more than one device: host executors (scatter_gather, allreduce) enqueue
 * a function that the stream runs in its turn; `args` (at most 512 bytes) is copied at the call.
 * It may block only with a deadline. span_name, bytes: for its span; it charges traffic itself.
 * Host kinds only; on cuda ERR_FAILED (there the executors launch kernels of their own). */
typedef int host_function(void *args);
int stream_call_host(struct stream *stream, const char *span_name, uint64_t span_bytes,
                     host_function *function, const void *args, size_t args_bytes);

#ifdef __cplusplus
}
#endif
#endif
