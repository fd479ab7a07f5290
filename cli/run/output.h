/* Where the ranks of `duet run` print: to the terminal, to files, or to both. */
#ifndef CLI_RUN_OUTPUT_H
#define CLI_RUN_OUTPUT_H

#include <sys/types.h>

#include "base/limits.h"

/* Which streams of a rank: bits, as torchrun counts them. */
enum { TO_OUT = 1, TO_ERR = 2 };

struct run_output {
    const char *folder;                          /* of the files; NULL: there are none */
    int redirect[MAX_DEVICES], tee[MAX_DEVICES]; /* by rank */
    const char *role;                            /* stands in front of the rank in each line */
    char temporary[4096];                        /* of `folder`, where nobody has named one */
    char attempt[4096];                          /* the folder of this attempt */
    int pipes[MAX_DEVICES][2];                   /* what a rank writes to: stdout, stderr */
    pid_t pump;                                  /* copies from the pipes; 0: nobody */
    int running;                                 /* a pipe that is closed behind the last rank */
    int lost; /* 1: some output could not be written, and a line has said so */
};

/* Reads the value of --redirects or --tee: 0 to 3 for all ranks, or "0:3,1:1" by rank. */
int run_output_parse(const char *flag, const char *text, int *by_rank);

/* Before the first attempt: where output is to go to files and no folder was named, makes one in
 * TMPDIR (/tmp) and prints its name. It stays. */
int run_output_choose_folder(struct run_output *output, int ranks);

/* Before the ranks of an attempt start: makes folders and pipes, and starts the process that copies
 * from them. end: behind the last rank; waits until all that the ranks have printed is written. */
int run_output_begin(struct run_output *output, int ranks, int attempt);
void run_output_end(struct run_output *output, int ranks);

/* In a rank, before exec: its streams. 0, or an errno value. */
int run_output_enter(const struct run_output *output, int rank);

#endif
