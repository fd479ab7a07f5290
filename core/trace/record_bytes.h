/* A run record as bytes, as rank 0 sends it to its launcher. Both are the same program, so the
 * struct itself comes first; the targets of its pointers follow. The spans in `kept` travel
 * separately. */
#ifndef TRACE_RECORD_BYTES_H
#define TRACE_RECORD_BYTES_H

#include <stdio.h>

#include "trace/record.h"

/* Write errors stay in `file`. */
void record_bytes_write(const struct run_record *record, FILE *file);

/* Reads what record_bytes_write wrote; call record_free even after a failure. ERR_FAILED: the bytes
 * end too early. ERR_MEMORY. */
int record_bytes_read(struct run_record *record, const void *from, size_t bytes);

#endif
