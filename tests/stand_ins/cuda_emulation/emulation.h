/* An emulated CUDA runtime, a test tool of this project. It implements the part of NVIDIA's runtime
 * that Duet calls (and three functions of the driver) on the CPU, so that Duet's whole CUDA build
 * (the folders named cuda, the command) runs on a machine without a GPU: `make EMULATION=1`,
 * docs/cuda.md "Without a GPU". Only that build links it, in place of libcudart_static.
 *
 * What is real here:
 *   - asynchrony. A stream is a queue and a thread; a launch or copy returns before it is done, and
 *     host memory is read when the stream reaches it. ThreadSanitizer reports a missing wait as a
 *     data race, because only events, syncs and value waits order two streams (queues have no lock
 *     that both sides take, see runtime_stream.c).
 *   - memory. An allocation is a memfd; another process maps it through /proc/PID/fd, with a handle
 *     of 64 bytes.
 *   - kernels' code: the .cu files compiled as C++ (launch.h), each block in turn.
 *   - refusals as documented: unknown handles, copies beyond an allocation, sizes of grids.
 *   - loading: the first launch of a kernel that was not loaded waits until its GPU is idle, as
 *     CUDA's lazy loading does.
 *
 * It cannot show races and missing barriers inside a block (its threads run one after another),
 * effects of a memory model weaker than this CPU's, registers, the size of shared memory, speed, or
 * undocumented behaviour of the driver. Host code that reads device memory is caught only with
 * EMULATED_CUDA_GUARD=1.
 *
 * The first call of a process reads the environment; defaults are in parentheses:
 *   EMULATED_GPUS=n              how many GPUs (1)
 *   CUDA_VISIBLE_DEVICES=0,2     as with real ones
 *   EMULATED_GPU_MEMORY=bytes    memory of each (80 GiB), K M G allowed; only this process's
 *                                allocations use it,
 *   EMULATED_MACHINE=name        or those of all living processes with the same machine name
 *   EMULATED_PEER=0              no peer access between GPUs, and no IPC across them
 *   EMULATED_PEER=pairs|chain    only between GPUs 2k and 2k + 1; only between GPUs k and k + 1
 *   EMULATED_P2P=lost|stores|wrong|hang   peer access is advertised but does not work; see
 *                                runtime_p2p.c
 *   EMULATED_MIG=n               a GPU in n instances, "MIG-emulated-0" and so on: a process
 *                                has the first that CUDA_VISIBLE_DEVICES names, and none reaches
 *                                another
 *   EMULATED_MULTIPROCESSORS=n   of each GPU (132)
 *   EMULATED_CAPABILITY=n        compute capability, 10 * major + minor (90)
 *   EMULATED_COMPUTE_MODE=exclusive   one process at a time may use a GPU of EMULATED_MACHINE
 *   CUDA_DEVICE_MAX_CONNECTIONS=n     below 8: the streams of a GPU share n hardware queues; see
 *                                runtime_queue.c
 *   CUDA_LAUNCH_BLOCKING=1       a launch returns when its kernel has ended
 *   EMULATED_CUDA_QUEUE=n        most pending items on a stream (1024): a launch beyond that waits;
 *                                0: no limit
 *   EMULATED_CUDA_LATE_US=n      every item of a stream starts n microseconds late
 *   EMULATED_CUDA_GUARD=1        device memory is mapped only while an item runs: an access by the
 *                                host is a SIGSEGV
 *   EMULATED_CUDA_EXIT=waits     exit() waits for kernels, even for one that never ends
 *   EMULATED_CUDA_TRACE=1        a line on stderr for each item that starts
 *   EMULATED_CUDA_FAULT=LIST     failures, separated by commas, each WHAT[:N][@RANK]: the N-th of
 *                                its kind in the process fails, where the environment's RANK has
 *                                this value (without @RANK: in all processes). WHAT is
 *                                  launch   the kernel faults: cudaErrorIllegalAddress, which stays
 *                                  hang     the kernel never ends
 *                                  malloc   cudaMalloc finds no memory; host: pinned memory
 *                                  ipc      cudaIpcOpenMemHandle is refused
 *                                  export   cudaIpcGetMemHandle is refused
 *                                  call     whatever call of a GPU it is: cudaErrorUnknown
 *                                  driver:none  driver:old
 *                                  driver:fabric   no fabric manager
 *                                  driver:values   no stream memory operations exist
 *                                  driver:batch    they can only be enqueued one by one
 *
 * Files: runtime_device.c (GPUs, their properties, the environment), runtime_context.c,
 * runtime_error.c, runtime_memory.c, runtime_ipc.c, runtime_p2p.c, runtime_stream.c (queues and
 * their threads), runtime_queue.c, runtime_copy.c, runtime_event.c, runtime_launch.c (kernels),
 * runtime_driver.c (stream memory operations). */
#ifndef TESTS_STAND_INS_CUDA_EMULATION_EMULATION_H
#define TESTS_STAND_INS_CUDA_EMULATION_EMULATION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "tests/stand_ins/cuda_emulation/launch.h"

enum { GPU_LIMIT = 16 };

/* ---- GPUs (runtime_device.c) ---- */

struct gpu {
    /* the number on the machine; CUDA_VISIBLE_DEVICES makes the index into emulated.gpus another */
    int number;
    atomic_int fault; /* cudaError_t: the context's sticky fault */
    atomic_size_t used;
    atomic_uint peers;   /* bit g: access was enabled */
    atomic_int context;  /* 1: this process has one */
    atomic_int streams;  /* ever created */
    cudaStream_t legacy; /* created on first use */
};

/* 1: GPU number a may reach the memory of GPU number b, another one. */
int emulated_reaches(int a, int b);

extern struct emulated {
    int count;
    struct gpu gpus[GPU_LIMIT];
    size_t memory;                                             /* of each */
    enum { PEER_NONE, PEER_ALL, PEER_PAIRS, PEER_CHAIN } peer; /* which GPUs reach each other */
    enum { P2P_WORKS, P2P_LOST, P2P_STORES, P2P_WRONG, P2P_HANG } p2p;
    int multiprocessors, capability, guard, trace;
    int exclusive; /* a context is refused while another process has one */
    int blocking;  /* launches wait for their kernels */
    int queues;    /* hardware queues of each GPU; 0: as many as there are streams */
    long late_us, queue;
    char machine[32]; /* "": memory is counted for this process alone */
    int forked;       /* 1: a fork of a process that had called CUDA: every call fails here */
} emulated;

/* The state of each calling thread. */
struct emulated_thread {
    int gpu;
    cudaError_t last_error;
    int on_stream; /* 1: it runs a stream: a host function there may not call CUDA */
};
extern __thread struct emulated_thread emulated_self;

/* How a function of the API begins. enter_driver demands a usable driver; enter_gpu also that the
 * current GPU has no fault. An error becomes the last error of the thread. */
cudaError_t enter_driver(void);
cudaError_t enter_gpu(void);
/* The same, uncounted by faults: for calls that ask, since it is chance how often they do. */
cudaError_t enter_uncounted(void);
cudaError_t give(cudaError_t error); /* sets the thread's last error, returns `error` */
#define ENTER(how)                                      \
    do {                                                \
        cudaError_t error_ = (how);                     \
        if (error_ != cudaSuccess) return give(error_); \
    } while (0)

struct gpu *current_gpu(void);
cudaError_t context_open(struct gpu *gpu); /* runtime_context.c; once for each GPU */

/* Counts an event of kind `what` and says whether EMULATED_CUDA_FAULT wants it to fail. */
int fault_now(const char *what);
int fault_set(const char *word); /* 1: the list has this very entry, such as "driver:none" */

/* ---- memory (runtime_memory.c) ---- */

enum memory_kind { MEMORY_DEVICE, MEMORY_IMPORTED, MEMORY_PINNED, MEMORY_REGISTERED };

struct emulated_allocation {
    enum memory_kind kind;
    struct gpu *gpu;
    char *base;
    size_t bytes, mapped; /* as asked for; in whole pages */
    int fd;               /* of device memory */
    uint64_t inode;       /* IMPORTED: which memfd this is */
    int opened;           /* IMPORTED: how often it was opened */
    int foreign;          /* IMPORTED: it is on another GPU than the one that imported it */
    char *alias; /* DEVICE: as other GPUs see it where EMULATED_P2P is set; NULL: not yet */
    unsigned flags;
    struct emulated_allocation *next;
};

/* Copies the allocation that holds all of [memory, memory + bytes) to *out. Returns 0 if there is
 * none. */
int memory_find(const void *memory, size_t bytes, struct emulated_allocation *out);
int is_on_device(enum memory_kind kind);
cudaError_t memory_map(int fd, size_t bytes, char **out); /* 2 MiB aligned */
void memory_add(const struct emulated_allocation *a);
/* Takes the allocation that begins at `base` out of the list. */
int memory_remove(const void *base, int opened_less, struct emulated_allocation *out);
int memory_find_inode(uint64_t inode, struct emulated_allocation *out, int open_once_more);
char *memory_alias(const void *base); /* made when first asked for */
/* EMULATED_CUDA_GUARD: device memory is mapped between the two, which nest. */
void guard_open(void);
void guard_close(void);

/* ---- peer access that does not work (runtime_p2p.c) ---- */

/* As memory_map, for memory of another GPU. */
cudaError_t p2p_map(int fd, size_t bytes, char **out);
/* Replace addresses of other GPUs' memory by those by which `gpu` reaches it. 1: never ends. */
int p2p_kernel(const struct gpu *gpu, void *param, size_t bytes);
int p2p_copy(const struct gpu *gpu, char **to, const char **from);

/* ---- streams (runtime_stream.c) ---- */

enum item_kind {
    ITEM_KERNEL,
    ITEM_COPY,
    ITEM_FILL,
    ITEM_RECORD,
    ITEM_WAIT,
    ITEM_WRITE_VALUE,
    ITEM_WAIT_VALUE,
    ITEM_HOST,
    ITEM_END
};

/* A piece of work, followed by its parameter. */
struct item {
    struct item *_Atomic next;
    enum item_kind kind;
    unsigned ticket; /* in its hardware queue */
    int fails;       /* a kernel that faults (1); a kernel or copy that never ends (2) */
    union {
        struct {
            const struct emulated_kernel *kernel;
            struct emulated_index grid, threads;
        } launch;
        struct {
            char *to;
            const char *from;
            size_t bytes;
        } copy;
        struct {
            char *to;
            int byte;
            size_t bytes;
        } fill;
        struct {
            cudaEvent_t event;
            uint32_t number; /* which record: event->state->recorded at the call */
        } event;
        struct {
            uint64_t *address;
            uint64_t value;
        } value;
        struct {
            void (*function)(void *);
            void *data;
        } host;
    } u;
    _Alignas(64) unsigned char param[]; /* of a kernel */
};

struct item *item_new(enum item_kind kind, size_t param_bytes); /* NULL: out of memory */

enum { STREAM_ALIVE = 0x73747265, STREAM_GONE = 0x676f6e65 };

struct CUstream_st {
    atomic_uint magic;
    struct gpu *gpu;
    int priority;
    unsigned flags;
    pthread_mutex_t post_lock; /* taken by producers only */
    struct item *tail;         /* under post_lock */
    struct item *head;         /* the stream's thread's own: the item that was done last */
    atomic_uint posted, finished;
    struct queue *queue; /* NULL: its own */
    struct CUstream_st *next_all;
};

/* ---- hardware queues (runtime_queue.c) ---- */

struct queue *queue_of(struct gpu *gpu); /* for a new stream; NULL: it has one of its own */
/* Around an item: its place in its queue, taken when it is posted; its turn. */
void queue_take(struct queue *queue, struct item *item);
void queue_wait(struct queue *queue, const struct item *item);
void queue_leave(struct queue *queue);

/* The stream behind a handle; NULL if it is none, or was destroyed. The legacy stream is one of the
 * current GPU. */
struct CUstream_st *stream_of(cudaStream_t handle);
/* Enqueues the item, and owns it. */
cudaError_t stream_submit(struct CUstream_st *stream, struct item *item);
void stream_post(struct CUstream_st *stream, struct item *item);
void stream_drain(struct CUstream_st *stream); /* waits until all that is posted now is done */
/* the same for all streams of a GPU; NULL: of all GPUs */
void gpu_drain(const struct gpu *gpu);
/* Sleeps while *word == value, at most `us` microseconds. */
void word_wait(atomic_uint *word, unsigned value, long us);
void word_wake(atomic_uint *word);

/* ---- events (runtime_event.c) ---- */

/* Records are numbered; `done` is the highest number that a stream has reached. */
struct event_state {
    atomic_uint recorded, done;
    atomic_llong at_ns;
};
enum { EVENT_ALIVE = 0x65766e74 };
struct CUevent_st {
    atomic_uint magic;
    struct gpu *gpu;
    unsigned flags;
    struct event_state state;
    struct CUevent_st *next_all;
};
void event_run_record(const struct item *item);
void event_run_wait(const struct item *item, const struct gpu *gpu);

/* ---- the others ---- */

void kernel_run(const struct item *item, struct gpu *gpu); /* runtime_launch.c */
void item_hang(void) __attribute__((noreturn));            /* the same: never ends */
void value_run_write(const struct item *item);             /* runtime_driver.c */
void value_run_wait(const struct item *item, const struct gpu *gpu);

#endif
