/* The subcommands. Each reads argv[0..argc), the words after its name, prints its own errors and
 * returns the exit status. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

int command_demo(int argc, char **argv);
int command_train(int argc, char **argv);
int command_compare(int argc, char **argv);
int command_profile(int argc, char **argv);
int command_sampler(int argc, char **argv);
int command_devices(int argc, char **argv);
int command_doctor(int argc, char **argv);

/* Prints "duet: " and the error text on stderr and returns the exit status for `code`. Prints
 * nothing for OK, and for ERR_READER, where the reader of the output has gone. */
int report_error(int code);

#endif
