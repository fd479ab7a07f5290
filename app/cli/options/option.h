/* Options of the command line. Every subcommand has a table with one row for each of its options;
 * one parser (parse.h) reads words by such tables, and --help, the man page and the completion of
 * bash print them (help.h, cli/manual.c).
 *
 * A new option is one row: its name, how its value is read, the member that it sets, and three
 * columns of bits that say where it has an effect. Elsewhere it is refused with the reason
 * (effects.h), because its user expects an effect. */
#ifndef CLI_OPTIONS_OPTION_H
#define CLI_OPTIONS_OPTION_H

#include <stddef.h>
#include <stdint.h>

struct option;
/* Reads the value `text` of an option ("" for one that takes none) into *target, the struct that
 * the rows of the table set. ERR_USAGE says what is wrong with it. */
typedef int option_reader(const struct option *option, const char *text, void *target);

struct option {
    const char *name; /* "--devices"; NULL: no option, `help` is the heading of those below it */
    /* How --help shows the value; NULL: the option takes none. "a|b|c": one of these words, for
     * read_choice. */
    const char *value;
    const char *help; /* "": accepted, and not listed */
    option_reader *read;
    size_t offset, bytes;   /* of the member of *target that it sets */
    double lowest, highest; /* of a number: the limits, both allowed */
    /* Where it has an effect: in which commands (enum command_bit), in which modes (bits of enum
     * run_mode; 0: in all), and under which conditions (bits of enum condition). Tables of commands
     * that have one purpose leave all three 0. */
    unsigned commands, modes, conditions;
};

/* The end of a table: neither a name nor a help. */
#define OPTION_AT(type, member) offsetof(type, member), sizeof(((type *)0)->member)
#define NO_MEMBER 0, 0
#define NO_LIMITS 0, 0
#define ALWAYS 0, 0, 0
#define OPTION_HEADING(text) \
    { NULL, NULL, text, NULL, NO_MEMBER, NO_LIMITS, ALWAYS }
#define OPTION_END \
    { NULL, NULL, NULL, NULL, NO_MEMBER, NO_LIMITS, ALWAYS }

/* ---- readers, for members of these types ---- */

option_reader read_on, read_off; /* int: 1, 0 */
option_reader read_int;          /* int, or int64_t by its size */
option_reader read_number;       /* double */
option_reader read_seed;         /* uint64_t */
option_reader read_bytes;        /* uint64_t, as 64M */
option_reader read_count;        /* int64_t, as 25.6M */
option_reader read_text;         /* char[]: at most its bytes - 1, not empty */
option_reader read_word;         /* const char *: the word itself, not empty */
option_reader read_choice;       /* an enum or int: the index of the word in option->value */
option_reader read_precision;    /* the same; of the names that PyTorch has */
option_reader read_nothing;      /* no member: any value will do */

/* The member of *target that the option sets. */
void *option_member(const struct option *option, void *target);

/* Sets *index to the position of `text` among the words that the option takes; ERR_USAGE names the
 * nearest. */
int option_choose(const struct option *option, const char *text, const char *const *words,
                  int count, int *index);

#endif
