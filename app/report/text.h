/* Formats bytes, times and shares for people (base/text/text.h). */
#ifndef REPORT_TEXT_H
#define REPORT_TEXT_H

#include <stdint.h>

#include "base/text/text.h"

/* "1.5 MiB", for sums and means of bytes. Returns text. */
char *bytes_words(double bytes, char text[32]);
/* "840 us", "12.3 ms", "3.78 s". Returns text. */
char *time_words(double ns, char text[32]);
/* Each device's part of a global batch: "128". If the parts differ: "10 or 11", or for the chunks
 * of torch.chunk "at most 11". Returns text. */
char *share_words(int batch, int devices, int chunked, char text[32]);
/* "+1.5 MiB", "-12 KiB", "nothing". Returns text. */
char *signed_bytes(double bytes, char text[32]);

#endif
