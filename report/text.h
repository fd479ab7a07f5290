/* Text for people: as wide as their terminal, in whole words. */
#ifndef REPORT_TEXT_H
#define REPORT_TEXT_H

#include <stdint.h>
#include <stdio.h>

enum { TEXT_NARROWEST = 20, TEXT_USUAL = 80, TEXT_WIDEST = 100 };

/* Columns for text on `file`: those of its terminal, within TEXT_NARROWEST and TEXT_WIDEST; for a
 * file, a pipe or a terminal that does not say, TEXT_USUAL. */
int text_width(FILE *file);

/* Prints text as a paragraph of at most `width` columns, and a newline. It is broken at spaces; a
 * word that is too long keeps a line of its own. The first line begins after `indent` spaces, the
 * others after `hanging`. */
void text_wrap(FILE *file, int width, int indent, int hanging, const char *text);

/* Text that is put together piece by piece; what does not fit is cut. */
struct text {
    char words[4096];
    size_t used;
};
void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "1.5 MiB", for sums and means of bytes. Returns text. */
char *bytes_words(double bytes, char text[32]);
/* Each device's part of a global batch: "128"; where the parts differ "10 or 11" or, if the batch
 * is cut as torch.chunk does, "at most 11". Returns text. */
char *share_words(int batch, int devices, int chunked, char text[32]);
/* "+1.5 MiB", "-12 KiB", "nothing". Returns text. */
char *signed_bytes(double bytes, char text[32]);

#endif
