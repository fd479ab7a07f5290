/* `duet estimate` with --gpu or --validate: times by the modelled clock. */
#ifndef CLI_ESTIMATE_MODELLED_H
#define CLI_ESTIMATE_MODELLED_H

struct duet_model;

/* 1: the words ask for modelled times. */
int modelled_is_asked(int argc, char **argv);
/* Prints the options of such a command. */
void modelled_help(void);
int command_modelled(int argc, char **argv, const struct duet_model *own);

/* --validate: the published measurements and what the clock says (cli/validate.c); commands: and
 * below each row the command that gives its number. Returns a code of base/error.h. */
int modelled_validate(int commands);

#endif
