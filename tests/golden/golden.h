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

/* The squared L2 distance of x from a tensor of which a file keeps the norm and sums of all elements with signs that look
 * random: sum j has the sign of element i in bit j of splitmix64(i). The mean square of their errors estimates it.
 * *square becomes the squared norm of the tensor. */
static inline double golden_distance(const char *file, const char *key, const double *x, size_t count, double *square) {
    enum { SUMS = 16 };
    char line[512], *end;
    double sums[SUMS] = {0}, apart = 0, norm = strtod(golden_fact(file, key, line), &end);
    for (size_t i = 0; i < count; i++) {
        uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        z ^= z >> 31;
        for (int j = 0; j < SUMS; j++)
            sums[j] += z >> j & 1 ? -x[i] : x[i];
    }
    for (int j = 0; j < SUMS; j++) {
        double d = sums[j] - strtod(end, &end);
        apart += d * d / SUMS;
    }
    *square = norm * norm;
    return apart;
}

/* FNV-1a, 64 bits, of little-endian float32. */
static inline uint64_t fnv1a64(const float *x, size_t count) {
    const unsigned char *bytes = (const unsigned char *)x;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < count * sizeof *x; i++) h = (h ^ bytes[i]) * 0x100000001b3u;
    return h;
}

#endif
