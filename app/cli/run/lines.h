/* `duet run --tee`: prints the ranks' output line by line with the rank in front, "[default1]:", as
 * torchrun does. */
#ifndef CLI_RUN_LINES_H
#define CLI_RUN_LINES_H

#include <sys/types.h>

#include "base/limits.h"

enum { LINES_STREAMS = 2 }; /* stdout and stderr: bits 1 and 2 of --tee */

struct lines {
    int pipe[MAX_DEVICES][LINES_STREAMS];     /* a rank writes to it; -1: the rank prints */
    pid_t reader[MAX_DEVICES][LINES_STREAMS]; /* the process that reads the pipe; 0: none */
};

/* Called before the ranks start: makes the pipes and starts their readers. streams has the bits of
 * the streams to prefix; 0: does nothing. */
int lines_start(struct lines *lines, int ranks, int streams);

/* Called in a rank, before exec. Returns 0, or -1 and sets errno. */
int lines_enter(const struct lines *lines, int rank);

/* Called after the last rank has ended: waits until all output is written, however long its reader
 * takes. ERR_FAILED: some output could not be written. */
int lines_end(struct lines *lines, int ranks);

#endif
