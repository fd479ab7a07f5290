/* Event files, which TensorBoard reads, have one record for each named number and step. No C
 * library writes them, and the format is small:
 *
 *     file    record, record, ...
 *     record  uint64 length | uint32 masked CRC of length | bytes | uint32 masked CRC of bytes
 *     bytes   an Event of protocol buffers: wall_time, step, and a Summary whose one Value has a
 *             tag and a simple_value; the first Event has file_version "brain.Event:2"
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

enum { EVENT_TAG_BYTES = 200 }; /* longer tags are cut */

struct event_file {
    FILE *file;      /* NULL: not open; event_file_scalar then does nothing */
    char *path;      /* owned */
    size_t existed;  /* length of the part of the path that already existed */
    int error;       /* errno of the first write that failed; 0: none */
    int64_t scalars; /* written so far */
};

/* Opens a new file in `folder`, which is created if missing, with the name that TensorBoard looks
 * for: events.out.tfevents.TIME.HOST.PROCESS. ERR_FAILED: it cannot be created. ERR_MEMORY. */
int event_file_open(struct event_file *f, const char *folder);

/* Appends `value` for `tag` ("Loss/train") at `step`, at least 0, measured at wall_time, in seconds
 * since 1970. event_file_close reports failures. */
void event_file_scalar(struct event_file *f, double wall_time, int64_t step, const char *tag,
                       double value);
/* Marks a resumed run: records from `step` on in the folder's other files no longer count. This is
 * TensorBoard's SessionLog START, which SummaryWriter(purge_step=...) writes. */
void event_file_start(struct event_file *f, double wall_time, int64_t step);
/* Passes all appended records to the system, so that they outlive this process. */
void event_file_flush(struct event_file *f);

/* Closes the file. A file without scalars is removed, with the folders that were created for it. A
 * zeroed or closed struct is fine. ERR_FAILED: a write failed. */
int event_file_close(struct event_file *f);

#endif
