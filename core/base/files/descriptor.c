/* Moves descriptors by duplicating them, and checks limits beforehand: see descriptor.h. */
#include "base/files/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>
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

/* ---- the limit of file sizes ---- */

/* Returns -1, with EFBIG, if a file may not have so many bytes. */
static int check_size(uint64_t bytes) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY ||
        bytes <= limit.rlim_cur)
        return 0;
    errno = EFBIG;
    return -1;
}

int file_resize(int fd, size_t bytes) {
    return check_size(bytes) ? -1 : ftruncate(fd, (off_t)bytes);
}

int file_allocate(int fd, size_t bytes) {
    if (check_size(bytes)) return -1;
    errno = posix_fallocate(fd, 0, (off_t)bytes);
    return errno ? -1 : 0;
}

/* The kernel writes what still fits, and signals only if nothing fits. Pipes have no position, and
 * the limit does not apply to them. */
ssize_t file_write(int fd, const void *bytes, size_t count) {
    off_t at = lseek(fd, 0, SEEK_CUR);
    struct stat about;
    if (at >= 0 && check_size((uint64_t)at + 1) && !fstat(fd, &about) && S_ISREG(about.st_mode)) {
        errno = EFBIG;
        return -1;
    }
    return write(fd, bytes, count);
}
