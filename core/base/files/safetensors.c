/* Opens safetensors. The file may come from anywhere, so the code checks everything in the header
 * before it uses it: sizes against the file, shapes against offsets (without overflow), and offsets
 * against each other. The tensors must fill the data without holes or overlaps. Once they are
 * sorted by offset, one comparison per tensor proves that. */
#include "base/files/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text/json.h"
#include "base/files/file_kind.h"

enum { HEADER_LIMIT = 100000000 }; /* bytes; the format's own limit */

static int wrong(const struct safetensors *s, const char *tensor, const char *why) {
    return fail(
        ERR_FAILED,
        "not a valid safetensors file: %s: %s%.100s%s%s: take another copy, or write it again",
        s->path, tensor ? "tensor '" : "", tensor ? tensor : "", tensor ? "': " : "", why);
}

/* 0: a type that is unknown here; the offsets give its bytes. */
static unsigned dtype_size(const char *dtype) {
    static const struct {
        const char *name;
        unsigned bytes;
    } known[] = {
        {"F32", 4}, {"F64", 8}, {"F16", 2},  {"BF16", 2},    {"I64", 8},
        {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U64", 8},     {"U32", 4},
        {"U16", 2}, {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(dtype, known[i].name)) return known[i].bytes;
    return 0;
}

/* Whether j is an integer of at least 0. */
static int is_count(const struct json *j) {
    return j && j->kind == JSON_NUMBER && j->is_integer && j->integer >= 0;
}

static int read_shape(const struct safetensors *s, struct safetensors_entry *e,
                      const struct json *shape) {
    if (!shape || shape->kind != JSON_ARRAY) return wrong(s, e->name, "no shape");
    if (shape->count > SAFETENSORS_DIMS) return wrong(s, e->name, "more than 8 dimensions");
    e->count = 1;
    for (const struct json *d = shape->child; d; d = d->next) {
        if (!is_count(d)) return wrong(s, e->name, "a dimension is not an integer");
        if (__builtin_mul_overflow(e->count, (uint64_t)d->integer, &e->count))
            return wrong(s, e->name, "its shape is too large");
        e->shape[e->dims++] = d->integer;
    }
    return OK;
}

/* Reads and checks one member of the header. data_bytes is the size of the data. */
static int read_entry(const struct safetensors *s, struct safetensors_entry *e,
                      const struct json *j, uint64_t data_bytes) {
    const struct json *dtype = json_find(j, "dtype"), *offsets = json_find(j, "data_offsets");
    e->name = j->key;
    if (j->kind != JSON_OBJECT || j->count != 3)
        return wrong(s, e->name, "not {dtype, shape, data_offsets}");
    if (!dtype || dtype->kind != JSON_STRING) return wrong(s, e->name, "no dtype");
    e->dtype = dtype->string;
    unsigned size = dtype_size(e->dtype);
    CHECK(read_shape(s, e, json_find(j, "shape")));
    if (!offsets || offsets->kind != JSON_ARRAY || offsets->count != 2 ||
        !is_count(offsets->child) || !is_count(offsets->child->next))
        return wrong(s, e->name, "data_offsets are not two integers");
    uint64_t begin = (uint64_t)offsets->child->integer,
             end = (uint64_t)offsets->child->next->integer;
    if (begin > end || end > data_bytes)
        return wrong(s, e->name, "data_offsets are outside the file");
    if (__builtin_mul_overflow(e->count, (uint64_t)size, &e->bytes) ||
        (size && e->bytes != end - begin))
        return wrong(s, e->name, "shape and data_offsets disagree");
    e->offset = begin, e->bytes = end - begin;
    return OK;
}

static int by_offset(const void *a, const void *b) {
    const struct safetensors_entry *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    /* An empty tensor comes before the one that starts at the same offset. */
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(const struct safetensors_entry *const *)a)->name,
                  (*(const struct safetensors_entry *const *)b)->name);
}

/* Names lose the prefixes of wrappers, unless two of them would become equal: then they stay. The
 * JSON reader has refused equal keys. */
static int shorten_names(struct safetensors *s) {
    const struct safetensors_entry **sorted = malloc(((size_t)s->count + 1) * sizeof *sorted);
    if (!sorted) return fail(ERR_MEMORY, "out of memory reading: %s", s->path);
    for (int i = 0; i < s->count; i++) {
        s->entries[i].key = s->entries[i].name;
        s->entries[i].name = safetensors_name(s->entries[i].key);
        sorted[i] = &s->entries[i];
    }
    qsort(sorted, (size_t)s->count, sizeof *sorted, by_name);
    int equal = 0;
    for (int i = 1; i < s->count && !equal; i++)
        equal = !strcmp(sorted[i - 1]->name, sorted[i]->name);
    for (int i = 0; i < s->count && equal; i++)
        s->entries[i].name = s->entries[i].key;
    free(sorted);
    return OK;
}

static int check_metadata(const struct safetensors *s, const struct json *j) {
    if (j->kind != JSON_OBJECT) return wrong(s, NULL, "__metadata__ is not an object");
    for (const struct json *pair = j->child; pair; pair = pair->next)
        if (pair->kind != JSON_STRING)
            return wrong(s, NULL, "__metadata__ holds something other than strings");
    return OK;
}

static int read_header(struct safetensors *s, uint64_t data_start, uint64_t data_bytes) {
    if (s->header->kind != JSON_OBJECT) return wrong(s, NULL, "its header is not an object");
    s->entries = calloc((size_t)s->header->count + 1, sizeof *s->entries);
    if (!s->entries) return fail(ERR_MEMORY, "out of memory reading: %s", s->path);
    for (const struct json *j = s->header->child; j; j = j->next) {
        if (!strcmp(j->key, "__metadata__"))
            CHECK(check_metadata(s, j));
        else
            CHECK(read_entry(s, &s->entries[s->count++], j, data_bytes));
    }
    qsort(s->entries, (size_t)s->count, sizeof *s->entries, by_offset);
    uint64_t filled = 0;
    for (int i = 0; i < s->count; i++) {
        struct safetensors_entry *e = &s->entries[i];
        if (e->offset < filled) return wrong(s, e->name, "its data overlaps another tensor's");
        if (e->offset > filled) return wrong(s, e->name, "a hole before its data");
        filled += e->bytes;
        e->offset += data_start;
    }
    if (filled != data_bytes) return wrong(s, NULL, "more data than its tensors have");
    return shorten_names(s);
}

/* A file of another kind is named as such; its extension proves nothing. */
static int refuse_other_kinds(const struct safetensors *s, uint64_t size) {
    char head[FILE_KIND_BYTES], text[FILE_KIND_TEXT];
    size_t bytes = size < sizeof head ? (size_t)size : sizeof head;
    CHECK(safetensors_read_at(s, 0, head, bytes));
    const char *kind = bytes > 8 && head[8] == '{' ? NULL : file_kind(head, bytes, s->path, text);
    return kind ? fail(ERR_FAILED, "not a safetensors file: %.200s: it is %s", s->path, kind) : OK;
}

static int open_checked(struct safetensors *s) {
    struct stat st;
    uint64_t length;
    s->fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (s->fd < 0 || fstat(s->fd, &st))
        return fail_errno(ERR_FAILED, errno, "cannot read: %s", s->path);
    if (!S_ISREG(st.st_mode))
        return fail(ERR_FAILED,
                    "cannot read: %s: not a regular file: give the path of a safetensors file",
                    s->path);
    uint64_t size = (uint64_t)st.st_size;
    if (size < 8) return wrong(s, NULL, "shorter than 8 bytes");
    CHECK(refuse_other_kinds(s, size));
    CHECK(safetensors_read_at(s, 0, &length, 8));
    if (length > size - 8) return wrong(s, NULL, "its header is longer than the file");
    if (length > HEADER_LIMIT) return wrong(s, NULL, "its header is longer than 100 MB");
    char *text = malloc((size_t)length + 1);
    if (!text) return fail(ERR_MEMORY, "out of memory reading: %s", s->path);
    int code = safetensors_read_at(s, 8, text, length);
    if (!code && (!length || text[0] != '{')) code = wrong(s, NULL, "its header is not an object");
    if (!code) code = json_parse(s->path, text, (size_t)length, &s->header);
    free(text);
    return code ? code : read_header(s, 8 + length, size - 8 - length);
}

int safetensors_open(struct safetensors *s, const char *path) {
    memset(s, 0, sizeof *s);
    s->fd = -1;
    s->path = strdup(path);
    int code = s->path ? open_checked(s) : fail(ERR_MEMORY, "out of memory reading: %s", path);
    if (code) safetensors_close(s);
    return code;
}

void safetensors_close(struct safetensors *s) {
    if (s->path && s->fd >= 0) close(s->fd); /* fd 0 in a zeroed struct is not ours */
    free(s->path);
    free(s->entries);
    json_free(s->header);
    memset(s, 0, sizeof *s);
}
