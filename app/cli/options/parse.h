/* The only parser of the command line. It uses one or two tables of options (option.h):
 *
 *     struct options o = {.command = "doctor", .part = {{doctor_options, &words}}};
 *     int code = options_read(&o, argc, argv);
 *     if (!code && o.help) ...                                                             */
#ifndef CLI_OPTIONS_PARSE_H
#define CLI_OPTIONS_PARSE_H

#include "cli/options/option.h"

enum { MOST_OPTIONS = 160 }; /* rows of a table, with its headings */

/* Other programs' names for an option, for suggestions; the last has no word. */
struct option_synonym {
    const char *word, *option;
};

struct options {
    const char *command; /* errors refer to this command's --help */
    struct {
        const struct option *rows; /* if both tables have an option, the first one wins */
        void *target;
    } part[2];                             /* rows NULL: no second table */
    const struct option_synonym *synonyms; /* NULL: none */
    int then_words; /* 1: a word that is not an option, or "--", ends reading; 0: error */

    /* ---- set by options_read ---- */
    int help;                    /* --help or -h was given, which ends the reading */
    int all;                     /* --details was given too */
    int read;                    /* number of words of argv that were read */
    char given[2][MOST_OPTIONS]; /* row i of a table was given */
};

/* Reads argv[0 .. argc), the words after the subcommand. In names '_' is the same as '-'. The value
 * is the next word, or follows '='. ERR_USAGE names an unknown option and the most similar one, or
 * one with a wrong or missing value. */
int options_read(struct options *o, int argc, char **argv);

/* The row of the option `word`, with the index of its table in *part; NULL: no such option. */
const struct option *options_find(const struct options *o, const char *word, int *part);

/* Returns 1 if the option was given. */
int options_have(const struct options *o, const char *name);

#endif
