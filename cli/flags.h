/* The flags of train, compare, profile and demo: one table gives the parser and --help. */
#ifndef CLI_FLAGS_H
#define CLI_FLAGS_H

#include "train/run.h"

/* Reads argv[0..argc) (the words behind the subcommand) into *config. Dash and underscore are the same inside
 * a flag; a value may follow as the next word or behind '='. ERR_USAGE names an unknown flag, a missing
 * value, what is wrong with a value, or two outputs that would go to the same file. *help is set to 1 by --help and -h, and reading ends there. */
int flags_parse(int argc, char **argv, struct run_config *config, int *help);

/* ERR_USAGE if --save or --log-loss was given to a command that trains several models and so writes neither:
 * `command` is its name. Silence would cost the user a whole run. */
int flags_refuse_outputs(const struct run_config *config, const char *command);

/* Prints the table: flag, default, meaning; above it the usage of `command`, NULL: of none. */
void flags_help(const char *command);

#endif
