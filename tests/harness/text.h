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

#endif
