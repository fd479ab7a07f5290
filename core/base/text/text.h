/* Text for people, wrapped at whole words to the width of their terminal. */
#ifndef BASE_TEXT_TEXT_H
#define BASE_TEXT_TEXT_H

#include <stddef.h>
#include <stdio.h>

enum { TEXT_NARROWEST = 20, TEXT_USUAL = 80, TEXT_WIDEST = 100 };

/* Columns for text on `file`: those of its terminal, from TEXT_NARROWEST to TEXT_WIDEST, or
 * TEXT_USUAL for a file, a pipe or a terminal of unknown width. */
int text_width(FILE *file);

/* Prints text as a paragraph of at most `width` columns, and a newline. Lines break at spaces; a
 * word that is too long gets its own line. The first line begins after `indent` spaces, the others
 * after `hanging`. */
void text_wrap(FILE *file, int width, int indent, int hanging, const char *text);
/* The same of formatted text, which is cut as a struct text is. */
void text_say(FILE *file, int width, int indent, int hanging, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Writes "64, 10" into text and returns it. */
const char *text_sizes(char *text, size_t bytes, int rank, const int *sizes);

/* Appends to the string in `text`, which has `bytes` bytes, and cuts what does not fit. */
void text_append(char *text, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Text that is assembled piece by piece and cut if it does not fit. */
struct text {
    char words[4096];
};
#define text_add(text, ...) text_append((text)->words, sizeof(text)->words, __VA_ARGS__)

#endif
