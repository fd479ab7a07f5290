/* Prints text from outside with its control characters as escapes; see plain.h. */
#include "base/text/plain.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

int utf8_length(const unsigned char *p, size_t left) {
    int n = p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if ((p[0] >= 0x80 && p[0] < 0xc2) || p[0] > 0xf4 || (size_t)n > left) return 0;
    for (int i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    /* Overlong forms, surrogates and values above U+10FFFF all show in the second byte. */
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f)) return 0;
    if ((p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f)) return 0;
    return n;
}

/* Bidirectional controls and the two separators of lines and paragraphs, in addition to C1. */
static int is_control(uint32_t c) {
    return (c >= 0x80 && c < 0xa0) || c == 0x61c || (c >= 0x200e && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

/* The code point of a sequence of n bytes. */
static uint32_t decode(const unsigned char *p, int n) {
    uint32_t c = n == 1 ? *p : *p & (0xffu >> (n + 1));
    for (int i = 1; i < n; i++)
        c = c << 6 | (p[i] & 0x3f);
    return c;
}

/* Writes the replacement of the character at p into piece; returns its length. */
static int escape(char piece[8], const unsigned char *p, int n) {
    static const char letters[] = "\n\r\t", names[] = "nrt";
    const char *letter = *p ? strchr(letters, *p) : NULL;
    uint32_t c = n ? decode(p, n) : 0;
    if (letter) return snprintf(piece, 8, "\\%c", names[letter - letters]);
    if (!n || c < 0x20 || c == 0x7f) return snprintf(piece, 8, "\\x%02x", *p);
    if (is_control(c)) return snprintf(piece, 8, "\\u%04x", (unsigned)c & 0xffff);
    memcpy(piece, p, (size_t)n);
    return n;
}

char *text_plain(char *out, size_t size, const char *text, size_t length) {
    const unsigned char *p = (const unsigned char *)text, *end = p + strnlen(text, length);
    size_t used = 0;
    while (p < end) {
        char piece[8];
        int n = utf8_length(p, (size_t)(end - p)), m = escape(piece, p, n);
        if (used + (size_t)m >= size) break;
        memcpy(out + used, piece, (size_t)m);
        used += (size_t)m;
        p += n ? n : 1;
    }
    if (size) out[used] = 0;
    return out;
}
