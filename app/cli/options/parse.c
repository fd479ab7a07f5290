/* Parses words with tables of options: see parse.h. */
#include "cli/options/parse.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text/nearest.h"

enum { PARTS = 2, MOST_KNOWN = PARTS * MOST_OPTIONS + 32 };

/* 1 if `word`, up to its '=' or its end, names this option. */
static int option_is(const char *name, const char *word) {
    for (; *word && *word != '='; name++, word++)
        if (*name != (*word == '_' ? '-' : *word)) return 0;
    return !*name;
}

const struct option *options_find(const struct options *o, const char *word, int *part) {
    for (*part = 0; *part < PARTS && o->part[*part].rows; ++*part)
        for (const struct option *row = o->part[*part].rows; row->help; row++)
            if (row->name && option_is(row->name, word)) return row;
    return NULL;
}

int options_have(const struct options *o, const char *name) {
    int part;
    const struct option *row = options_find(o, name, &part);
    return row && o->given[part][row - o->part[part].rows];
}

static int unknown(const struct options *o, const char *word) {
    const char *known[MOST_KNOWN];
    char help[64] = "duet --help";
    int count = 0, own;
    for (int p = 0; p < PARTS && o->part[p].rows; p++)
        for (const struct option *row = o->part[p].rows; row->help; row++)
            if (row->name) known[count++] = row->name;
    own = count;
    for (const struct option_synonym *s = o->synonyms; s && s->word; s++)
        known[count++] = s->word;
    const char *nearest = nearest_word(word, known, count);
    for (const struct option_synonym *s = o->synonyms; s && nearest && s->word; s++)
        if (!strcmp(nearest, s->word))
            return fail(ERR_USAGE, "unknown option: %s: did you mean %s?", word, s->option);
    if (o->command) snprintf(help, sizeof help, "duet %s --help", o->command);
    return unknown_option(word, known, own, help);
}

static int is_help(const char *word) {
    return !strcmp(word, "--help") || !strcmp(word, "-h");
}

/* Reads the option argv[*i] and its value. */
static int read_option(struct options *o, int argc, char **argv, int *i) {
    int part;
    const char *equals = strchr(argv[*i], '='), *text = "";
    const struct option *row = options_find(o, argv[*i], &part);
    if (!row) return unknown(o, argv[*i]);
    if (!row->value && equals)
        return fail(ERR_USAGE, "%s: takes no value, but was given %s: leave it out", row->name,
                    equals + 1);
    if (equals)
        text = equals + 1;
    else if (row->value)
        text = *i + 1 < argc && strncmp(argv[*i + 1], "--", 2) ? argv[++*i] : NULL;
    if (!text) return fail(ERR_USAGE, "%s: no value: give %s", row->name, row->value);
    CHECK(row->read(row, text, o->part[part].target));
    o->given[part][row - o->part[part].rows] = 1;
    return OK;
}

int options_read(struct options *o, int argc, char **argv) {
    int i = 0;
    o->help = o->all = 0;
    memset(o->given, 0, sizeof o->given);
    for (; i < argc; i++) {
        if (is_help(argv[i])) {
            o->help = 1;
            for (int k = 0; k < argc; k++)
                o->all |= !strcmp(argv[k], "--details");
            return OK;
        }
        if (o->then_words && (*argv[i] != '-' || !argv[i][1])) break;
        if (o->then_words && !strcmp(argv[i], "--")) {
            i++;
            break;
        }
        CHECK(read_option(o, argc, argv, &i));
    }
    o->read = i;
    return OK;
}
