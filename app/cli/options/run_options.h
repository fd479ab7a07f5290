/* The options of the commands that train or estimate. The parser, --help and the man page all read
 * one table. */
#ifndef CLI_OPTIONS_RUN_OPTIONS_H
#define CLI_OPTIONS_RUN_OPTIONS_H

#include "cli/options/parse.h"
#include "train/run.h"

/* The largest global batch. */
enum { LARGEST_BATCH = 1 << 24 };

/* The table, whose rows set members of struct run_config. */
extern const struct option run_options[];

/* Readers of values that no other table has (run_readers.c). */
option_reader read_model, read_params, read_virtual, read_memory, read_shape, read_hidden,
    read_algorithm, read_modes, read_outputs;

/* Reads argv[0 .. argc), the words after o->command, into *config, which must hold the defaults. A
 * command that has its own options has set o->part[0]; others leave it zeroed. ERR_USAGE: as
 * options_read; or an option has no effect here (effects.h); or two outputs would go to the same
 * file. An output must not replace an input either, unless it is the new version of that input.
 *
 * A command other than train and scale trains in several modes, and config->mode becomes MODE_DP,
 * so that run_config_check looks at all devices. */
int run_options_parse(struct options *o, int argc, char **argv, struct run_config *config);

/* Only reads, for a command whose defaults depend on the given options: at this point options may
 * not fit each other yet. */
int run_options_read(struct options *o, int argc, char **argv, struct run_config *config);

/* Prints the options of runs that o->command has: the most used ones, or all (o->all), without
 * those in its own table. own: the program's own model, or NULL. */
void run_options_help(const struct options *o, const struct duet_model *own);

#endif
