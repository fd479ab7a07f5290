/* The flags of train, compare, profile and demo: one table gives the parser and --help. */
#ifndef CLI_FLAGS_H
#define CLI_FLAGS_H

#include "train/run.h"

/* Reads argv[0..argc), the words after the subcommand, into *config, which must hold the
 * defaults. A dash and an underscore inside a flag are the same; the value is the next word, or
 * follows '='.
 * --help and -h set *help to 1 and end the reading; otherwise it is 0. ERR_USAGE says which flag is
 * unknown, has no value or a wrong one, or which two outputs would go to the same file. An
 * output must not replace the file of --init-from either, unless it is --save. */
int flags_parse(int argc, char **argv, struct run_config *config, int *help);

/* flags_parse for `command`, which trains in several modes. It refuses --mode, since it runs
 * several, and --save and --log-loss, since it writes neither: the user would learn that only
 * after the whole run. Sets config->mode to MODE_DP, so that run_config_check looks at all
 * devices. */
int flags_parse_all_modes(int argc, char **argv, struct run_config *config, int *help,
                          const char *command);

/* Prints every flag with its meaning and default. command NULL: without a usage line above it. */
void flags_help(const char *command);

#endif
