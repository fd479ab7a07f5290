/* The options of the commands that train or estimate. The parser, --help and the man page use one
 * table. */
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
    read_modes, read_classes;

/* Reads argv[0 .. argc), the words after o->command, into *config, which must hold the defaults. A
 * command with options of its own has set o->part[0]; others leave it zeroed. ERR_USAGE: as
 * options_read; an option has no effect here (effects.h); two outputs have one file; or an output
 * would replace an input without being its new version.
 *
 * Commands other than train and scale train in several modes. For these config->mode becomes
 * MODE_DP, so that run_config_check checks all devices. */
int run_options_parse(struct options *o, int argc, char **argv, struct run_config *config);

/* Only reads, without these checks, for a command whose defaults depend on the given options. */
int run_options_read(struct options *o, int argc, char **argv, struct run_config *config);

/* Prints the options of runs for o->command: the most used ones, or all (o->all), except those in
 * its own table. own is the program's own model, or NULL. */
void run_options_help(const struct options *o, const struct duet_model *own);

#endif
