/* The name of this program, which libc keeps, and its three streams: see program_name.h. */
#include "base/program_name.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

const char *program_name(void) {
    return program_invocation_short_name;
}

/* A shell may start a program with one of descriptors 0, 1 and 2 closed (`>&-`). The first file or
 * memory that is opened would get that number, and printed text would end up in it. So closed
 * descriptors are opened on /dev/null before main: standard output for reading only, so that a
 * program sees that what it prints is lost. open() returns the lowest free number. */
__attribute__((constructor)) static void open_closed_streams(void) {
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 &&
            open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_RDWR) < 0)
            return;
}
