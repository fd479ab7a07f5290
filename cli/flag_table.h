/* The table of flags: one row for each flag of train, compare, profile and demo. The parser and
 * --help both read it (flags.c). */
#ifndef CLI_FLAG_TABLE_H
#define CLI_FLAG_TABLE_H

#include "cli/flag_effects.h"
#include "train/run.h"

/* The largest global batch. */
enum { LARGEST_BATCH = 1 << 24 };

struct flag;
/* Reads the value `text` of a flag into *config; "" for a flag that takes none. ERR_USAGE says
 * what is wrong with it. */
typedef int flag_reader(const struct flag *flag, const char *text, struct run_config *config);

struct flag {
    const char *name; /* "--devices"; NULL: no flag, `help` is the heading of the flags below it */
    /* How --help shows the value; NULL: the flag takes none. "[=X]": it may stand alone, and a
     * value must follow behind '='. */
    const char *value;
    const char *help;
    flag_reader *read;
    size_t offset, bytes;   /* of the member of struct run_config that it sets */
    double lowest, highest; /* of a number: the limits, both allowed */
    flag_effect *effect;    /* where it has an effect; elsewhere it is refused (flag_effects.h) */
};

/* The rows in the order of --help, ended by one whose name and help are NULL. */
extern const struct flag flag_table[];

#endif
