/* The subcommands. Each reads argv[0..argc), the words after its name, prints its own errors and
 * returns the exit status. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "trace/record.h"

int command_demo(int argc, char **argv);
int command_train(int argc, char **argv);
int command_compare(int argc, char **argv);
int command_profile(int argc, char **argv);
int command_estimate(int argc, char **argv);
int command_scale(int argc, char **argv);
int command_diff(int argc, char **argv);
int command_sampler(int argc, char **argv);
int command_collective(int argc, char **argv);
int command_devices(int argc, char **argv);
int command_doctor(int argc, char **argv);

/* Prints "duet: " and the error text on stderr and returns the exit status for `code`. Prints
 * nothing for OK, and for ERR_READER, where the reader of the output has gone. */
int report_error(int code);

/* If losses of the run are not finite, prints one line on stderr that says since which step.
 * That is no failure of the run. title: which of several runs it is; NULL: there is only one. */
void warn_not_finite(const char *title, const struct run_record *run);

#endif
