/* The words of `duet run`: its options, as torchrun spells them, and the program. */
#ifndef CLI_RUN_WORDS_H
#define CLI_RUN_WORDS_H

#include <stdint.h>

#include "cli/options/option.h"
#include "cli/run/output.h"

struct run_words {
    int64_t ranks, restarts, port; /* port 0: one that is free */
    double ignored;                /* --monitor-interval: an end is noticed at once */
    double grace_s;                /* from a signal to this command until the ranks are killed */
    struct run_output output;
    char **program; /* and its arguments, ended by NULL */
    const char *role;
    const char *address; /* MASTER_ADDR of the ranks; NULL: the launcher's own */
    int local_rank;      /* 1: --local_rank=N is the last argument of local rank N */
    int help;            /* asked for: nothing else counts */

    /* the last option of --rdzv- and its value, NULL: none was given */
    const char *rendezvous[2];
    int standalone;
};

/* Reads the words behind `duet run`. ERR_USAGE names the option, or the
 * program that cannot start. */
int run_words_read(int argc, char **argv, struct run_words *words);

/* The table of its options, and a sentence on those that it accepts and ignores, which the table
 * does not list. */
extern const struct option launch_options[];
extern const char *const launch_ignores;

/* Prints what --help says; returns 0. */
int run_help(void);

#endif
