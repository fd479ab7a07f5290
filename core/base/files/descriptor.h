/* The numbers of descriptors, and the sizes of their files. 0, 1 and 2 are the standard streams,
 * also in a program that was started with some of them closed (`program >&-`). The kernel gives a
 * new descriptor the lowest number that is free. A file that got one of these three would receive
 * the program's output, so every descriptor that stays open is moved above them. */
#ifndef BASE_FILES_DESCRIPTOR_H
#define BASE_FILES_DESCRIPTOR_H

#include <stddef.h>
#include <sys/types.h>

/* Gives the descriptor a number above those of the standard streams: returns `fd` itself if it is
 * above them, else a duplicate that is closed on exec, and closes `fd`. -1, with errno: `fd` is -1,
 * or no number is free. */
int above_streams(int fd);

/* The same for both ends of a pipe or a pair of sockets. -1, with errno: both are closed and
 * set to -1. */
int both_above_streams(int pair[2]);

/* ftruncate and posix_fallocate from 0 on, and write. Beyond a limit of file sizes (ulimit -f),
 * which holds for memory files too, they fail with EFBIG without the signal SIGXFSZ, which would
 * end the program before it can say why. Return -1, with errno. */
int file_resize(int fd, size_t bytes);
int file_allocate(int fd, size_t bytes);
ssize_t file_write(int fd, const void *bytes, size_t count);

#endif
