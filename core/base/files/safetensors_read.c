/* Reads the tensors of an open file by name; F16 and BF16 become float32. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/half.h"
#include "base/text/json.h"
#include "base/files/safetensors.h"

const char *safetensors_name(const char *name) {
    for (;;) {
        if (!strncmp(name, "module.", 7))
            name += 7;
        else if (!strncmp(name, "_orig_mod.", 10))
            name += 10;
        else
            return name;
    }
}

int safetensors_read_at(const struct safetensors *s, uint64_t offset, void *out, uint64_t bytes) {
    char *to = out;
    while (bytes) {
        /* One call of pread reads at most 2 GiB. */
        size_t part = bytes < 1u << 30 ? (size_t)bytes : 1u << 30;
        ssize_t n = pread(s->fd, to, part, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno(ERR_FAILED, errno, "cannot read: %s", s->path);
        if (n == 0)
            return fail(ERR_FAILED,
                        "not a valid safetensors file: %s: truncated: take another copy, or write "
                        "it again",
                        s->path);
        to += n, offset += (uint64_t)n, bytes -= (uint64_t)n;
    }
    return OK;
}

const struct safetensors_entry *safetensors_find(const struct safetensors *s, const char *name) {
    for (int i = 0; i < s->count; i++)
        if (!strcmp(s->entries[i].name, name)) return &s->entries[i];
    return NULL;
}

const char *safetensors_text(const struct safetensors *s, const char *key) {
    const struct json *metadata = json_find(s->header, "__metadata__");
    const struct json *text = metadata ? json_find(metadata, key) : NULL;
    return text && text->kind == JSON_STRING ? text->string : NULL;
}

/* "[64, 32, 3, 3]" for an error text. */
static const char *shape_text(char text[200], int dims, const int64_t *shape) {
    int n = snprintf(text, 200, "[");
    for (int i = 0; i < dims; i++)
        n += snprintf(text + n, 200 - (size_t)n, i ? ", %lld" : "%lld", (long long)shape[i]);
    snprintf(text + n, 200 - (size_t)n, "]");
    return text;
}

static const char *type_text(const char *dtype) {
    return strcmp(dtype, "I64") ? "float32" : "int64";
}

static int is_half(const struct safetensors_entry *e) {
    return !strcmp(e->dtype, "F16") || !strcmp(e->dtype, "BF16");
}

const char *safetensors_halves(const struct safetensors *s) {
    for (int i = 0; i < s->count; i++)
        if (is_half(&s->entries[i])) return s->entries[i].dtype[0] == 'B' ? "BF16" : "F16";
    return NULL;
}

/* The halves are read into the upper half of out; the float that is written never reaches one that
 * is still to be read. */
static int read_halves(const struct safetensors *s, const struct safetensors_entry *e, float *out) {
    unsigned char *from = (unsigned char *)out + e->bytes;
    CHECK(safetensors_read_at(s, e->offset, from, e->bytes));
    for (uint64_t i = 0; i < e->count; i++) {
        uint16_t half;
        memcpy(&half, from + 2 * i, sizeof half);
        out[i] = e->dtype[0] == 'B' ? float_of_bf16(half) : float_of_f16(half);
    }
    return OK;
}

static int read_doubles(const struct safetensors *s, const struct safetensors_entry *e,
                        float *out) {
    double part[512];
    for (uint64_t at = 0; at < e->count;) {
        size_t n = e->count - at < 512 ? (size_t)(e->count - at) : 512;
        CHECK(safetensors_read_at(s, e->offset + at * sizeof *part, part, n * sizeof *part));
        for (size_t i = 0; i < n; i++)
            out[at++] = (float)part[i];
    }
    return OK;
}

int safetensors_read(const struct safetensors *s, const char *dtype, const char *name, int dims,
                     const int64_t *shape, void *out) {
    char want[200], have[200];
    const struct safetensors_entry *e = safetensors_find(s, name);
    if (!e)
        return fail(ERR_FAILED, "no tensor '%s' in: %s: give a file of the same model", name,
                    s->path);
    if (e->dims != dims || (dims && memcmp(e->shape, shape, (size_t)dims * sizeof *shape)))
        return fail(
            ERR_FAILED,
            "tensor '%s' has another shape: %s in %s, %s in the model: give a file of this model",
            name, shape_text(have, e->dims, e->shape), s->path, shape_text(want, dims, shape));
    if (!strcmp(dtype, "F32") && is_half(e)) return read_halves(s, e, out);
    if (!strcmp(dtype, "F32") && !strcmp(e->dtype, "F64")) return read_doubles(s, e, out);
    if (strcmp(e->dtype, dtype))
        return fail(ERR_FAILED, "tensor '%s' is not %s: %s has %.20s: save it as %s", name,
                    type_text(dtype), s->path, e->dtype, type_text(dtype));
    return safetensors_read_at(s, e->offset, out, e->bytes);
}
