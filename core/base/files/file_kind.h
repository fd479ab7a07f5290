/* For error messages, recognises the kind of a file by its first bytes, since its name may be
 * wrong. */
#ifndef DATA_FILE_KIND_H
#define DATA_FILE_KIND_H

#include <stddef.h>

enum { FILE_KIND_BYTES = 32 }; /* number of bytes that are read */

/* Writes the kind and what to do to `text` and returns it: "a torch.save file: convert it: python
 * -m duet convert OLD NEW", where OLD is `path`. NULL: an unknown kind. */
enum { FILE_KIND_TEXT = 400 };
const char *file_kind(const void *head, size_t bytes, const char *path, char text[FILE_KIND_TEXT]);

#endif
