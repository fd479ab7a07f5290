/* Prints --help, with the name of this program in its examples. */
#ifndef CLI_OPTIONS_HELP_H
#define CLI_OPTIONS_HELP_H

#include <stdio.h>

#include "cli/options/option.h"

/* Prints `text`. In another program it replaces "duet" in "duet train", "duet --help" and so on
 * with that program's name: "mynet train". */
void say(FILE *file, const char *text);

/* The same on standard output; each line of `text` becomes a paragraph of 80 columns, indented like
 * its first word. */
void say_text(const char *text);

/* Prints an option as --help does: its name, its value and `help`, in lines of at most 80
 * columns. */
void option_print(const struct option *option, const char *help);

/* Prints all rows of a table, with their own help. */
void options_print(const struct option *rows);

#endif
