/* Recognises the kind of a file by its first bytes, since its name may be wrong, for error
 * messages. */
#ifndef DATA_FILE_KIND_H
#define DATA_FILE_KIND_H

#include <stddef.h>

enum { FILE_KIND_BYTES = 32 }; /* first bytes that are read */

/* The kind and what to do, as "a file of torch.save: convert it: python -m duet convert OLD NEW",
 * where OLD is `path`; NULL: an unknown kind. `text` holds the result. */
enum { FILE_KIND_TEXT = 400 };
const char *file_kind(const void *head, size_t bytes, const char *path, char text[FILE_KIND_TEXT]);

#endif
