/* Reads the content of a file. */
#ifndef TESTS_BASE_CONTENT_H
#define TESTS_BASE_CONTENT_H

#include <stdio.h>

#include "tests/harness/harness.h"

static inline void content_is(const char *path, const char *want) {
    char text[100] = "";
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "%s", path);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    cr_assert_str_eq(text, want);
}

#endif
