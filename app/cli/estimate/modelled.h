/* `duet estimate` with --gpu or --validate: times from the modelled clock. */
#ifndef CLI_ESTIMATE_MODELLED_H
#define CLI_ESTIMATE_MODELLED_H

struct duet_model;

/* Returns 1 if the words ask for modelled times. */
int modelled_is_asked(int argc, char **argv);
/* Prints the options of such a command. */
void modelled_help(void);
int command_modelled(int argc, char **argv, const struct duet_model *own);

/* --validate: prints the published measurements and the clock's predictions (cli/validate.c).
 * commands 1: below each row the command that predicts it. Returns a code. */
int modelled_validate(int commands);

#endif
