/* Memory and its owners. Device memory is a memfd, mapped at a multiple of 2 MiB. It has the
 * requested size and takes pages only where it is written. Another process maps the same memfd
 * (runtime_ipc.c). Pinned memory is ordinary memory that is listed here, so that copies can
 * distinguish it from unpinned memory. */
#include "tests/stand_ins/cuda_emulation/emulation.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const size_t STEP = (size_t)2 << 20;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list, and `open` */
static struct emulated_allocation *all;
static int open_items; /* how many items run, for EMULATED_CUDA_GUARD */

int is_on_device(enum memory_kind kind) {
    return kind == MEMORY_DEVICE || kind == MEMORY_IMPORTED;
}

/* ---- the list ---- */

void memory_add(const struct emulated_allocation *a) {
    struct emulated_allocation *node = malloc(sizeof *node);
    if (!node) abort();
    *node = *a;
    pthread_mutex_lock(&lock);
    if (emulated.guard && is_on_device(a->kind) && !open_items)
        mprotect(a->base, a->mapped, PROT_NONE);
    node->next = all;
    all = node;
    pthread_mutex_unlock(&lock);
}

int memory_find(const void *memory, size_t bytes, struct emulated_allocation *out) {
    const char *p = memory;
    int found = 0;
    pthread_mutex_lock(&lock);
    for (const struct emulated_allocation *a = all; a && !found; a = a->next)
        if (p >= a->base && p < a->base + a->bytes && bytes <= (size_t)(a->base + a->bytes - p))
            *out = *a, found = 1;
    pthread_mutex_unlock(&lock);
    return found;
}

int memory_find_inode(uint64_t inode, struct emulated_allocation *out, int open_once_more) {
    int found = 0;
    pthread_mutex_lock(&lock);
    for (struct emulated_allocation *a = all; a && !found; a = a->next)
        if (a->kind == MEMORY_IMPORTED && a->inode == inode) {
            a->opened += open_once_more;
            *out = *a, found = 1;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

int memory_remove(const void *base, int opened_less, struct emulated_allocation *out) {
    struct emulated_allocation *gone = NULL;
    pthread_mutex_lock(&lock);
    struct emulated_allocation **link = &all;
    while (*link && (*link)->base != base)
        link = &(*link)->next;
    if (*link && ((*link)->opened -= opened_less) <= 0) {
        gone = *link;
        *out = *gone;
        *link = gone->next;
    }
    pthread_mutex_unlock(&lock);
    free(gone);
    return gone != NULL;
}

char *memory_alias(const void *base) {
    char *alias = NULL;
    pthread_mutex_lock(&lock);
    for (struct emulated_allocation *a = all; a && !alias; a = a->next) {
        if (a->base != base) continue;
        if (!a->alias && p2p_map(a->fd, a->mapped, &a->alias) != cudaSuccess) abort();
        alias = a->alias;
    }
    pthread_mutex_unlock(&lock);
    return alias;
}

static void protect_all(int how) {
    for (const struct emulated_allocation *a = all; a; a = a->next)
        if (is_on_device(a->kind)) mprotect(a->base, a->mapped, how);
}

void guard_open(void) {
    if (!emulated.guard) return;
    pthread_mutex_lock(&lock);
    if (open_items++ == 0) protect_all(PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&lock);
}

void guard_close(void) {
    if (!emulated.guard) return;
    pthread_mutex_lock(&lock);
    if (--open_items == 0) protect_all(PROT_NONE);
    pthread_mutex_unlock(&lock);
}

/* ---- mapping ---- */

cudaError_t memory_map(int fd, size_t bytes, char **out) {
    char *room =
        mmap(NULL, bytes + STEP, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return cudaErrorMemoryAllocation;
    char *base = room + (STEP - (uintptr_t)room % STEP) % STEP;
    if (base > room) munmap(room, (size_t)(base - room));
    if (room + STEP > base) munmap(base + bytes, (size_t)(room + STEP - base));
    if (mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, 0) ==
        MAP_FAILED) {
        munmap(base, bytes);
        return cudaErrorMemoryAllocation;
    }
    *out = base;
    return cudaSuccess;
}

static size_t round_up(size_t bytes) {
    return (bytes + STEP - 1) / STEP * STEP;
}

/* ---- device memory ---- */

/* The name of a memfd of device memory, as /proc/PID/fd shows it. */
static void memory_name(const struct gpu *gpu, char *name, size_t bytes) {
    snprintf(name, bytes, "memory of GPU %d of emulated machine %s", gpu->number, emulated.machine);
}

/* The bytes of such memfds in one process, without those in `inodes`, which are counted already. */
static size_t used_by(const char *process, const char *wanted, uint64_t *inodes, int *count,
                      int most) {
    char path[300], link[128];
    struct stat stat_;
    size_t sum = 0;
    snprintf(path, sizeof path, "/proc/%s/fd", process);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        ssize_t n = readlinkat(dirfd(folder), entry->d_name, link, sizeof link - 1);
        if (n <= 0) continue;
        link[n] = 0;
        if (strncmp(link, "/memfd:", 7) || strncmp(link + 7, wanted, strlen(wanted)) ||
            link[7 + strlen(wanted)] != ' ')
            continue;
        if (fstatat(dirfd(folder), entry->d_name, &stat_, 0)) continue;
        int known = 0;
        for (int i = 0; i < *count; i++)
            known |= inodes[i] == (uint64_t)stat_.st_ino;
        if (known || *count == most) continue;
        inodes[(*count)++] = (uint64_t)stat_.st_ino;
        sum += (size_t)stat_.st_size;
    }
    if (folder) closedir(folder);
    return sum;
}

/* The memory in use on the GPU: that of this process, or on a named machine that of all processes,
 * found among their open files. */
static size_t used_now(const struct gpu *gpu) {
    uint64_t inodes[256];
    char wanted[96];
    int count = 0;
    size_t sum = 0;
    if (!*emulated.machine) return gpu->used;
    memory_name(gpu, wanted, sizeof wanted);
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; processes && (entry = readdir(processes));)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
            sum += used_by(entry->d_name, wanted, inodes, &count, 256);
    if (processes) closedir(processes);
    return sum;
}

static cudaError_t take(struct gpu *gpu, size_t bytes) {
    size_t used = gpu->used, elsewhere = used_now(gpu) - used;
    do {
        if (bytes > emulated.memory || used + elsewhere > emulated.memory - bytes)
            return cudaErrorMemoryAllocation;
    } while (!atomic_compare_exchange_weak(&gpu->used, &used, used + bytes));
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes) {
    ENTER(enter_gpu());
    if (!out) return give(cudaErrorInvalidValue);
    *out = NULL;
    if (bytes == 0) return cudaSuccess;
    struct gpu *gpu = current_gpu();
    if (fault_now("malloc") || bytes > emulated.memory) return give(cudaErrorMemoryAllocation);
    struct emulated_allocation a = {
        .kind = MEMORY_DEVICE, .gpu = gpu, .bytes = bytes, .mapped = round_up(bytes)};
    ENTER(take(gpu, a.mapped));
    char name[96];
    memory_name(gpu, name, sizeof name);
    a.fd = memfd_create(name, MFD_CLOEXEC);
    cudaError_t error = a.fd < 0 || ftruncate(a.fd, (off_t)a.mapped)
                            ? cudaErrorMemoryAllocation
                            : memory_map(a.fd, a.mapped, &a.base);
    if (error != cudaSuccess) {
        if (a.fd >= 0) close(a.fd);
        gpu->used -= a.mapped;
        return give(error);
    }
    memory_add(&a);
    *out = a.base;
    return cudaSuccess;
}

/* Waits for all work of the GPU first, as CUDA does. */
cudaError_t cudaFree(void *memory) {
    struct emulated_allocation a;
    ENTER(enter_gpu());
    if (!memory) return cudaSuccess;
    if (!memory_find(memory, 1, &a) || a.kind != MEMORY_DEVICE || a.base != memory)
        return give(cudaErrorInvalidValue);
    gpu_drain(a.gpu);
    memory_remove(memory, 1, &a);
    munmap(a.base, a.mapped);
    if (a.alias) munmap(a.alias, a.mapped);
    close(a.fd);
    a.gpu->used -= a.mapped;
    return give(a.gpu->fault);
}

cudaError_t cudaMemGetInfo(size_t *free_now, size_t *total) {
    ENTER(enter_gpu());
    *total = emulated.memory;
    size_t used = used_now(current_gpu());
    *free_now = used < emulated.memory ? emulated.memory - used : 0;
    return cudaSuccess;
}

/* ---- host memory ---- */

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags) {
    ENTER(enter_gpu());
    if (!out || flags & ~7u) return give(cudaErrorInvalidValue);
    *out = NULL;
    if (bytes == 0) return cudaSuccess;
    struct emulated_allocation a = {
        .kind = MEMORY_PINNED, .gpu = current_gpu(), .bytes = bytes, .fd = -1, .flags = flags};
    a.mapped = (bytes + 4095) / 4096 * 4096;
    a.base = fault_now("host") || a.mapped < bytes ? NULL : aligned_alloc(4096, a.mapped);
    if (!a.base) return give(cudaErrorMemoryAllocation);
    memory_add(&a);
    *out = a.base;
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **out, size_t bytes) {
    return cudaHostAlloc(out, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *memory) {
    struct emulated_allocation a;
    ENTER(enter_gpu());
    if (!memory) return cudaSuccess;
    if (!memory_find(memory, 1, &a) || a.kind != MEMORY_PINNED || a.base != memory)
        return give(cudaErrorInvalidValue);
    gpu_drain(NULL);
    memory_remove(memory, 1, &a);
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags) {
    struct emulated_allocation a;
    ENTER(enter_gpu());
    if (!memory || !bytes || flags & ~15u) return give(cudaErrorInvalidValue);
    if (memory_find(memory, 1, &a) || memory_find((char *)memory + bytes - 1, 1, &a))
        return give(cudaErrorHostMemoryAlreadyRegistered);
    a = (struct emulated_allocation){.kind = MEMORY_REGISTERED,
                                     .gpu = current_gpu(),
                                     .base = memory,
                                     .bytes = bytes,
                                     .fd = -1,
                                     .flags = flags};
    memory_add(&a);
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory) {
    struct emulated_allocation a;
    ENTER(enter_gpu());
    if (!memory_find(memory, 1, &a) || a.kind != MEMORY_REGISTERED || a.base != memory)
        return give(cudaErrorHostMemoryNotRegistered);
    gpu_drain(NULL);
    memory_remove(memory, 1, &a);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *memory) {
    struct emulated_allocation a;
    ENTER(enter_gpu());
    memset(out, 0, sizeof *out);
    out->type = cudaMemoryTypeUnregistered;
    out->device = -2; /* cudaInvalidDeviceId */
    out->hostPointer = (void *)(uintptr_t)memory;
    if (!memory_find(memory, 1, &a)) return cudaSuccess;
    out->type = is_on_device(a.kind) ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    out->device = (int)(a.gpu - emulated.gpus);
    out->devicePointer = (void *)(uintptr_t)memory;
    if (is_on_device(a.kind)) out->hostPointer = NULL;
    return cudaSuccess;
}
