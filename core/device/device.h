/* Devices are the interface of a GPU to the rest of Duet. Each kind of device has a table of
 * functions for memory, streams, events, copies, launches and IPC (device/table.h), chosen at run
 * time.
 *
 * Reading order of the folder: this file, op.h and tensor.h; then table.h, device.c and stream.c
 * (what all kinds share); then host/ (the emulated GPU), and cuda/ (a real one).
 *
 * Everything is asynchronous by contract. A launch, copy or write may return before it is done, and
 * its result may be read only after an event recorded after it, or after a sync. The kinds differ
 * in how late they run:
 *
 *     host         the compute stream runs in the caller, the other two in their own threads
 *     host-late    everything is queued, and runs only when something waits for it; in tests
 *                  this exposes programs that rely on early completion
 *     dry          like host, but only counts what a run would hold and move
 *     cuda         a GPU
 *
 * Threads: one thread at a time uses a device's compute stream, and one its communication stream.
 * Any thread may allocate and read the ledger and the traffic.
 *
 * Errors: all functions that return int return a code of base/error.h. An asynchronous failure
 * stays in its stream, and every later call on that stream returns it with its message. The stream
 * skips later work, but still signals events, with the error, so that no waiter hangs. A call that
 * is refused at once (a wrong shape, another device's operand) leaves the stream as it was. */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include "device/op.h"
#include "trace/ledger.h"
#include "trace/span.h"

struct device;
struct stream;
struct event;
struct schedule;

enum device_kind { DEVICE_HOST, DEVICE_HOST_LATE, DEVICE_DRY, DEVICE_CUDA };

/* What computes linear layers on a GPU: Duet's own kernels, or cuBLAS (device/cuda/library.h). */
enum device_math { DEVICE_MATH_OWN, DEVICE_MATH_LIBRARY };

struct device_config {
    enum device_kind kind;
    int index;             /* the device's number in the job: DP 0..W-1, DDP the rank */
    int rank;              /* written into spans; 0 outside DDP */
    int devices;           /* devices of the job, to count those that share this GPU; 0: 1 */
    int local, locals;     /* index and devices on this machine; locals 0: there is one machine */
    uint64_t memory_bytes; /* cuda: 0 takes the default share of the GPU */
    int check_operands;    /* 1: operands must be in the device's own memory; new memory is NaN */
    int spans;             /* 1: record spans */
    int async;             /* host: 1: the compute stream has its own thread, like the others */
    int reference_math;    /* host: 1: only the reference kernels, nothing in N16 */
    int allow_tf32;        /* cuda: 1: products and convolutions may round their inputs to tf32 */
    enum device_math math; /* cuda: DEVICE_MATH_LIBRARY without cuBLAS is ERR_USAGE */
    double timeout_s;      /* deadline of every wait inside the device layer; 0: 300 */
    /* dry: borrowed; records all calls (device/scheduled.h). NULL: none. */
    struct schedule *schedule;
    /* Every wait of the device layer that does not end at once calls this repeatedly, in the
     * waiting thread. A code other than OK ends the wait with that code and its message. A job
     * passes comm_check, so that a rank that waits for its device notices the failure of another
     * rank. The function must be quick, may be called from any thread, and must not call this
     * layer. NULL: nothing is called. */
    int (*interrupted)(void *context);
    void *interrupt_context; /* the argument of interrupted */
};

/* Counts the physical devices of a kind: at least 1 on OK. ERR_USAGE says why none exists: the kind
 * is not built in, the driver is missing or too old, or no GPU is present. It makes no context on
 * any GPU. */
int device_probe(enum device_kind kind, int *count);

/* Writes the library that a kind can use with its version, "cuBLAS 13.1.0", or why it cannot use
 * it, or "" if the kind uses none. It loads the library, which may take seconds. */
void device_libraries(enum device_kind kind, char *text, size_t bytes);

/* Opens device config->index; the caller owns *out, which is NULL after an error. ERR_USAGE: the
 * kind is not built in, the device does not exist, or a setting is invalid. ERR_MEMORY: not enough
 * memory.
 *
 * device_close ends the streams and frees all memory of the device. On the host kinds it drops
 * queued work, signals its events with an error, and waits for a running host function. On a GPU it
 * waits for all work. NULL is fine. */
int device_open(struct device **out, const struct device_config *config);
void device_close(struct device *device);

int device_index(const struct device *device);
/* Returns "cpu(0)" or "cuda(0)"; the string belongs to the device. */
const char *device_name(const struct device *device);
const struct device_config *device_config(const struct device *device);
/* The number of its parallel units: a GPU's multiprocessors; 1 on emulated devices. */
int device_cores(const struct device *device);

/* 1 for a dry device. It makes the same allocations as an emulated device of kind host, byte for
 * byte, and keeps the same ledger, traffic and spans (whose times are zero). But its addresses have
 * no memory. Ops compute nothing and copies move nothing; a copy to the host writes zeros. None of
 * its memory may be read, host memory of device_host_alloc included. A host function that accesses
 * device memory must check this, and on a dry device only charge the traffic. */
int device_is_dry(const struct device *device);

/* The layout of activations: N16 on the host kinds, PLAIN with reference math and on cuda. */
enum layout device_layout(const struct device *device);

/* The default of --device-memory in bytes for each of `devices` emulated devices: the smaller of
 * 16 GiB and 80 % of the memory available now (within the cgroup's limit), divided by `devices`. */
uint64_t device_default_memory(int devices);

/* Device memory, aligned to 256 bytes, contents undefined. The ledger charges `cause` with the
 * occupied size: `bytes` rounded up to 256. bytes == 0 gives a distinct valid pointer. ERR_MEMORY
 * names the device, the size requested, the free memory, and the holders of the rest. Free only
 * memory that no queued work uses any more. */
int device_alloc(struct device *device, void **out, size_t bytes, enum mem_cause cause);
void device_free(struct device *device, void *memory); /* NULL is fine */

/* Host memory for asynchronous copies, pinned on cuda. Any thread may call both functions. */
int device_host_alloc(struct device *device, void **out, size_t bytes);
void device_host_free(struct device *device, void *memory);

/* What the device holds now and its peaks, by cause (a snapshot). */
struct ledger device_ledger(const struct device *device);
/* Bytes that this device's streams moved over each link; they grow while the streams run. The
 * mutable one is for executors whose kernels access other devices' memory themselves. */
const struct traffic *device_traffic(const struct device *device);
struct traffic *device_traffic_mutable(struct device *device);

/* Streams: three per device, made by device_open; the copy stream copies batches to the device
 * while the others work. stream_set_phase sets the phase and the step for the spans of everything
 * enqueued from then on. The thread that runs the stream writes the log of spans, so read it after
 * a sync. */
struct stream *device_compute(struct device *device);
struct stream *device_comm(struct device *device);
struct stream *device_copy(struct device *device);
void stream_set_phase(struct stream *stream, enum phase phase, int32_t step);
/* Sets only the phase, for work whose phase differs from the work around it. Returns the previous
 * phase. */
enum phase stream_swap_phase(struct stream *stream, enum phase phase);
enum phase stream_phase(const struct stream *stream);
/* Sets, for its span, the ends between which the stream's next work moves data. NULL, as at the
 * start: none. It is for work whose moves the device layer cannot see. */
void stream_set_ends(struct stream *stream, const struct span_ends *ends);
/* Waits until all enqueued work is done, and returns its first error. */
int stream_sync(struct stream *stream);
struct span_log *stream_spans(struct stream *stream);
/* The largest error of the device's span times against the host's clock (base/clock.h). It is 0 if
 * they use that clock; for GPUs it is half of the widest anchor's window (event_clock.h). */
int64_t device_clock_error_ns(const struct device *device);
/* Events. record marks a point in a stream. wait makes a stream, not the caller, wait for the most
 * recent record. sync makes the caller wait for it. done says whether it was reached. An event that
 * was never recorded counts as done.
 *
 * An event is recorded on streams of the device that made it, on one stream at a time (ERR_FAILED
 * otherwise). Any stream of any device of the same kind in the process may wait for it. wait and
 * sync return an error of the recording stream.
 *
 * On host-late, sync runs exactly the work that it needs, and so does a stream's wait once that
 * stream itself has to run. done only asks; from the 64th call on it also runs the work, so that a
 * polling loop ends.
 *
 * A wait that blocked its stream is a span with waiting = 1. The time that a caller spends in sync
 * is the caller's to record. */
int event_create(struct device *device, struct event **out);
void event_destroy(struct event *event); /* NULL is fine; nobody may wait for it afterwards */
int event_record(struct event *event, struct stream *stream);
int stream_wait(struct stream *stream, struct event *event);
int event_sync(struct event *event);
int event_done(struct event *event); /* 1 done (or its stream failed), 0 not yet */

/* Enqueues one op (device/op.h). Refuses wrong shapes (op_check) and, with check_operands,
 * operands that are not in this device's memory. */
int launch(struct stream *stream, enum op op, const struct op_args *args);

/* 1: a sample's result does not depend on the samples that share the launch, not even in its bits,
 * so one launch may take a whole batch. 0: it may (a library's convolutions and linear layers), so
 * each segment has its own launch, forward and backward. This concerns ops that treat each sample
 * alike; ops that sum over samples are launched per segment anyway. */
int device_whole_batch(const struct device *device, enum op op);

/* Copies of `bytes` bytes. The device of `stream` executes them, and the link is charged to its
 * traffic (host memory is LINK_HOST). Host memory must stay valid and unchanged until the copy is
 * done. Source and destination do not overlap. copy_peer copies between two devices of this
 * process; `stream` may belong to either, or to a third. If both are the same device, the copy is
 * local and not charged. */
int copy_to_device(struct stream *stream, void *destination, const void *host_source, size_t bytes);
int copy_to_host(struct stream *stream, void *host_destination, const void *source, size_t bytes);
int copy_peer(struct stream *stream, struct device *to, void *destination, struct device *from,
              const void *source, size_t bytes);

/* Writes a small value of at most 256 bytes, which is copied at the call: the step block of each
 * step. The traffic counts it as a copy from the host. */
int stream_write(struct stream *stream, void *destination, const void *value, size_t bytes);

/* Memory of another process, shared like CUDA IPC. export makes a handle for the allocation that
 * holds `memory`. The caller sends it to the peer together with file descriptor *fd, which the
 * device owns (-1 if the kind needs none). import maps that memory; the descriptor received from
 * the peer may be closed afterwards. The importer calls unimport before the exporter frees. Only
 * collectives may use imported memory. */
enum { GPU_IPC_BYTES = 64, GPU_UUID_BYTES = 16 };
struct memory_handle {
    char kind[8];          /* the exporter's kind of device: "cpu" */
    uint64_t base, bytes;  /* its whole memory: the address in its process, and the size */
    uint64_t offset, size; /* the exported memory in it, in bytes */
    int32_t pid, device;   /* the exporter's process, and its device's number */
    /* cuda: the driver's handle of the whole memory, and the GPU's UUID */
    unsigned char ipc[GPU_IPC_BYTES], uuid[GPU_UUID_BYTES];
};
int device_export(struct device *device, const void *memory, struct memory_handle *handle, int *fd);
int device_import(struct device *device, const struct memory_handle *handle, int fd, void **out);
/* 0: this device's GPU cannot reach the handle's (peer access is missing or broken), so an import
 * would fail or give wrong data. Otherwise 1, also for a GPU that is hidden from this process,
 * because only the import can tell. */
int device_reaches(struct device *device, const struct memory_handle *handle);
void device_unimport(struct device *device, void *memory);

/* Opens the path between two devices of this process, both idle, and tests both directions. It must
 * precede the first copy between them. If the driver advertises a path that moves no bytes, copies
 * go through host memory from then on, and device_p2p_fault says so. ERR_FAILED: the trial never
 * ended, so this process can no longer use the GPU. */
int device_meet(struct device *device, struct device *peer);

/* One line about GPUs that advertise peer-to-peer access (P2P) but move no bytes with it; "" if
 * none was found. Collectives between processes try P2P when they are opened. */
const char *device_p2p_fault(const struct device *device);

/* 1: such a trial hangs on the device's GPU. The process must not call a function that waits for
 * the GPU, and leaves with _exit. */
int device_is_stuck(const struct device *device);

/* Enqueues a host function, which the stream runs in order. Executors of collectives
 * (scatter_gather, allreduce) use it for steps that access the memory of several devices. `args`
 * (at most 512 bytes) is copied at the call. The function may block only with a deadline, and
 * charges its traffic itself. span_name and span_bytes describe its span. Host kinds only:
 * ERR_FAILED on cuda, where executors launch kernels instead. */
typedef int host_function(void *args);
int stream_call_host(struct stream *stream, const char *span_name, uint64_t span_bytes,
                     host_function *function, const void *args, size_t args_bytes);

/* A device of duet.h is a struct device under another name. */
struct duet_device;
static inline struct device *device_of(const struct duet_device *device) {
    return (struct device *)device;
}

#endif
