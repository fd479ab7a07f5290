/* Where the calls of DUET_TRACE=FILE go: FILE.GROUP.RANK, one file of each rank. A rank writes it
 * when it leaves its group, since one that has failed can gather nothing from the others. `duet
 * report FILE` reads them all. What goes wrong is a warning: a measurement must not end a job. */
#ifndef GROUP_TRACE_FILE_H
#define GROUP_TRACE_FILE_H

#include "base/text/json.h"

/* The path, which the caller frees. NULL: DUET_TRACE is not set, or there is no host memory. */
char *trace_file_path(const char *group, int rank);

/* Makes room for one more item of `bytes` bytes behind `count` items, and returns where the items
 * are now. NULL: there is none, or there are a million: what comes then is counted, not kept. */
void *trace_file_room(void *items, size_t *room, size_t count, size_t bytes);

/* Writes the one object that `members` fills. The error of this thread stays as it was. */
void trace_file_write(const char *path, int rank, void (*members)(struct json_writer *w, void *of),
                      void *of);

#endif
