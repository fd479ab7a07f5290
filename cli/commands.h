/* The subcommands: each reads its own words (argv behind the subcommand) and returns the exit
 * status. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

int command_demo(int argc, char **argv);
int command_train(int argc, char **argv);
int command_compare(int argc, char **argv);
int command_profile(int argc, char **argv);
int command_sampler(int argc, char **argv);
int command_devices(int argc, char **argv);
int command_doctor(int argc, char **argv);

/* Prints "duet: " and the error text on stderr, but for ERR_READER; returns the exit status of
 * `code`. */
int report_error(int code);

#endif
