/* Strict conversion of command line words to numbers. The whole word must be a number, and the
 * number must be in range. `what` is the user's name for it, such as "--devices". Every error is
 * ERR_USAGE, names the word and the range, and leaves *value unchanged. */
#ifndef BASE_TEXT_PARSE_H
#define BASE_TEXT_PARSE_H

#include <stdint.h>

/* A decimal integer with an optional sign; lowest <= *value <= highest. */
int parse_int(const char *what, const char *text, int64_t lowest, int64_t highest, int64_t *value);

/* A seed as in torch.manual_seed: an integer from -2^63 to 2^64 - 1. A negative seed means 2^64 +
 * seed. */
int parse_seed(const char *what, const char *text, uint64_t *seed);

/* A count: a decimal number, fractions allowed, with an optional K, M, G, B or T in upper or lower
 * case for thousands, millions, billions (G and B) and so on, as in "25.6M parameters". It is
 * rounded to an integer. lowest <= *count <= highest. */
int parse_count(const char *what, const char *text, int64_t lowest, int64_t highest,
                int64_t *count);

/* A number of bytes: a decimal number, fractions allowed, with an optional unit B, K, KB, KiB, M,
 * MB, MiB, G, GB or GiB in upper or lower case. K is always 1024, as in nccl-tests.
 * lowest <= *bytes <= highest. */
int parse_size(const char *what, const char *text, uint64_t lowest, uint64_t highest,
               uint64_t *bytes);

/* A finite decimal number with optional fraction and exponent; lowest <= *value <= highest. */
int parse_number(const char *what, const char *text, double lowest, double highest, double *value);

/* A list of 1 to `most` integers, each in range, separated by commas. They are stored in values[0
 * .. *count). */
int parse_int_list(const char *what, const char *text, int64_t lowest, int64_t highest,
                   int64_t *values, int most, int *count);

/* The same for numbers that parse_number accepts. */
int parse_number_list(const char *what, const char *text, double lowest, double highest,
                      double *values, int most, int *count);

#endif
