/* Makes text from outside (names in files, messages from a peer or a rank, paths) safe for a
 * terminal. Escape codes in it could move the cursor or overwrite the screen, and a newline could
 * fake a line of output. fail() (base/error.h) passes messages through text_plain, text_wrap
 * (base/text/text.h) passes paragraphs, and other lines pass names with PLAIN. Files do not need
 * it, since JSON and HTML have their own escapes. */
#ifndef BASE_TEXT_PLAIN_H
#define BASE_TEXT_PLAIN_H

#include <stddef.h>

/* Copies text[0..length) or up to its end, with \n, \t, \r and other control characters (C0, DEL,
 * C1), marks that change the direction of text and line separators as escapes like \x1b and \u202e,
 * and bytes that are not UTF-8 as \xff. Other text does not change. Text that does not fit into
 * `size` bytes is cut, never inside a character or an escape. Returns out. */
char *text_plain(char *out, size_t size, const char *text, size_t length);

/* The length in bytes, 1 to 4, of the UTF-8 sequence at p; 0 if it is invalid. Reads at most `left`
 * bytes. */
int utf8_length(const unsigned char *p, size_t left);

/* A name of at most a few hundred bytes, as an argument of printf. */
#define PLAIN(text) text_plain((char[512]){0}, 512, text, 512)

#endif
