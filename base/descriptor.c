/* Descriptors are moved by duplicating them: see descriptor.h. */
#include "base/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int above_streams(int fd) {
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    int above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), error = errno;
    close(fd);
    errno = error;
    return above;
}

int both_above_streams(int pair[2]) {
    for (int i = 0; i < 2; i++)
        pair[i] = above_streams(pair[i]);
    if (pair[0] >= 0 && pair[1] >= 0) return 0;
    int error = errno;
    for (int i = 0; i < 2; i++) {
        if (pair[i] >= 0) close(pair[i]);
        pair[i] = -1;
    }
    errno = error;
    return -1;
}
