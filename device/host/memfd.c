/* The emulated GPU's memory: one file without a name (memfd), mapped once and shared.
 *
 * A file, because another process can map it: that is what CUDA IPC gives on a GPU. Without a
 * name, because nothing is then left behind, whoever is killed. Pages are committed by the first
 * touch, so a device of 16 GiB costs what is used of it. The size is sealed: nobody who got the
 * descriptor can cut the memory off under its users. Handing it out is device/arena.c's affair. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "device/host/host.h"

static int open_memory(struct host_memfd *memory, int device) {
    char size[32];
    format_bytes(memory->bytes, size, sizeof size);
    memory->fd = memfd_create("duet-device", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (memory->fd < 0)
        return fail_errno(ERR_MEMORY, errno, "memory of device %d: %s: memfd", device, size);
    if (ftruncate(memory->fd, (off_t)memory->bytes))
        return fail_errno(ERR_MEMORY, errno,
                          "memory of device %d: %s: give a smaller --device-memory", device, size);
    if (fcntl(memory->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        return fail_errno(ERR_MEMORY, errno, "memory of device %d: %s: sealing", device, size);
    void *base = mmap(NULL, memory->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                      memory->fd, 0);
    if (base == MAP_FAILED)
        return fail_errno(
            ERR_MEMORY, errno,
            "memory of device %d: %s cannot be mapped: give a smaller --device-memory", device,
            size);
    memory->base = base;
    /* a wish: fewer page faults where the kernel grants it */
    madvise(base, memory->bytes, MADV_HUGEPAGE);
    return OK;
}

int host_memfd_init(struct host_memfd *memory, int device, size_t bytes) {
    memset(memory, 0, sizeof *memory);
    memory->fd = -1;
    memory->bytes = bytes;
    return open_memory(memory, device);
}

void host_memfd_release(struct host_memfd *memory) {
    if (memory->base) munmap(memory->base, memory->bytes);
    if (memory->fd >= 0) close(memory->fd);
    memset(memory, 0, sizeof *memory);
    memory->fd = -1;
}
