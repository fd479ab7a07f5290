/* Patterns: test data in which no two 8-byte words are equal, so that bytes which are swapped,
 * shifted or left over from an earlier copy show. Inside doctor/. */
#ifndef DOCTOR_PATTERN_H
#define DOCTOR_PATTERN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the pattern of `seed`. Another seed gives another pattern. */
void pattern_fill(void *memory, size_t bytes, uint64_t seed);

/* The index of the first byte that differs from the pattern of `seed`; `bytes` if none does. */
size_t pattern_check(const void *memory, size_t bytes, uint64_t seed);

#ifdef __cplusplus
}
#endif
#endif
