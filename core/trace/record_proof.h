/* The part of a run record that only the verdict needs: hashes and gradients. They are many, and
 * they must come back bit for bit. In JSON each array of hashes is one string of hexadecimal
 * digits, in the machine's byte order. Gradients have as many numbers as the model has parameters,
 * millions in ResNet-18, and writing them as text would take longer than their step. So they travel
 * as bytes. */
#ifndef TRACE_RECORD_PROOF_H
#define TRACE_RECORD_PROOF_H

#include <stdio.h>

#include "trace/record.h"

/* Writes the fields into the open JSON object of the record. Without host memory for the text the
 * writer is marked as misused, and json_finish fails. */
void record_proof_write(const struct run_record *record, struct json_writer *w);

/* Reads what record_proof_write wrote. The record's counts (devices, steps, parameters,
 * parameter_count) must have been read before, since they give the sizes. A missing field stays
 * NULL. ERR_FAILED: a string of another length, or not hexadecimal; ERR_MEMORY. */
int record_proof_read(struct run_record *record, const struct json *object);

/* The gradients, where there are any: how many floats there are, and the floats. Errors of writing
 * stay in `file`. */
uint64_t record_floats(const struct run_record *record);
void record_floats_write(const struct run_record *record, FILE *file);

/* Reads what record_floats_write wrote; the rest of the record must have been read before.
 * ERR_FAILED: another count; ERR_MEMORY. */
int record_floats_read(struct run_record *record, const float *floats, uint64_t count);

#endif
