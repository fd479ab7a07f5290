/* A run record as bytes, for the way from rank 0 to its launcher. Both are the same program, so the
 * struct itself goes first; the targets of its pointers follow. The spans in `kept` travel
 * separately. */
#ifndef TRACE_RECORD_BYTES_H
#define TRACE_RECORD_BYTES_H

#include <stdio.h>

#include "trace/record.h"

/* Errors of writing stay in `file`. */
void record_bytes_write(const struct run_record *record, FILE *file);

/* Reads what record_bytes_write wrote; record_free the record also after a failure. ERR_FAILED:
 * something is missing at the end; ERR_MEMORY. */
int record_bytes_read(struct run_record *record, const void *from, size_t bytes);

#endif
