/* Finds words in strings, for tests that check output. */
#ifndef TESTS_HARNESS_TEXT_H
#define TESTS_HARNESS_TEXT_H

#include <regex.h>
#include <string.h>

#include "tests/harness/harness.h"

/* How often `text` has the word, also inside of longer ones. */
static inline int count_of(const char *text, const char *word) {
    int n = 0;
    for (; (text = strstr(text, word)); text += strlen(word))
        n++;
    return n;
}

/* 1 if the text has these words, also where a line was broken between two of them. */
static inline int says(const char *text, const char *words) {
    static const char white[] = " \n";
    for (; *text; text++) {
        const char *t = text, *w = words;
        for (; *w && (*t == *w || (*w == ' ' && *t == '\n')); w++)
            t += *w == ' ' ? strspn(t, white) : 1;
        if (!*w) return 1;
    }
    return 0;
}

/* 1 if the POSIX extended expression matches somewhere in the text; '^' and '$' match at lines. */
static inline int matches(const char *text, const char *expression) {
    regex_t regex;
    cr_assert_eq(regcomp(&regex, expression, REG_EXTENDED | REG_NEWLINE | REG_NOSUB), 0, "%s",
                 expression);
    int found = regexec(&regex, text, 0, NULL, 0) == 0;
    regfree(&regex);
    return found;
}

#endif
