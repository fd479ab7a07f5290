/* Reads files of JSON that Duet has written, for reports made of files. */
#ifndef REPORT_RESULTS_H
#define REPORT_RESULTS_H

#include <stddef.h>

#include "base/text/json.h"

/* The text of a file, or of a pipe; *text and *bytes begin as NULL and 0, and *text is the caller's
 * to free even after a failure. */
int read_whole_file(const char *path, char **text, size_t *bytes);

/* The text at a path of keys, "host/name"; "" where there is none. */
const char *results_text(const struct json *object, const char *path);

#endif
