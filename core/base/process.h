/* Facts about processes from /proc. A debugger hides some of them from a process's parent: waitid()
 * does not report a stop by a debugger, and the parent learns of the process's end only once the
 * debugger has released it. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include <sys/types.h>

/* Is the process stopped by a debugger? 0 also where /proc cannot be read. */
int process_is_traced(pid_t pid);

/* Have all threads of a child of this process ended, whether or not waitid() says so? 0 also where
 * /proc cannot be read. */
int process_is_dead(pid_t pid);

/* The children of this process, also those that have ended and wait to be collected: returns how
 * many it has found, `most` at most; 0 also where /proc cannot be read. */
int process_children(pid_t *children, int most);

/* 1: one of these names, which NULL ends, is part of the name of a file that this process has
 * mapped. 0 where /proc cannot be read. */
int process_has_mapped(const char *const *names);

#endif
