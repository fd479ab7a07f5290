/* The part of a run record that only the verdict needs: hashes, snapshots and gradients. There are
 * many of them and they must come back to the bit, so in JSON each array of them is one string of
 * hexadecimal digits, in the machine's byte order. */
#ifndef TRACE_RECORD_PROOF_H
#define TRACE_RECORD_PROOF_H

#include "trace/record.h"

/* Writes the fields into the open JSON object of the record. Without host memory for the text the
 * writer is marked as misused, and json_finish fails. */
void record_proof_write(const struct run_record *record, struct json_writer *w);

/* Reads what record_proof_write wrote. The record's counts (devices, steps, parameters,
 * parameter_count) must have been read before, since they give the sizes. A missing field stays
 * NULL. ERR_FAILED: a string of another length, or not hexadecimal; ERR_MEMORY. */
int record_proof_read(struct run_record *record, const struct json *object);

#endif
