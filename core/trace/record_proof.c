/* The proof inside a run record: see record_proof.h. A table names its fields, as record_json.c
 * does for the rest of the record. */
#include "trace/record_proof.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "trace/record_field.h"

/* ---- bytes as text ---- */

static void write_hex(struct json_writer *w, const char *key, const void *data, size_t bytes) {
    static const char digits[] = "0123456789abcdef";
    const unsigned char *p = data;
    char *text = malloc(2 * bytes + 1);
    if (!text) {
        w->misused = 1;
        return;
    }
    for (size_t i = 0; i < bytes; i++) {
        text[2 * i] = digits[p[i] >> 4];
        text[2 * i + 1] = digits[p[i] & 15];
    }
    text[2 * bytes] = 0;
    json_string(w, key, text);
    free(text);
}

static int digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads exactly `bytes` bytes into a new allocation, *out; NULL where item is missing or null. */
static int read_hex(const struct json *item, const char *key, size_t bytes, void **out) {
    *out = NULL;
    if (!item || item->kind == JSON_NULL) return OK;
    if (item->kind != JSON_STRING || strlen(item->string) != 2 * bytes)
        return fail(ERR_FAILED, "run record: %s: not %zu bytes: it was written by another version",
                    key, bytes);
    unsigned char *data = *out = malloc(bytes + 1);
    if (!data) return fail(ERR_MEMORY, "run record: no host memory");
    for (size_t i = 0; i < bytes; i++) {
        int high = digit(item->string[2 * i]), low = digit(item->string[2 * i + 1]);
        if (high < 0 || low < 0)
            return fail(ERR_FAILED,
                        "run record: %s: no hexadecimal digits: it was written by another version",
                        key);
        data[i] = (unsigned char)(high << 4 | low);
    }
    return OK;
}

/* ---- hashes ---- */

/* One string of bytes for each device; null for a device that was not hashed. */
static void write_hashes(const struct field *f, const struct run_record *r, struct json_writer *w,
                         size_t bytes) {
    uint64_t *const *hashes = field_member(f, r);
    json_array(w, f->key);
    for (int d = 0; d < r->devices; d++) {
        if (hashes[d])
            write_hex(w, NULL, hashes[d], bytes);
        else
            json_null(w, NULL);
    }
    json_close(w);
}

static int read_hashes(const struct field *f, struct run_record *r, const struct json *item,
                       size_t bytes) {
    uint64_t **hashes = field_member(f, r);
    const struct json *one = item ? item->child : NULL;
    for (int d = 0; d < r->devices && one; d++, one = one->next)
        CHECK(read_hex(one, f->key, bytes, (void **)&hashes[d]));
    return OK;
}

/* A value and a gradient of each parameter, and each buffer. */
static size_t step_bytes(const struct run_record *r) {
    return (2 * (size_t)r->parameters + (size_t)r->buffers) * sizeof(uint64_t);
}

/* A value of each parameter, and each buffer. */
static size_t final_bytes(const struct run_record *r) {
    return ((size_t)r->parameters + (size_t)r->buffers) * sizeof(uint64_t);
}

static void write_step_hashes(const struct field *f, const void *object, struct json_writer *w) {
    const struct run_record *r = object;
    write_hashes(f, r, w, (size_t)r->steps * step_bytes(r));
}

static int read_step_hashes(const struct field *f, void *object, const struct json *item) {
    const struct run_record *r = object;
    return read_hashes(f, object, item, (size_t)r->steps * step_bytes(r));
}

static void write_final_hashes(const struct field *f, const void *object, struct json_writer *w) {
    write_hashes(f, object, w, final_bytes(object));
}

static int read_final_hashes(const struct field *f, void *object, const struct json *item) {
    return read_hashes(f, object, item, final_bytes(object));
}

static const struct field_type STEP_HASHES = {write_step_hashes, read_step_hashes};
static const struct field_type FINAL_HASHES = {write_final_hashes, read_final_hashes};

#define AT(member) FIELD_AT(struct run_record, member), 0
static const struct field proof_fields[] = {
    {"hashes", &STEP_HASHES, AT(hashes)},
    {"final_hashes", &FINAL_HASHES, AT(final_hashes)},
};

void record_proof_write(const struct run_record *r, struct json_writer *w) {
    fields_write(proof_fields, FIELD_COUNT(proof_fields), r, w);
}

int record_proof_read(struct run_record *r, const struct json *object) {
    return fields_read(proof_fields, FIELD_COUNT(proof_fields), r, object);
}

/* ---- gradients, as bytes ---- */

uint64_t record_floats(const struct run_record *r) {
    return r->grads ? r->parameter_count : 0;
}

void record_floats_write(const struct run_record *r, FILE *file) {
    if (r->grads) fwrite(r->grads, sizeof(float), r->parameter_count, file);
}

int record_floats_read(struct run_record *r, const float *floats, uint64_t count) {
    size_t each = r->parameter_count;
    if (count && count != each)
        return fail(ERR_FAILED,
                    "run record: %llu floats for gradients of %zu parameters: it was written by "
                    "another version",
                    (unsigned long long)count, each);
    if (!count) return OK;
    if (!(r->grads = malloc(each * sizeof *r->grads)))
        return fail(ERR_MEMORY, "run record: no host memory");
    memcpy(r->grads, floats, each * sizeof *r->grads);
    return OK;
}
