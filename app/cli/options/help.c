/* Prints help: see help.h. Help strings are written for `duet`. */
#include "cli/options/help.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/program_name.h"
#include "report/text.h"

static const char NAME[] = "duet";
enum { HELP_COLUMN = 29, HELP_WIDTH = TEXT_USUAL };
enum { NAME_LENGTH = sizeof NAME - 1 };

/* 1: "duet" at `at` is a command to type, not part of a path or of another word. */
static int is_command(const char *text, const char *at) {
    const char *next = at + NAME_LENGTH;
    if (at > text && (isalnum((unsigned char)at[-1]) || strchr("_/.-", at[-1]))) return 0;
    if (*next != ' ' && *next != '\n') return 0;
    next += strspn(next, " \n");
    return !strncmp(next, "--", 2) || isalpha((unsigned char)*next);
}

void say(FILE *file, const char *text) {
    const char *name = program_name();
    for (const char *at; strcmp(name, NAME) && (at = strstr(text, NAME)); text = at + NAME_LENGTH) {
        fwrite(text, 1, (size_t)(at - text), file);
        fputs(is_command(text, at) ? name : NAME, file);
    }
    fputs(text, file);
}

void say_text(const char *text) {
    char *named = NULL;
    size_t bytes;
    FILE *memory = open_memstream(&named, &bytes);
    if (!memory) return;
    say(memory, text);
    if (fclose(memory)) return;
    for (char *line = named, *next; *line; line = next) {
        int indent = (int)strspn(line, " ");
        next = line + strcspn(line, "\n");
        if (*next) *next++ = 0;
        text_wrap(stdout, HELP_WIDTH, indent, indent, line + indent);
    }
    free(named);
}

/* ---- options ---- */

/* A name that is too long for its column has a line of its own. */
void option_print(const struct option *option, const char *help) {
    const char *value = option->value ? option->value : "";
    char name[96];
    int length = snprintf(name, sizeof name, "  %s%s%s", option->name, *value ? " " : "", value);
    if (length >= HELP_COLUMN) printf("%s\n", name);
    text_say(stdout, HELP_WIDTH, 0, HELP_COLUMN, "%-*s%s", HELP_COLUMN,
             length < HELP_COLUMN ? name : "", help);
}

void options_print(const struct option *rows) {
    for (const struct option *row = rows; row->help; row++)
        if (!row->name)
            printf("\n%s:\n", row->help);
        else if (*row->help)
            option_print(row, row->help);
}
