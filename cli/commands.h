/* The subcommands. Each reads argv[0..argc), the words after its name, prints its own errors and
 * returns the exit status. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "duet.h"
#include "trace/record.h"

/* own: the program's own model, NULL in `duet` itself. */
typedef int subcommand(int argc, char **argv, const struct duet_model *own);
subcommand command_demo, command_train, command_compare, command_profile, command_estimate,
    command_scale, command_diff, command_report, command_sampler, command_collective,
    command_devices, command_doctor, command_manual, command_run;

/* Prints what --help says of a command whose options are those of runs: its usage, what it does and
 * its options (run_options_help). */
struct options;
void command_usage(const struct options *options, const struct duet_model *own);

/* The subcommands in the order of --help: NULL behind the last. */
const char *command_name(int i);
const char *command_help(int i);

/* Prints the name of the program, ": " and the error text on stderr and returns the exit status
 * for `code`. Prints nothing for OK, and for ERR_READER, where the reader of the output has
 * gone. */
int report_error(int code);

/* What a run that did not fail has to say all the same, a line on stderr each: since which step its
 * losses are not finite; which parameters the last step of DDP left without a gradient. title:
 * which of several runs it is; NULL: there is only one. */
void warn_of_run(const char *title, const struct run_record *run);

#endif
