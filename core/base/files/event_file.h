/* Event files, which TensorBoard reads: named numbers over steps, one record for each. No library
 * in C writes them, and the format is small:
 *
 *     file    record, record, ...
 *     record  uint64 length | uint32 masked CRC of it | length bytes | uint32 masked CRC of those
 *     bytes   an Event of protocol buffers: wall_time, step, and a Summary whose one Value has a
 *             tag and a simple_value; the first one holds file_version "brain.Event:2" instead
 *
 * All numbers are little-endian. The CRC is CRC-32C (Castagnoli); masked means rotated by 15 bits
 * and added to a constant, since a CRC over data that holds CRCs is weak.
 *
 * Records are appended and flushed, so TensorBoard shows them during the run, and they stay if the
 * run is killed. */
#ifndef BASE_FILES_EVENT_FILE_H
#define BASE_FILES_EVENT_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { EVENT_TAG_BYTES = 200 }; /* a longer tag is cut */

struct event_file {
    FILE *file;      /* NULL: not open; event_file_scalar then does nothing */
    char *path;      /* owned */
    size_t existed;  /* length of the part of the path that existed before */
    int error;       /* errno of the first write that failed; 0: none */
    int64_t scalars; /* written so far */
};

/* Opens a new file in `folder`, which is created if missing, with the name that TensorBoard looks
 * for: events.out.tfevents.TIME.HOST.PROCESS. ERR_FAILED: that cannot be done; ERR_MEMORY. */
int event_file_open(struct event_file *f, const char *folder);

/* Appends `value` for `tag` ("Loss/train") at `step`, at least 0, measured at wall_time, in seconds
 * since 1970. Failures are reported by event_file_close. */
void event_file_scalar(struct event_file *f, double wall_time, int64_t step, const char *tag,
                       double value);
/* Marks a resumed run: records of the folder's other files from `step` on no longer count. It is
 * TensorBoard's SessionLog START, as SummaryWriter(purge_step=...) writes it. */
void event_file_start(struct event_file *f, double wall_time, int64_t step);
/* Hands everything appended to the system, so that it outlives this process. */
void event_file_flush(struct event_file *f);

/* Closes the file. A file without scalars is removed, and with it the folders that were created for
 * it. Takes a struct that is zeroed or closed. ERR_FAILED: something could not be written. */
int event_file_close(struct event_file *f);

#endif
