/* The context of a process on a GPU, made by the first call that needs one, and its limits.
 *
 * Processes of an emulated machine find each other by the names of abstract sockets, which the
 * kernel frees when a process ends. */
#include "tests/stand_ins/cuda_emulation/emulation.h"

#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Takes a name of this machine. The descriptor that has it; -1: another process has it. */
static int take_name(const char *what, int number) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "emulated machine %s: %s %d",
                          emulated.machine, what, number);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1) + (socklen_t)length;
    if (fd >= 0 && !bind(fd, (const struct sockaddr *)&name, bytes)) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

cudaError_t context_open(struct gpu *gpu) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    cudaError_t error = cudaSuccess;
    if (gpu->context) return cudaSuccess;
    pthread_mutex_lock(&lock);
    if (!gpu->context && emulated.exclusive && take_name("context on GPU", gpu->number) < 0)
        error = cudaErrorDevicesUnavailable;
    if (error == cudaSuccess) gpu->context = 1;
    pthread_mutex_unlock(&lock);
    return error;
}
