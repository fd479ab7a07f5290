/* Words in texts, for tests that look at what was written. */
#ifndef TESTS_HARNESS_TEXT_H
#define TESTS_HARNESS_TEXT_H

#include <string.h>

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

#endif
