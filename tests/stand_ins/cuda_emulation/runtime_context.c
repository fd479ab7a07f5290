/* The context of a process on a GPU, made by the first call that needs one. With
 * EMULATED_COMPUTE_MODE=exclusive one process of the machine at a time has it: whoever holds a name
 * among the abstract sockets, which the kernel takes back when the process ends. */
#include "tests/stand_ins/cuda_emulation/emulation.h"

#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int hold(const struct gpu *gpu) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int length =
        snprintf(name.sun_path + 1, sizeof name.sun_path - 1,
                 "context on GPU %d of emulated machine %s", gpu->number, emulated.machine);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1) + (socklen_t)length;
    if (fd >= 0 && !bind(fd, (const struct sockaddr *)&name, bytes)) return 1; /* until the end */
    if (fd >= 0) close(fd);
    return 0;
}

cudaError_t context_open(struct gpu *gpu) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (!emulated.exclusive) return cudaSuccess;
    pthread_mutex_lock(&lock);
    if (!gpu->context) gpu->context = hold(gpu);
    pthread_mutex_unlock(&lock);
    return gpu->context ? cudaSuccess : cudaErrorDevicesUnavailable;
}
