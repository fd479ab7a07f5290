/* The words of `duet run`: its flags, as torchrun spells them, and the program. */
#ifndef CLI_RUN_WORDS_H
#define CLI_RUN_WORDS_H

#include <stdint.h>

#include "cli/run_output.h"

struct run_words {
    int64_t ranks, restarts, port; /* port 0: one that is free */
    double grace_s;                /* from a signal to this command until the ranks are killed */
    struct run_output output;
    char **program; /* and its arguments, ended by NULL */
    const char *role;
    int help; /* asked for: nothing else counts */

    /* the last flag of --rdzv- and its value, NULL: none was given */
    const char *rendezvous[2];
    int standalone;
};

/* Reads the words behind `duet run`. ERR_USAGE names the flag, or the program that cannot start. */
int run_words_read(int argc, char **argv, struct run_words *words);

/* The flags, in the order of --help, ended by one without a name. */
struct run_flag {
    const char *name, *value; /* value NULL: the flag takes none */
    const char *help;
};
extern const struct run_flag run_flags[];

/* Prints what --help says; returns 0. */
int run_help(void);

#endif
