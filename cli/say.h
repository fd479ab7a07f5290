/* Texts that name this program. */
#ifndef CLI_SAY_H
#define CLI_SAY_H

#include <stdio.h>

/* Prints `text`, in which "duet train", "duet --help" and the like stand for this program: in
 * another program each becomes its name, "mynet train". */
void say(FILE *file, const char *text);

/* Prints what --help says of a flag: its name, its value (NULL: it takes none), and what it does,
 * in lines of at most 99 columns. */
void say_flag(const char *name, const char *value, const char *help);

#endif
