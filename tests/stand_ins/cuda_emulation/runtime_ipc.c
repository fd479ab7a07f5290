/* Device memory of another process. A handle names the process and its descriptor of the memfd,
 * which is opened through /proc. The inode distinguishes this memfd from another one that has since
 * got the same number. As in CUDA a process cannot open its own handle, and memory that is opened
 * twice is mapped once and counted. */
#include "tests/stand_ins/cuda_emulation/emulation.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct handle {
    uint64_t magic, inode, bytes, mapped;
    int32_t pid, fd, gpu;
};
_Static_assert(sizeof(struct handle) <= sizeof(cudaIpcMemHandle_t), "it travels as CUDA's handle");
static const uint64_t HANDLE_MAGIC = 0x6d656d6f69706364;

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *out, void *memory) {
    struct emulated_allocation a;
    struct stat stat;
    ENTER(enter_gpu());
    if (!out || !memory_find(memory, 1, &a) || a.kind != MEMORY_DEVICE)
        return give(cudaErrorInvalidValue);
    if (fault_now("export")) return give(cudaErrorNotSupported);
    if (fstat(a.fd, &stat)) return give(cudaErrorMapBufferObjectFailed);
    struct handle h = {HANDLE_MAGIC, (uint64_t)stat.st_ino, a.bytes, a.mapped, (int32_t)getpid(),
                       a.fd,         a.gpu->number};
    memset(out, 0, sizeof *out);
    memcpy(out, &h, sizeof h);
    return cudaSuccess;
}

static int open_peer(const struct handle *h) {
    char path[64];
    struct stat stat;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", h->pid, h->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &stat) || (uint64_t)stat.st_ino != h->inode ||
                    (uint64_t)stat.st_size != h->mapped)) {
        close(fd);
        return -1;
    }
    return fd;
}

cudaError_t cudaIpcOpenMemHandle(void **out, cudaIpcMemHandle_t handle, unsigned flags) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* two threads with one handle */
    struct emulated_allocation a;
    struct handle h;
    ENTER(enter_gpu());
    memcpy(&h, &handle, sizeof h);
    if (!out || flags != cudaIpcMemLazyEnablePeerAccess) return give(cudaErrorInvalidValue);
    if (h.magic != HANDLE_MAGIC) return give(cudaErrorInvalidValue);
    if (fault_now("ipc")) return give(cudaErrorMapBufferObjectFailed);
    if (h.pid == (int32_t)getpid()) return give(cudaErrorDeviceUninitialized);
    struct gpu *gpu = current_gpu();
    if (h.gpu != gpu->number && !emulated_reaches(gpu->number, h.gpu))
        return give(cudaErrorPeerAccessUnsupported);
    pthread_mutex_lock(&lock);
    cudaError_t error = cudaSuccess;
    if (!memory_find_inode(h.inode, &a, 1)) {
        a = (struct emulated_allocation){.kind = MEMORY_IMPORTED,
                                         .gpu = gpu,
                                         .bytes = h.bytes,
                                         .mapped = h.mapped,
                                         .inode = h.inode,
                                         .foreign = h.gpu != gpu->number,
                                         .opened = 1};
        a.fd = open_peer(&h);
        error = a.fd < 0    ? cudaErrorMapBufferObjectFailed
                : a.foreign ? p2p_map(a.fd, a.mapped, &a.base)
                            : memory_map(a.fd, a.mapped, &a.base);
        if (error == cudaSuccess)
            memory_add(&a);
        else if (a.fd >= 0)
            close(a.fd);
    }
    pthread_mutex_unlock(&lock);
    if (error == cudaSuccess) *out = a.base;
    return give(error);
}

cudaError_t cudaIpcCloseMemHandle(void *memory) {
    struct emulated_allocation a;
    ENTER(enter_gpu());
    if (!memory_find(memory, 1, &a) || a.kind != MEMORY_IMPORTED || a.base != memory)
        return give(cudaErrorInvalidValue);
    gpu_drain(NULL);
    if (memory_remove(memory, 1, &a)) {
        munmap(a.base, a.mapped);
        close(a.fd);
    }
    return cudaSuccess;
}
