/* The members of a struct as JSON. A table with one row for each member drives the writer and the
 * reader, so the two cannot disagree on a key or a type:
 *
 *     static const struct field fields[] = {
 *         {"steps", &FIELD_INT, FIELD_AT(struct run_record, steps), 0},
 *         {"losses", &FIELD_NUMBERS, FIELD_AT(struct run_record, losses), LENGTH_AT(...)},
 *         ...
 *
 * Rows are written and read in the order of the table. */
#ifndef TRACE_RECORD_FIELD_H
#define TRACE_RECORD_FIELD_H

#include <stddef.h>

#include "base/text/json.h"

struct field;

/* How the values of one C type are written and read. `object` is the struct that the table
 * describes. */
struct field_type {
    void (*write)(const struct field *field, const void *object, struct json_writer *w);
    /* item: the value under the field's key; NULL where the key is missing, and then the member
     * gets a default. read NULL: the value is computed when it is written and never read back. */
    int (*read)(const struct field *field, void *object, const struct json *item);
};

struct field {
    const char *key; /* static storage */
    const struct field_type *type;
    size_t offset, bytes; /* of the member inside its struct */
    size_t length;        /* of an array: offset of the int member that holds its length; else 0 */
};
#define FIELD_COUNT(table) (sizeof(table) / sizeof *(table))
#define FIELD_AT(type, member) offsetof(type, member), sizeof(((type *)0)->member)

/* A missing key reads as 0, as NaN where the member is a double, and as "" where it is text. */
extern const struct field_type FIELD_INT;    /* int */
extern const struct field_type FIELD_YES_NO; /* int, in JSON true or false */
extern const struct field_type FIELD_INT64;  /* int64_t, or an unsigned type below 2^63 */
extern const struct field_type FIELD_UINT64; /* uint64_t up to 2^64 - 1 */
extern const struct field_type FIELD_NUMBER; /* double; NaN and infinities are null in JSON */
/* char[]; what does not fit is cut. "" is null in JSON. */
extern const struct field_type FIELD_TEXT;

/* Arrays that the reader allocates, also where it fails: the struct's free function frees them.
 * FIELD_NUMBERS and FIELD_NUMBERS_COUNTED are double *, FIELD_SIZES is int64_t *, FIELD_NAMES is
 * char ** with one allocation for each name. Of FIELD_NUMBERS the length must have been read before
 * and must agree; the others set it. ERR_FAILED: no array of this length; ERR_MEMORY. */
extern const struct field_type FIELD_NUMBERS, FIELD_NUMBERS_COUNTED, FIELD_SIZES, FIELD_NAMES;

/* Writes every field of `object` into the open JSON object. */
void fields_write(const struct field *fields, size_t count, const void *object,
                  struct json_writer *w);
/* Reads every field from `from` (NULL or no object: every key is missing). Stops at the first
 * failure. */
int fields_read(const struct field *fields, size_t count, void *object, const struct json *from);

/* The member that a row describes, for types of one's own. */
static inline void *field_member(const struct field *field, const void *object) {
    return (char *)object + field->offset;
}

/* Writes what each cause holds, [MEM_CAUSE_COUNT], as an object under `key`, as records do. */
void record_write_causes(struct json_writer *w, const char *key, const uint64_t *bytes);

#endif
