/* Texts of --help, and the name of this program in texts. */
#ifndef CLI_OPTIONS_HELP_H
#define CLI_OPTIONS_HELP_H

#include <stdio.h>

#include "cli/options/option.h"

/* Prints `text`, in which "duet train", "duet --help" and the like stand for this program: in
 * another program each becomes its name, "mynet train". */
void say(FILE *file, const char *text);

/* The same on standard output; each line of `text` becomes a paragraph of 80 columns, indented as
 * its first word is. */
void say_text(const char *text);

/* Prints an option as --help does: its name, its value and `help`, in lines of at most 80
 * columns. */
void option_print(const struct option *option, const char *help);

/* Prints all rows of a table that has no other columns, with their own help. */
void options_print(const struct option *rows);

#endif
