/* The flags of train, compare, profile and demo: one table gives the parser and --help. */
#ifndef CLI_FLAGS_H
#define CLI_FLAGS_H

#include "train/run.h"

/* Reads argv[0..argc) (the words behind the subcommand) into *config. Dash and underscore are
 * the same inside a flag; a value may follow as the next word or behind '='. ERR_USAGE names an
 * unknown flag, a missing value, what is wrong with a value, or two outputs that would go to the
 * same file, or one that would replace the file of --init-from and is no --save. *help is set to
 * 1 by --help and -h, and reading ends there. */
int flags_parse(int argc, char **argv, struct run_config *config, int *help);

/* flags_parse for a command that trains in several modes, whose name is `command`. ERR_USAGE,
 * too, if --save or --log-loss was given, since it writes neither, or --mode, since it takes
 * them all. Silence would cost the user a whole run. config->mode is MODE_DP, so that checks
 * count the devices. */
int flags_parse_all_modes(int argc, char **argv, struct run_config *config, int *help,
                          const char *command);

/* Prints the table: flag, default, meaning; above it the usage of `command`, NULL: of none. */
void flags_help(const char *command);

#endif
