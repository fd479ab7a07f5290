/* Reading tests/golden/<name>.txt: one fact a line, words separated by spaces, '#' starts a comment. Tests run in the
 * project's root. */
#ifndef TESTS_GOLDEN_GOLDEN_H
#define TESTS_GOLDEN_GOLDEN_H

#include <stdint.h>

#include "tests/harness/harness.h"

/* The rest of the line that begins with `key` and a space, in `line`; fails the test if there is none. */
static inline const char *golden_fact(const char *file, const char *key, char line[512]) {
    FILE *f = fopen(file, "r");
    size_t length = strlen(key);
    cr_assert(f != NULL, "cannot read %s: run the tests in the project's root", file);
    while (fgets(line, 512, f)) {
        if (strncmp(line, key, length) || line[length] != ' ') continue;
        fclose(f);
        line[strcspn(line, "\n")] = 0;
        return line + length + 1;
    }
    fclose(f);
    cr_assert(0, "%s holds no line '%s ...'", file, key);
    return NULL;
}

static inline double golden_number(const char *file, const char *key) {
    char line[512];
    return strtod(golden_fact(file, key, line), NULL);
}

/* FNV-1a, 64 bits, of little-endian float32. */
static inline uint64_t fnv1a64(const float *x, size_t count) {
    const unsigned char *bytes = (const unsigned char *)x;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < count * sizeof *x; i++) h = (h ^ bytes[i]) * 0x100000001b3u;
    return h;
}

#endif
