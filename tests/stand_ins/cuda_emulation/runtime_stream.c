/* Streams. Each has a queue and a thread, which runs the items in order.
 *
 * The queue is a linked list with one consumer. Its first item is the one that was done last. A
 * producer writes `next` of the last item (release) and counts `posted`. The stream's thread reads
 * `next` (acquire) and counts `finished` (release) when an item is done. Producers have a lock that
 * the thread never takes. Others read only `finished` from the thread, and only in syncs and
 * queries. So an item is ordered after its producer's earlier work, and a sync after the items. The
 * queue itself orders nothing else, so a race detector sees the program's own order. */
#include "tests/stand_ins/cuda_emulation/emulation.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* newest first; a stream's struct is never freed, so that a late use is noticed */
static struct CUstream_st *_Atomic all_streams;

void word_wait(atomic_uint *word, unsigned value, long us) {
    struct timespec limit = {us / 1000000, us % 1000000 * 1000};
    /* not FUTEX_PRIVATE: an event's number may be in a memfd */
    syscall(SYS_futex, word, FUTEX_WAIT, value, &limit, NULL, 0);
}

void word_wake(atomic_uint *word) {
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

struct item *item_new(enum item_kind kind, size_t param_bytes) {
    size_t size = (sizeof(struct item) + param_bytes + 63) / 64 * 64;
    struct item *item = aligned_alloc(64, size);
    if (!item) return NULL;
    memset(item, 0, sizeof *item);
    item->kind = kind;
    return item;
}

/* ---- the thread ---- */

/* "product<0, 3> 226 x 128": a kernel, its blocks and the threads of each. */
static void trace_kernel(const struct item *item, char *text, size_t bytes) {
    const struct emulated_index grid = item->u.launch.grid, threads = item->u.launch.threads;
    /* of a .cu file's kernel it is "... KERNEL)(PARAM) = product<0, 3>]" */
    const char *name = item->u.launch.kernel->name(), *behind = strstr(name, "(PARAM) = ");
    if (behind) name = behind + 10;
    snprintf(text, bytes, "%.*s %u x %u", (int)strcspn(name, "];"), name, grid.x * grid.y * grid.z,
             threads.x * threads.y * threads.z);
}

static void trace(const struct CUstream_st *s, const struct item *item) {
    static const char *const names[] = {"kernel",     "copy",          "fill",
                                        "record",     "wait",          "write value",
                                        "wait value", "host function", "end"};
    char text[200];
    snprintf(text, sizeof text, "%s", names[item->kind]);
    if (item->kind == ITEM_KERNEL) trace_kernel(item, text, sizeof text);
    fprintf(stderr, "emulated GPU %d, process %d, stream %p: %s\n", s->gpu->number, (int)getpid(),
            (const void *)s, text);
}

static void run(const struct CUstream_st *s, const struct item *item) {
    struct gpu *gpu = s->gpu;
    if (emulated.late_us) {
        struct timespec late = {emulated.late_us / 1000000, emulated.late_us % 1000000 * 1000};
        nanosleep(&late, NULL);
    }
    if (emulated.trace) trace(s, item);
    /* Items that touch no device memory. A record completes even in a faulted context, so that
     * nobody hangs. */
    switch (item->kind) {
    case ITEM_RECORD: event_run_record(item); return;
    case ITEM_WAIT: event_run_wait(item, gpu); return;
    case ITEM_END: return;
    default: break;
    }
    if (atomic_load_explicit(&gpu->fault, memory_order_relaxed)) return;
    if (item->kind == ITEM_HOST) {
        item->u.host.function(item->u.host.data);
        return;
    }
    guard_open();
    switch (item->kind) {
    case ITEM_KERNEL: kernel_run(item, gpu); break;
    case ITEM_COPY:
        if (item->fails) item_hang();
        memmove(item->u.copy.to, item->u.copy.from, item->u.copy.bytes);
        break;
    case ITEM_FILL: memset(item->u.fill.to, item->u.fill.byte, item->u.fill.bytes); break;
    case ITEM_WRITE_VALUE: value_run_write(item); break;
    case ITEM_WAIT_VALUE: value_run_wait(item, gpu); break;
    default: break;
    }
    guard_close();
}

static void *work(void *argument) {
    struct CUstream_st *s = argument;
    emulated_self.gpu = (int)(s->gpu - emulated.gpus);
    emulated_self.on_stream = 1;
    for (;;) {
        unsigned posted = atomic_load_explicit(&s->posted, memory_order_acquire);
        struct item *item = atomic_load_explicit(&s->head->next, memory_order_acquire);
        if (!item) {
            word_wait(&s->posted, posted, 1000000);
            continue;
        }
        int end = item->kind == ITEM_END;
        int waits = item->kind == ITEM_WAIT || item->kind == ITEM_WAIT_VALUE;
        if (s->queue) queue_wait(s->queue, item);
        if (s->queue && !waits) queue_leave(s->queue);
        run(s, item);
        if (s->queue && waits) queue_leave(s->queue);
        free(s->head);
        s->head = item;
        atomic_fetch_add_explicit(&s->finished, 1, memory_order_release);
        word_wake(&s->finished);
        if (end) return NULL;
    }
}

/* ---- producers ---- */

/* A GPU's queue is not endless: a call that would exceed it waits. */
static void wait_for_room(struct CUstream_st *s) {
    for (;;) {
        unsigned finished = atomic_load_explicit(&s->finished, memory_order_relaxed);
        if ((long)(atomic_load_explicit(&s->posted, memory_order_relaxed) - finished) <
            emulated.queue)
            return;
        word_wait(&s->finished, finished, 1000000);
    }
}

void stream_post(struct CUstream_st *s, struct item *item) {
    if (emulated.queue) wait_for_room(s);
    pthread_mutex_lock(&s->post_lock);
    if (s->queue) queue_take(s->queue, item);
    struct item *last = s->tail;
    s->tail = item;
    atomic_store_explicit(&last->next, item, memory_order_release);
    atomic_fetch_add_explicit(&s->posted, 1, memory_order_release);
    pthread_mutex_unlock(&s->post_lock);
    word_wake(&s->posted);
}

cudaError_t stream_submit(struct CUstream_st *s, struct item *item) {
    if (!item) return cudaErrorMemoryAllocation;
    stream_post(s, item);
    return cudaSuccess;
}

static int is_done(struct CUstream_st *s, unsigned posted) {
    return (int)(atomic_load_explicit(&s->finished, memory_order_acquire) - posted) >= 0;
}

void stream_drain(struct CUstream_st *s) {
    unsigned posted = atomic_load_explicit(&s->posted, memory_order_relaxed);
    while (!is_done(s, posted)) {
        unsigned finished = atomic_load_explicit(&s->finished, memory_order_acquire);
        if ((int)(finished - posted) < 0) word_wait(&s->finished, finished, 1000000);
    }
}

void gpu_drain(const struct gpu *gpu) {
    for (struct CUstream_st *s = all_streams; s; s = s->next_all)
        if (!gpu || s->gpu == gpu) stream_drain(s);
}

/* ---- the API ---- */

static cudaError_t make(struct gpu *gpu, unsigned flags, int priority, cudaStream_t *out) {
    struct CUstream_st *s = calloc(1, sizeof *s);
    struct item *first = item_new(ITEM_END, 0);
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    if (!s || !first) return free(s), free(first), cudaErrorMemoryAllocation;
    atomic_init(&s->magic, STREAM_ALIVE);
    s->gpu = gpu;
    s->flags = flags;
    s->priority = priority;
    s->head = s->tail = first;
    s->queue = queue_of(gpu);
    pthread_mutex_init(&s->post_lock, NULL);
    /* Detached, since nobody joins a driver's thread: a process may end while work is queued.
     * Signals are left to the program's threads. */
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, &attributes, work, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (error) return free(s), free(first), cudaErrorMemoryAllocation;
    s->next_all = all_streams;
    while (!atomic_compare_exchange_weak(&all_streams, &s->next_all, s)) {
    }
    *out = s;
    return cudaSuccess;
}

static struct CUstream_st *legacy(struct gpu *gpu) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (!gpu->legacy) make(gpu, 0, 0, &gpu->legacy);
    pthread_mutex_unlock(&lock);
    return gpu->legacy;
}

struct CUstream_st *stream_of(cudaStream_t handle) {
    if (!handle || handle == cudaStreamLegacy) return legacy(current_gpu());
    if ((uintptr_t)handle % _Alignof(struct CUstream_st) ||
        atomic_load_explicit(&handle->magic, memory_order_relaxed) != STREAM_ALIVE)
        return NULL;
    return handle;
}

/* GPUs have six priorities; a smaller number goes first. */
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    ENTER(enter_gpu());
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority) {
    ENTER(enter_gpu());
    if (!out || (flags != cudaStreamNonBlocking && flags != cudaStreamDefault))
        return give(cudaErrorInvalidValue);
    if (flags == cudaStreamDefault) {
        fprintf(stderr, "emulated CUDA: a stream that the legacy stream waits for: only "
                        "cudaStreamNonBlocking is emulated\n");
        return give(cudaErrorNotSupported);
    }
    if (priority > 0) priority = 0; /* as documented, a priority out of range is brought into it */
    if (priority < -5) priority = -5;
    return give(make(current_gpu(), flags, priority, out));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
    return cudaStreamCreateWithPriority(out, flags, 0);
}

/* Returns at once; what is queued is still run. */
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    ENTER(enter_driver());
    struct CUstream_st *s = handle ? stream_of(handle) : NULL;
    if (!s || s == s->gpu->legacy) return give(cudaErrorInvalidResourceHandle);
    struct item *end = item_new(ITEM_END, 0);
    if (!end) return give(cudaErrorMemoryAllocation);
    atomic_store(&s->magic, STREAM_GONE);
    stream_post(s, end);
    return give(s->gpu->fault);
}

static cudaError_t look(cudaStream_t handle, struct CUstream_st **out) {
    cudaError_t error = enter_uncounted();
    if (error != cudaSuccess) return error;
    *out = stream_of(handle);
    if (!*out) return cudaErrorInvalidResourceHandle;
    return (cudaError_t)(*out)->gpu->fault;
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
    struct CUstream_st *s;
    ENTER(look(handle, &s));
    if (!is_done(s, atomic_load_explicit(&s->posted, memory_order_relaxed)))
        return give(cudaErrorNotReady);
    return give(s->gpu->fault);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    struct CUstream_st *s;
    ENTER(look(handle, &s));
    stream_drain(s);
    return give(s->gpu->fault);
}

cudaError_t cudaDeviceSynchronize(void) {
    ENTER(enter_gpu());
    struct gpu *gpu = current_gpu();
    gpu_drain(gpu);
    return give(gpu->fault);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void *data) {
    ENTER(enter_gpu());
    struct CUstream_st *s = stream_of(handle);
    if (!s) return give(cudaErrorInvalidResourceHandle);
    if (!function) return give(cudaErrorInvalidValue);
    struct item *item = item_new(ITEM_HOST, 0);
    if (!item) return give(cudaErrorMemoryAllocation);
    item->u.host.function = function;
    item->u.host.data = data;
    return give(stream_submit(s, item));
}
