/* Words of a command line to numbers, strictly: the whole text must be a number and the number
 * in range. `what` is what the user calls it ("--devices"); every error is ERR_USAGE and one
 * line that names the text and the range, and leaves *value as it was. */
#ifndef BASE_PARSE_H
#define BASE_PARSE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A whole decimal number, optional sign, lowest <= *value <= highest. */
int parse_int(const char *what, const char *text, int64_t lowest, int64_t highest, int64_t *value);

/* A seed as torch.manual_seed takes it: a whole number from -2^63 to 2^64 - 1; a negative one
 * stands for 2^64 + seed. */
int parse_seed(const char *what, const char *text, uint64_t *seed);

/* Bytes: a decimal number, fractions allowed, and no unit or one of B, K, KB, KiB, M, MB, MiB,
 * G, GB, GiB (any case). K is 1024 throughout, as in nccl-tests. lowest <= *bytes <= highest. */
int parse_size(const char *what, const char *text, uint64_t lowest, uint64_t highest,
               uint64_t *bytes);

/* A finite decimal number with optional fraction and exponent, lowest <= *value <= highest. */
int parse_number(const char *what, const char *text, double lowest, double highest, double *value);

/* Whole numbers with commas between, 1 to `most` of them, each in range: values[0 .. *count). */
int parse_int_list(const char *what, const char *text, int64_t lowest, int64_t highest,
                   int64_t *values, int most, int *count);

#ifdef __cplusplus
}
#endif
#endif
