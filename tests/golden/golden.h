/* Reads tests/golden/<name>.txt: one fact per line, words separated by spaces, '#' starts a comment. Tests run in the
 * project's root. */
#ifndef TESTS_GOLDEN_GOLDEN_H
#define TESTS_GOLDEN_GOLDEN_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Number i + 1 of splitmix64 with seed 0. */
static inline uint64_t golden_splitmix64(uint64_t i) {
    uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* The squared L2 distance of x from a tensor of which a file keeps the norm and up to 16 sums of all elements with signs
 * that look random: sum j has the sign of element i in bit j of splitmix64(i). The mean square of their errors estimates
 * it. *square becomes the squared norm of the tensor. */
static inline double golden_distance(const char *file, const char *key, const double *x,
                                     size_t count, double *square) {
    enum { SUMS = 16 };
    char line[512], *at, *end;
    double sums[SUMS] = {0}, apart = 0, norm = strtod(golden_fact(file, key, line), &at);
    int kept = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t z = golden_splitmix64(i);
        for (int j = 0; j < SUMS; j++)
            sums[j] += z >> j & 1 ? -x[i] : x[i];
    }
    for (double want = strtod(at, &end); kept < SUMS && end > at;
         at = end, want = strtod(at, &end)) {
        double d = sums[kept++] - want;
        apart += d * d;
    }
    cr_assert(kept > 0, "%s, %s: there are no sums", file, key);
    *square = norm * norm;
    return apart / kept;
}

/* Element i of the inputs that formulas.py makes. */
static inline float golden_value(int i, int a) {
    return (float)((i * a + 13) % 1000 / 500.0 - 1);
}

/* A tensor small enough to be kept whole, in a line `NAME DIMS : NUMBERS`. */
struct golden_tensor {
    int dims[4]; /* those after its rank are 0; a number has one of 1 */
    size_t count;
    double x[1024];
};

/* The tensor of that name; fails the test if there is none. */
static inline struct golden_tensor golden_tensor(const char *file, const char *name) {
    struct golden_tensor t = {.count = 0};
    char *line = NULL, *at = NULL, *end;
    size_t size = 0, length = strlen(name);
    FILE *f = fopen(file, "r");
    cr_assert(f != NULL, "cannot read %s: run the tests in the project's root", file);
    while (!at && getline(&line, &size, f) > 0)
        if (!strncmp(line, name, length) && line[length] == ' ') at = line + length;
    fclose(f);
    cr_assert(at != NULL, "%s holds no line '%s ...'", file, name);
    for (int d = 0; d < 4 && strncmp(at, " :", 2); d++)
        t.dims[d] = (int)strtol(at, &at, 10);
    cr_assert(!strncmp(at, " :", 2), "%s, %s: the dimensions do not end", file, name);
    at += 2;
    for (double x = strtod(at, &end); end > at; at = end, x = strtod(at, &end)) {
        cr_assert(t.count < sizeof t.x / sizeof *t.x, "%s, %s: too many numbers", file, name);
        t.x[t.count++] = x;
    }
    cr_assert(*end == '\n' && t.count > 0, "%s, %s: not a number: %.20s", file, name, end);
    free(line);
    return t;
}

/* `got` is that tensor: each number is within tolerance * (1 + |it|). */
static inline void golden_near(const char *file, const char *name, const float *got, size_t count,
                               double tolerance) {
    struct golden_tensor want = golden_tensor(file, name);
    cr_assert_eq(count, want.count, "%s has %zu numbers, not %zu", name, count, want.count);
    for (size_t i = 0; i < count; i++)
        cr_assert(fabs((double)got[i] - want.x[i]) <= tolerance * (1 + fabs(want.x[i])),
                  "%s[%zu] is %.9g, not %.9g", name, i, (double)got[i], want.x[i]);
}

/* FNV-1a, 64 bits, of little-endian float32. */
static inline uint64_t fnv1a64(const float *x, size_t count) {
    const unsigned char *bytes = (const unsigned char *)x;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < count * sizeof *x; i++)
        h = (h ^ bytes[i]) * 0x100000001b3u;
    return h;
}

#endif
