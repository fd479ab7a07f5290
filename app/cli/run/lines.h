/* `duet run --tee`: prints the ranks' output line by line with the rank in front, "[default1]:", as
 * torchrun does. */
#ifndef CLI_RUN_LINES_H
#define CLI_RUN_LINES_H

#include <sys/types.h>

#include "base/limits.h"

enum { LINES_STREAMS = 2 }; /* stdout and stderr: bits 1 and 2 of --tee */

struct lines {
    int pipe[MAX_DEVICES][LINES_STREAMS];     /* what a rank writes to; -1: it prints by itself */
    pid_t reader[MAX_DEVICES][LINES_STREAMS]; /* the process that reads it; 0: none */
};

/* Before the ranks start: makes the pipes and starts their readers. streams: the bits of those
 * whose lines begin with the rank; 0: nothing is done. */
int lines_start(struct lines *lines, int ranks, int streams);

/* In a rank, before exec. 0, or -1 and errno. */
int lines_enter(const struct lines *lines, int rank);

/* After the last rank has ended: waits until all output is written, however long its reader takes.
 * ERR_FAILED: some of it could not be written. */
int lines_end(struct lines *lines, int ranks);

#endif
