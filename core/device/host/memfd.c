/* The memory of the emulated GPU: one file without a name (memfd), mapped once and shared.
 *
 * It is a file because another process can map it, as CUDA IPC allows on a GPU. It has no name, so
 * nothing is left behind when a process is killed. A page is committed when it is first touched, so
 * a device of 16 GiB takes only as much memory as it uses. The size is sealed, so no process with
 * the descriptor can shrink the file under its users. core/device/device.c divides it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/advice.h"
#include "base/error.h"
#include "base/system_error.h"
#include "device/host/host.h"

static int open_memory(struct host_memfd *memory, int device) {
    char size[32], what[80], name[32];
    format_bytes(memory->bytes, size, sizeof size);
    snprintf(what, sizeof what, "memory of device %d: %s", device, size);
    snprintf(name, sizeof name, "duet-device-%d", device); /* shown in /proc/PID/fd */
    memory->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (memory->fd < 0) return fail_system(errno, "%s: memfd_create", what);
    if (ftruncate(memory->fd, (off_t)memory->bytes))
        return fail(ERR_MEMORY, "%s: %s: " ADVICE_LESS_MEMORY, what, strerror(errno));
    if (fcntl(memory->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        return fail_errno(ERR_FAILED, errno, "%s: its size cannot be sealed", what);
    void *base = mmap(NULL, memory->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                      memory->fd, 0);
    if (base == MAP_FAILED)
        return fail(ERR_MEMORY, "%s: cannot be mapped: %s: " ADVICE_LESS_MEMORY, what,
                    strerror(errno));
    memory->base = base;
    /* Huge pages save page faults; if the kernel refuses, nothing is lost. */
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
