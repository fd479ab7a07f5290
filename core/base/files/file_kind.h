/* Tells the kind of a file by its first bytes, since its name may be wrong. It is for errors about
 * the wrong kind of file. */
#ifndef DATA_FILE_KIND_H
#define DATA_FILE_KIND_H

#include <stddef.h>

enum { FILE_KIND_BYTES = 32 }; /* that are looked at */

/* The kind and what to do, as "a file of torch.save: convert it: python -m duet convert OLD NEW",
 * where OLD is `path`; NULL: none that is known here. `text` has room for it. */
enum { FILE_KIND_TEXT = 400 };
const char *file_kind(const void *head, size_t bytes, const char *path, char text[FILE_KIND_TEXT]);

#endif
