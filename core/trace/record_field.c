/* The types of fields and the walk over a table of them: see record_field.h. */
#include "trace/record_field.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

void fields_write(const struct field *fields, size_t count, const void *object,
                  struct json_writer *w) {
    for (size_t i = 0; i < count; i++)
        fields[i].type->write(&fields[i], object, w);
}

int fields_read(const struct field *fields, size_t count, void *object, const struct json *from) {
    for (size_t i = 0; i < count; i++)
        if (fields[i].type->read)
            CHECK(fields[i].type->read(&fields[i], object, json_find(from, fields[i].key)));
    return OK;
}

/* ---- single values ---- */

static void write_int(const struct field *f, const void *object, struct json_writer *w) {
    json_integer(w, f->key, *(const int *)field_member(f, object));
}

static int read_int(const struct field *f, void *object, const struct json *item) {
    if (item && item->integer != (int)item->integer)
        return fail(ERR_FAILED, "run record: %s: %lld: it was written by another version", f->key,
                    (long long)item->integer);
    *(int *)field_member(f, object) = item ? (int)item->integer : 0;
    return OK;
}

static void write_yes_no(const struct field *f, const void *object, struct json_writer *w) {
    json_boolean(w, f->key, *(const int *)field_member(f, object));
}

static void write_int64(const struct field *f, const void *object, struct json_writer *w) {
    json_integer(w, f->key, *(const int64_t *)field_member(f, object));
}

static int read_int64(const struct field *f, void *object, const struct json *item) {
    *(int64_t *)field_member(f, object) = item ? item->integer : 0;
    return OK;
}

static void write_uint64(const struct field *f, const void *object, struct json_writer *w) {
    json_natural(w, f->key, *(const uint64_t *)field_member(f, object));
}

static int read_uint64(const struct field *f, void *object, const struct json *item) {
    *(uint64_t *)field_member(f, object) = item ? item->natural : 0;
    return OK;
}

static void write_number(const struct field *f, const void *object, struct json_writer *w) {
    json_number(w, f->key, *(const double *)field_member(f, object));
}

static int read_number(const struct field *f, void *object, const struct json *item) {
    *(double *)field_member(f, object) = item && item->kind == JSON_NUMBER ? item->number : NAN;
    return OK;
}

static void write_text(const struct field *f, const void *object, struct json_writer *w) {
    const char *text = field_member(f, object);
    if (*text)
        json_string(w, f->key, text);
    else
        json_null(w, f->key);
}

static int read_text(const struct field *f, void *object, const struct json *item) {
    const char *text = item && item->kind == JSON_STRING ? item->string : "";
    size_t length = strnlen(text, f->bytes - 1);
    memcpy(field_member(f, object), text, length);
    ((char *)field_member(f, object))[length] = 0;
    return OK;
}

/* ---- arrays ---- */

static int *length_of(const struct field *f, const void *object) {
    return (int *)((char *)object + f->length);
}

static void write_numbers(const struct field *f, const void *object, struct json_writer *w) {
    const double *numbers = *(double *const *)field_member(f, object);
    json_array(w, f->key);
    for (int i = 0; i < *length_of(f, object); i++)
        json_number(w, NULL, numbers[i]);
    json_close(w);
}

static int read_numbers(const struct field *f, void *object, const struct json *item) {
    int n = *length_of(f, object);
    if (!item || item->kind != JSON_ARRAY || item->count != n)
        return fail(ERR_FAILED, "run record: %s: not %d numbers: it was written by another version",
                    f->key, n);
    double *numbers = malloc(((size_t)n + 1) * sizeof *numbers);
    if (!numbers) return fail(ERR_MEMORY, "run record: no host memory");
    *(double **)field_member(f, object) = numbers;
    for (const struct json *x = item->child; x; x = x->next)
        *numbers++ = x->kind == JSON_NUMBER ? x->number : NAN;
    return OK;
}

static int read_numbers_counted(const struct field *f, void *object, const struct json *item) {
    *length_of(f, object) = item ? item->count : 0;
    return read_numbers(f, object, item);
}

static void write_sizes(const struct field *f, const void *object, struct json_writer *w) {
    const int64_t *sizes = *(int64_t *const *)field_member(f, object);
    json_array(w, f->key);
    for (int i = 0; i < *length_of(f, object); i++)
        json_integer(w, NULL, sizes[i]);
    json_close(w);
}

static int read_sizes(const struct field *f, void *object, const struct json *item) {
    int n = item ? item->count : 0;
    int64_t *sizes = malloc(((size_t)n + 1) * sizeof *sizes);
    if (!sizes) return fail(ERR_MEMORY, "run record: no host memory");
    *(int64_t **)field_member(f, object) = sizes;
    *length_of(f, object) = n;
    for (const struct json *x = item ? item->child : NULL; x; x = x->next)
        *sizes++ = x->integer;
    return OK;
}

static void write_names(const struct field *f, const void *object, struct json_writer *w) {
    char *const *names = *(char **const *)field_member(f, object);
    json_array(w, f->key);
    for (int i = 0; i < *length_of(f, object); i++)
        json_string(w, NULL, names[i]);
    json_close(w);
}

/* The length counts up with the names, so that whoever frees half an array knows how many. */
static int read_names(const struct field *f, void *object, const struct json *item) {
    int *length = length_of(f, object);
    char **names = calloc(item ? (size_t)item->count + 1 : 1, sizeof *names);
    if (!names) return fail(ERR_MEMORY, "run record: no host memory");
    *(char ***)field_member(f, object) = names;
    *length = 0;
    for (const struct json *name = item ? item->child : NULL; name; name = name->next) {
        names[*length] = strdup(name->string ? name->string : "");
        if (!names[*length]) return fail(ERR_MEMORY, "run record: no host memory");
        ++*length;
    }
    return OK;
}

const struct field_type FIELD_INT = {write_int, read_int};
const struct field_type FIELD_YES_NO = {write_yes_no, read_int};
const struct field_type FIELD_INT64 = {write_int64, read_int64};
const struct field_type FIELD_UINT64 = {write_uint64, read_uint64};
const struct field_type FIELD_NUMBER = {write_number, read_number};
const struct field_type FIELD_TEXT = {write_text, read_text};
const struct field_type FIELD_NUMBERS = {write_numbers, read_numbers};
const struct field_type FIELD_NUMBERS_COUNTED = {write_numbers, read_numbers_counted};
const struct field_type FIELD_SIZES = {write_sizes, read_sizes};
const struct field_type FIELD_NAMES = {write_names, read_names};
