/* Patterns: see pattern.h. Word i is a mix (splitmix64) of the seed and i. Each step of the mix is
 * one to one, so different i give different words. Data that is shifted by a word, comes from
 * another block or from an earlier copy, or is cut short therefore differs in almost every byte. */
#include "doctor/pattern.h"

#include <string.h>

static uint64_t word_of(uint64_t seed, uint64_t i) {
    uint64_t x = seed * 0x9e3779b97f4a7c15u + i + 1;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

void pattern_fill(void *memory, size_t bytes, uint64_t seed) {
    char *p = memory;
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        uint64_t word = word_of(seed, at / sizeof word);
        memcpy(p + at, &word, bytes - at < sizeof word ? bytes - at : sizeof word);
    }
}

size_t pattern_check(const void *memory, size_t bytes, uint64_t seed) {
    const char *p = memory;
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        uint64_t word = word_of(seed, at / sizeof word);
        size_t piece = bytes - at < sizeof word ? bytes - at : sizeof word;
        if (!memcmp(p + at, &word, piece)) continue;
        size_t i = 0;
        while (p[at + i] == ((const char *)&word)[i])
            i++;
        return at + i;
    }
    return bytes;
}
