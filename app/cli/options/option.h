/* Options of the command line. Every subcommand has a table with one row for each of its options.
 * One parser (parse.h) uses these tables, and --help, the man page and bash completion are printed
 * from them (help.h, cli/manual.c).
 *
 * A new option is one row: its name, the reader of its value, the member that it sets, and three
 * columns of bits that say where it has an effect. Elsewhere it is refused with the reason
 * (effects.h), because the user expects an effect. */
#ifndef CLI_OPTIONS_OPTION_H
#define CLI_OPTIONS_OPTION_H

#include <stddef.h>
#include <stdint.h>

struct option;
/* Reads the value `text` of an option ("" if it takes none) into *target, the struct that the rows
 * of the table set. The message of ERR_USAGE says what is wrong. */
typedef int option_reader(const struct option *option, const char *text, void *target);

struct option {
    const char *name; /* "--devices"; NULL: `help` is a heading, not an option */
    /* The value as shown in --help; NULL: the option takes none. For read_choice "a|b|c" lists the
     * valid words. */
    const char *value;
    const char *help; /* "": accepted but not listed */
    option_reader *read;
    size_t offset, bytes;   /* the member of *target that it sets */
    double lowest, highest; /* limits of a number, both allowed */
    /* The option affects: commands (bits of enum command_bit), modes (bits of enum run_mode; 0:
     * all) and conditions (bits of enum condition). Tables for one command leave them 0. */
    unsigned commands, modes, conditions;
};

/* The last row of a table has neither name nor help. */
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
option_reader read_int;          /* int or int64_t, depending on its size */
option_reader read_number;       /* double */
option_reader read_seed;         /* uint64_t */
option_reader read_bytes;        /* uint64_t, such as 64M */
option_reader read_count;        /* int64_t, such as 25.6M */
option_reader read_text;         /* char[]: not empty, at most its size - 1 bytes */
option_reader read_word;         /* const char *: the word itself, not empty */
option_reader read_choice;       /* an enum or int: the index of the word in option->value; or
                                  * char[]: the word */
option_reader read_precision;    /* the same; refuses bf16 and fp16 with advice */
option_reader read_nothing;      /* no member: any value is accepted */

/* The member of *target that the option sets. */
void *option_member(const struct option *option, void *target);

/* Sets *index to the index of `text` among the option's words; ERR_USAGE suggests a similar
 * word. */
int option_choose(const struct option *option, const char *text, const char *const *words,
                  int count, int *index);

#endif
