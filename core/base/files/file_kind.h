/* What a file is, by its first bytes: its name may say anything. For the error where another kind
 * of file was wanted. */
#ifndef DATA_FILE_KIND_H
#define DATA_FILE_KIND_H

#include <stddef.h>

enum { FILE_KIND_BYTES = 32 }; /* that are looked at */

/* The kind and what to do, as "a file of torch.save: convert it: python -m duet convert OLD NEW",
 * where OLD is `path`; NULL: none that is known here. `text` has room for it. */
enum { FILE_KIND_TEXT = 400 };
const char *file_kind(const void *head, size_t bytes, const char *path, char text[FILE_KIND_TEXT]);

#endif
