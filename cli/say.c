/* Naming this program in help and messages, which are written for `duet`: see say.h. */
#include "cli/say.h"

#include <ctype.h>
#include <string.h>

#include "base/program.h"

static const char NAME[] = "duet";
enum { NAME_LENGTH = sizeof NAME - 1 };

/* 1: "duet" at `at` is a command to type, and no part of a path or of another word. */
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

/* ---- flags ---- */

enum { HELP_COLUMN = 33, HELP_WIDTH = 99 };

/* Prints the text word by word from column HELP_COLUMN on. Where a line begins the cursor stands in
 * column `column`. */
static void print_wrapped(const char *text, int column) {
    while (*text) {
        int length = (int)strcspn(text, " ");
        if (column > HELP_COLUMN && column + 1 + length > HELP_WIDTH) {
            printf("\n");
            column = 0;
        }
        int gap = column < HELP_COLUMN ? HELP_COLUMN - column : 1;
        printf("%*s%.*s", gap, "", length, text);
        column += gap + length;
        text += length + (text[length] == ' ');
    }
    printf("\n");
}

void say_flag(const char *name, const char *value, const char *help) {
    print_wrapped(help, printf("  %s %s", name, value ? value : ""));
}
