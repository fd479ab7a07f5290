/* Facts about processes from /proc. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include <sys/types.h>

/* The children of this process, also those that have ended and wait to be collected: returns how
 * many it has found, `most` at most; 0 also where /proc cannot be read. */
int process_children(pid_t *children, int most);

/* 1: the name of a file that this process has mapped contains one of these names, which NULL ends.
 * 0 if /proc cannot be read. */
int process_has_mapped(const char *const *names);

#endif
