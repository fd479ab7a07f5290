/* Facts about processes from /proc. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include <sys/types.h>

/* Finds at most `most` children of this process, zombies included, and returns their number; 0 also
 * if /proc cannot be read. */
int process_children(pid_t *children, int most);

/* 1 if the name of a file that this process has mapped contains one of these names, a list that
 * ends with NULL. 0 if /proc cannot be read. */
int process_has_mapped(const char *const *names);

#endif
