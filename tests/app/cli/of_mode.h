/* Splits one list of options for runs in several modes. A mode refuses flags without effect in it,
 * so each mode gets its part of the list. */
#ifndef TESTS_CLI_OF_MODE_H
#define TESTS_CLI_OF_MODE_H

#include <stdio.h>
#include <string.h>

/* Returns `options`, separated by spaces, without the flags that belong to other modes than `mode`,
 * which is the first word of the text `mode`.
 * The text is good until the fourth call from here. */
static inline const char *of_mode(const char *mode, const char *options) {
    static const struct {
        const char *flag, *modes;
        int values;
    } table[] = {{"--devices", "dp,ddp", 1},   {"--loss-in-forward", "dp", 0},
                 {"--output-device", "dp", 1}, {"--dp-reduce", "dp", 1},
                 {"--allreduce", ",ddp", 1},   {"--bucket-cap-mb", ",ddp", 1},
                 {"--no-overlap", ",ddp", 0},  {"--find-unused-parameters", ",ddp", 0}};
    static char texts[4][1024];
    static int next;
    char copy[1024], *save = NULL, *text = texts[next++ % 4];
    snprintf(copy, sizeof copy, "%s", options);
    *text = 0;
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        size_t i = 0, n = sizeof table / sizeof *table, length = strlen(text);
        while (i < n && strcmp(table[i].flag, word))
            i++;
        int foreign = i < n && (!strncmp(mode, "ddp", 3)  ? !strstr(table[i].modes, ",ddp")
                                : !strncmp(mode, "dp", 2) ? strncmp(table[i].modes, "dp", 2) != 0
                                                          : 1);
        if (!foreign)
            snprintf(text + length, 1024 - length, "%s%s", length ? " " : "", word);
        else if (table[i].values)
            strtok_r(NULL, " ", &save);
    }
    return text;
}

#endif
