/* Text for people (base/text/text.h): bytes and shares. */
#ifndef REPORT_TEXT_H
#define REPORT_TEXT_H

#include <stdint.h>

#include "base/text/text.h"

/* "1.5 MiB", for sums and means of bytes. Returns text. */
char *bytes_words(double bytes, char text[32]);
/* "840 us", "12.3 ms", "3.78 s". Returns text. */
char *time_words(double ns, char text[32]);
/* Each device's part of a global batch: "128"; where the parts differ "10 or 11" or, if the batch
 * is cut as torch.chunk does, "at most 11". Returns text. */
char *share_words(int batch, int devices, int chunked, char text[32]);
/* "+1.5 MiB", "-12 KiB", "nothing". Returns text. */
char *signed_bytes(double bytes, char text[32]);

#endif
