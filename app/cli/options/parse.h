/* The one parser of the command line. Words are read by one or two tables of options (option.h):
 *
 *     struct options o = {.command = "doctor", .part = {{doctor_options, &words}}};
 *     int code = options_read(&o, argc, argv);
 *     if (!code && o.help) ...                                                             */
#ifndef CLI_OPTIONS_PARSE_H
#define CLI_OPTIONS_PARSE_H

#include "cli/options/option.h"

enum { MOST_OPTIONS = 160 }; /* rows of a table, with its headings */

/* What other programs call an option, for suggestions; the last has no word. */
struct option_synonym {
    const char *word, *option;
};

struct options {
    const char *command; /* whose --help an error names */
    struct {
        const struct option *rows; /* if both tables have an option, the first counts */
        void *target;
    } part[2];                             /* rows NULL: there is no second table */
    const struct option_synonym *synonyms; /* NULL: none */
    int then_words; /* 1: a word that is not an option, or "--", ends reading; 0: it is refused */

    /* ---- set by options_read ---- */
    int help;                    /* --help or -h was given, which ends the reading */
    int all;                     /* --details was given too */
    int read;                    /* words of argv that were read */
    char given[2][MOST_OPTIONS]; /* row i of a table was given */
};

/* Reads argv[0 .. argc), the words after the subcommand. A dash and an underscore in the name of an
 * option are the same; the value is the next word, or follows '='. ERR_USAGE says which option is
 * unknown and which is the nearest, or which has no value or a wrong one. */
int options_read(struct options *o, int argc, char **argv);

/* The row of the option that `word` names, and in *part its table; NULL: there is none. */
const struct option *options_find(const struct options *o, const char *word, int *part);

/* Was the option given? */
int options_have(const struct options *o, const char *name);

#endif
