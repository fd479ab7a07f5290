/* The flags of train, compare, profile and demo: one table gives the parser and --help. */
#ifndef CLI_FLAGS_H
#define CLI_FLAGS_H

#include "train/run.h"

/* Reads argv[0..argc), the words after the subcommand, into *config, which must hold the
 * defaults. A dash and an underscore inside a flag are the same; the value is the next word, or
 * follows '='.
 * --help and -h set *help to 1 and end the reading; otherwise it is 0. ERR_USAGE says which flag is
 * unknown, and which one is near; which has no value or a wrong one; which can have no effect in
 * what `command` ("train" or "scale") was asked to do (flag_effects.h); or which two outputs would
 * go to the same file. An output must not replace the file of --init-from either, unless it is
 * --save. */
int flags_parse(int argc, char **argv, struct run_config *config, int *help, const char *command);

/* flags_parse for `command`, which trains in several modes. It refuses --mode, since it runs
 * several, and --save and --log-loss, since it writes neither: the user would learn that only
 * after the whole run. Sets config->mode to MODE_DP, so that run_config_check looks at all
 * devices. */
int flags_parse_all_modes(int argc, char **argv, struct run_config *config, int *help,
                          const char *command);

/* Only reads, for a command whose defaults depend on what was given: one flag may then not fit
 * another's value. */
int flags_read(int argc, char **argv, struct run_config *config, int *help);

/* Prints every flag with its meaning and default. command NULL: without a usage line above it. own:
 * the program's own model, or NULL. */
void flags_help(const char *command, const struct duet_model *own);

#endif
