/* Strict parsing. strtol and related functions accept " 12abc", hexadecimal, "inf" and silent
 * overflow. A training run with a misread number is worse than an error, so the form of the word is
 * checked before it is converted. */
#include "base/text/parse.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/text/number.h"

/* The length of the number at the start of the text, [sign] digits [. digits] [e [sign] digits];
 * 0 if there is none. */
static size_t number_length(const char *text) {
    static const char digits[] = "0123456789";
    const char *p = text + (*text == '-' || *text == '+');
    size_t whole = strspn(p, digits), fraction = 0;
    p += whole;
    if (*p == '.') {
        fraction = strspn(p + 1, digits);
        p += 1 + fraction;
    }
    if (whole + fraction == 0) return 0;
    if (*p == 'e' || *p == 'E') {
        const char *exponent = p + 1 + (p[1] == '-' || p[1] == '+');
        size_t n = strspn(exponent, digits);
        if (n) p = exponent + n;
    }
    return (size_t)(p - text);
}

/* Converts all of text[0..length), which ends at the end of the text or at a comma. Returns 0 if it
 * is not an integer in range. */
static int convert_int(const char *text, size_t length, int64_t lowest, int64_t highest,
                       int64_t *value) {
    size_t sign = length && (*text == '-' || *text == '+');
    if (length == sign || strspn(text + sign, "0123456789") != length - sign) return 0;
    errno = 0;
    long long v = strtoll(text, NULL, 10); /* stops at the comma or the end */
    if (errno || v < lowest || v > highest) return 0;
    *value = v;
    return 1;
}

int parse_int(const char *what, const char *text, int64_t lowest, int64_t highest, int64_t *value) {
    if (convert_int(text, strlen(text), lowest, highest, value)) return OK;
    return fail(ERR_USAGE, "%s: '%s': give an integer from %lld to %lld", what, text,
                (long long)lowest, (long long)highest);
}

int parse_int_list(const char *what, const char *text, int64_t lowest, int64_t highest,
                   int64_t *values, int most, int *count) {
    int n = 0;
    for (const char *p = text;; p++) {
        size_t length = strcspn(p, ",");
        int64_t value;
        if (n == most)
            return fail(ERR_USAGE, "%s: '%s': give at most %d numbers", what, text, most);
        if (!convert_int(p, length, lowest, highest, &value))
            return fail(ERR_USAGE,
                        "%s: '%.*s' in '%s': give integers from %lld to %lld, with commas between",
                        what, (int)length, p, text, (long long)lowest, (long long)highest);
        values[n++] = value;
        p += length;
        if (!*p) break;
    }
    *count = n;
    return OK;
}

int parse_seed(const char *what, const char *text, uint64_t *seed) {
    size_t sign = *text == '-' || *text == '+', digits = strspn(text + sign, "0123456789");
    errno = 0;
    uint64_t value = *text == '-' ? (uint64_t)strtoll(text, NULL, 10) : strtoull(text, NULL, 10);
    if (errno || !digits || text[sign + digits])
        return fail(ERR_USAGE, "%s: '%s': give an integer from %lld to %llu", what, text,
                    (long long)INT64_MIN, (unsigned long long)UINT64_MAX);
    *seed = value;
    return OK;
}

/* strtod for a text that number_length() has measured. */
static double read_number(const char *text) {
    locale_t before = numbers_of_c();
    double value = strtod(text, NULL);
    numbers_end(before);
    return value;
}

int parse_number(const char *what, const char *text, double lowest, double highest, double *value) {
    size_t length = number_length(text);
    double v = length && !text[length] ? read_number(text) : NAN;
    if (!isfinite(v) || v < lowest || v > highest) {
        if (highest == HUGE_VAL || highest >= 1e300)
            return fail(ERR_USAGE, "%s: '%s': give a finite number of at least %g", what, text,
                        lowest);
        return fail(ERR_USAGE, "%s: '%s': give a number from %g to %g", what, text, lowest,
                    highest);
    }
    *value = v;
    return OK;
}

int parse_number_list(const char *what, const char *text, double lowest, double highest,
                      double *values, int most, int *count) {
    enum { LONGEST = 64 };
    int n = 0;
    for (const char *p = text;; p++) {
        char one[LONGEST];
        size_t length = strcspn(p, ",");
        if (n == most)
            return fail(ERR_USAGE, "%s: '%s': give at most %d numbers", what, text, most);
        snprintf(one, sizeof one, "%.*s", (int)length, p);
        if (length >= LONGEST || parse_number(what, one, lowest, highest, &values[n++]))
            return fail(ERR_USAGE,
                        "%s: '%.*s' in '%s': give numbers from %g to %g, with commas between", what,
                        (int)length, p, text, lowest, highest);
        p += length;
        if (!*p) break;
    }
    *count = n;
    return OK;
}

/* The factor of a letter after a count; 0 for any other word. */
static double unit_count(const char *unit) {
    static const char units[] = "KMGBT";
    static const double counts[] = {1e3, 1e6, 1e9, 1e9, 1e12};
    if (!*unit) return 1;
    const char *at = unit[1] ? NULL : strchr(units, *unit >= 'a' ? *unit - ('a' - 'A') : *unit);
    return at ? counts[at - units] : 0;
}

int parse_count(const char *what, const char *text, int64_t lowest, int64_t highest,
                int64_t *count) {
    size_t length = number_length(text);
    double unit = length ? unit_count(text + length) : 0, value = unit * strtod(text, NULL);
    if (unit == 0 || !(value >= (double)lowest && value <= (double)highest))
        return fail(ERR_USAGE, "%s: '%s': give a count from %lld to %lld, such as 25.6M", what,
                    text, (long long)lowest, (long long)highest);
    *count = (int64_t)(value + 0.5);
    return OK;
}

/* A size as a user would type it: 2M, 1536K, 7. */
static const char *size_text(uint64_t bytes, char text[32]) {
    static const char units[] = {'K', 'M', 'G'};
    int i = -1;
    for (; i < 2 && bytes && bytes % 1024 == 0; i++)
        bytes /= 1024;
    snprintf(text, 32, "%llu%.*s", (unsigned long long)bytes, i >= 0, i < 0 ? "" : &units[i]);
    return text;
}

/* The bytes that a unit stands for; 0 if there is no such unit. */
static double unit_bytes(const char *unit) {
    static const struct {
        const char *name;
        double bytes;
    } units[] = {
        {"", 1},         {"B", 1},       {"K", 0x1p10},   {"KB", 0x1p10},
        {"KiB", 0x1p10}, {"M", 0x1p20},  {"MB", 0x1p20},  {"MiB", 0x1p20},
        {"G", 0x1p30},   {"GB", 0x1p30}, {"GiB", 0x1p30},
    };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!strcasecmp(unit, units[i].name)) return units[i].bytes;
    return 0;
}

int parse_size(const char *what, const char *text, uint64_t lowest, uint64_t highest,
               uint64_t *bytes) {
    size_t length = number_length(text);
    double unit = length && *text != '-' ? unit_bytes(text + length) : 0;
    double v = unit > 0 ? floor(read_number(text) * unit) : -1;
    char low[32], high[32];
    if (v < 0)
        return fail(ERR_USAGE, "%s: '%s': give a size such as 65536, 512K, 64M or 1.5G", what,
                    text);
    if (v >= 0x1p64 || (uint64_t)v < lowest || (uint64_t)v > highest)
        return fail(ERR_USAGE, "%s: '%s': give a size from %s to %s", what, text,
                    size_text(lowest, low), size_text(highest, high));
    *bytes = (uint64_t)v;
    return OK;
}
