/* EMULATED_P2P: GPUs whose advertised peer access does not work, as behind an IOMMU or with a
 * patched driver. This GPU then accesses an alias instead of another GPU's memory:
 *
 *     lost     other memory, zero at first: nothing arrives in either direction
 *     stores   a private mapping of the right memory: loads are right, stores stay here
 *     wrong    the right memory, shifted by a page: both use the wrong address
 *     hang     no alias: a kernel or copy with the address of such memory never ends
 *
 * Memory that is imported from another GPU is mapped as its alias. Inside a process addresses are
 * the same for all GPUs, so the addresses in a kernel's parameter and in a copy are replaced by
 * those of the alias. A copy between two GPUs without peer access goes through the host, and is
 * correct. */
#include "tests/stand_ins/cuda_emulation/emulation.h"

#include <sys/mman.h>
#include <unistd.h>

static const size_t PAGE = 4096;

/* All pages of `fd` in a circle, one page further on. */
static cudaError_t map_further(int fd, size_t bytes, char **out) {
    cudaError_t error = memory_map(fd, bytes, out);
    if (error != cudaSuccess) return error;
    int flags = MAP_SHARED | MAP_FIXED | MAP_NORESERVE, both = PROT_READ | PROT_WRITE;
    if (mmap(*out, bytes - PAGE, both, flags, fd, (off_t)PAGE) == MAP_FAILED ||
        mmap(*out + bytes - PAGE, PAGE, both, flags, fd, 0) == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    return cudaSuccess;
}

cudaError_t p2p_map(int fd, size_t bytes, char **out) {
    cudaError_t error;
    int none;
    switch (emulated.p2p) {
    case P2P_LOST:
        none = memfd_create("lost", MFD_CLOEXEC);
        error = none < 0 || ftruncate(none, (off_t)bytes) ? cudaErrorMemoryAllocation
                                                          : memory_map(none, bytes, out);
        if (none >= 0) close(none);
        return error;
    case P2P_STORES:
        error = memory_map(fd, bytes, out);
        if (error == cudaSuccess &&
            mmap(*out, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd,
                 0) == MAP_FAILED)
            error = cudaErrorMemoryAllocation;
        return error;
    case P2P_WRONG: return map_further(fd, bytes, out);
    default: return memory_map(fd, bytes, out);
    }
}

/* 1: GPU a has opened the way to GPU b's memory. */
static int opened(const struct gpu *a, const struct gpu *b) {
    return (int)(a->peers >> (b - emulated.gpus) & 1);
}

/* The address by which `gpu` reaches `address`, which may be that of another GPU's memory or no
 * address at all. A copy is direct if either GPU has opened the way. *hangs: 1 if whoever touches
 * the memory never ends. */
static uintptr_t address_for(const struct gpu *gpu, uintptr_t address, int copies, int *hangs) {
    struct emulated_allocation a;
    if (!memory_find((void *)address, 1, &a)) return address;
    if (a.kind == MEMORY_IMPORTED) {
        *hangs |= a.foreign && emulated.p2p == P2P_HANG;
        return address; /* mapped as its alias */
    }
    if (a.kind != MEMORY_DEVICE || a.gpu == gpu) return address;
    if (!opened(gpu, a.gpu) && !(copies && opened(a.gpu, gpu))) return address;
    *hangs |= emulated.p2p == P2P_HANG;
    char *alias = emulated.p2p == P2P_HANG ? a.base : memory_alias(a.base);
    return (uintptr_t)alias + (address - (uintptr_t)a.base);
}

int p2p_kernel(const struct gpu *gpu, void *param, size_t bytes) {
    int hangs = 0;
    if (emulated.p2p == P2P_WORKS) return 0;
    for (size_t at = 0; at + sizeof(uintptr_t) <= bytes; at += sizeof(uintptr_t)) {
        uintptr_t word;
        memcpy(&word, (char *)param + at, sizeof word);
        word = address_for(gpu, word, 0, &hangs);
        memcpy((char *)param + at, &word, sizeof word);
    }
    return hangs;
}

int p2p_copy(const struct gpu *gpu, char **to, const char **from) {
    int hangs = 0;
    if (emulated.p2p == P2P_WORKS) return 0;
    *to = (char *)address_for(gpu, (uintptr_t)*to, 1, &hangs);
    *from = (const char *)address_for(gpu, (uintptr_t)*from, 1, &hangs);
    return hangs;
}
