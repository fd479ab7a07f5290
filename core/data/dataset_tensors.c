/* A data set in one safetensors file of named tensors:
 *
 *     x   (count, ...)    float32: unchanged; uint8: images, byte / 255; int32, int64: integers,
 *                         such as tokens
 *     y   (count)         int32, int64, uint8: the label of each sample
 *         (count, ...)    several labels per sample, such as the next token at every position;
 *                         float32: targets of the loss mse
 *     x_test, y_test      the test part in the same form; it may be missing
 *
 * Samples are kept as bytes or as floats. A float holds integers up to 2^24 exactly, so larger
 * ones are refused. */
#include "data/dataset_kinds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/files/safetensors.h"

enum { MOST_WHOLE = 1 << 24, CHUNK = 4096 };

/* An open file, the two tensors of the part, and the resulting arrays. */
struct reading {
    struct safetensors file;
    const char *x_name, *y_name;
    const struct safetensors_entry *x, *y;
    int bytes;       /* 1: the samples stay bytes */
    void *samples;   /* bytes or floats */
    int32_t *labels; /* or floats, of targets */
};

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* ---- the head of the file ---- */

static int is_type(const struct safetensors_entry *e, const char *types) {
    const char *at = strstr(types, e->dtype);
    return at && (at == types || at[-1] == ' ');
}

static int wrong(const struct reading *r, const char *tensor, const char *why) {
    return fail(ERR_FAILED, "data set %s: tensor '%s': %s", r->file.path, tensor, why);
}

static uint64_t of_a_sample(const struct safetensors_entry *e) {
    return e->shape[0] ? e->count / (uint64_t)e->shape[0] : 0;
}

static int check_tensors(const struct reading *r) {
    const struct safetensors_entry *x = r->x, *y = r->y;
    if (!x || !y)
        return wrong(r, x ? r->y_name : r->x_name,
                     "is missing: a data set has x and y, and x_test and y_test for a test");
    if (!is_type(x, "F32 U8 I32 I64"))
        return wrong(r, r->x_name,
                     "has a type that samples cannot have: give float32, uint8, "
                     "int32 or int64");
    if (!is_type(y, "F32 U8 I32 I64"))
        return wrong(r, r->y_name,
                     "has a type that answers cannot have: give int32 or int64 "
                     "labels, or float32 targets");
    if (!x->dims || !y->dims || !x->count || !y->count)
        return wrong(r, x->dims && x->count ? r->y_name : r->x_name, "has no samples");
    if (x->shape[0] != y->shape[0])
        return fail(ERR_FAILED,
                    "data set %s: %lld samples in %s, %lld in %s: give an answer for each sample",
                    r->file.path, (long long)x->shape[0], r->x_name, (long long)y->shape[0],
                    r->y_name);
    if (x->shape[0] > INT32_MAX || of_a_sample(x) > SAMPLE_NUMBERS ||
        of_a_sample(y) > SAMPLE_NUMBERS)
        return fail(ERR_FAILED,
                    "data set %s: %lld samples of %llu numbers: give at most %d, of at most %d",
                    r->file.path, (long long)x->shape[0], (unsigned long long)of_a_sample(x),
                    INT32_MAX, SAMPLE_NUMBERS);
    return OK;
}

static int open_part(struct reading *r, const char *path, int train) {
    memset(r, 0, sizeof *r);
    CHECK(safetensors_open(&r->file, path));
    r->x_name = train ? "x" : "x_test", r->y_name = train ? "y" : "y_test";
    r->x = safetensors_find(&r->file, r->x_name), r->y = safetensors_find(&r->file, r->y_name);
    return check_tensors(r);
}

/* A side for each dimension; more than three become one. The model's own shape is used if it has as
 * many numbers. */
static struct sample_shape shape_of(const struct safetensors_entry *x,
                                    const struct sample_shape *wanted) {
    struct sample_shape shape = {(int)of_a_sample(x), 1, 1};
    if (x->dims > 1 && x->dims <= 4)
        shape = (struct sample_shape){(int)x->shape[1], x->dims > 2 ? (int)x->shape[2] : 1,
                                      x->dims > 3 ? (int)x->shape[3] : 1};
    return sample_shape_count(wanted) == sample_shape_count(&shape) ? *wanted : shape;
}

struct sample_shape dataset_tensors_shape(const struct dataset_config *c) {
    struct sample_shape shape = {0};
    struct reading r;
    if (!open_part(&r, c->name, 1)) shape = shape_of(r.x, &c->shape);
    safetensors_close(&r.file);
    return shape;
}

int dataset_tensors_test(const struct dataset_config *c) {
    struct safetensors file;
    int opened = !safetensors_open(&file, c->name),
        found = opened && (safetensors_find(&file, "x_test") || safetensors_find(&file, "y_test"));
    safetensors_close(&file);
    return found;
}

/* ---- the numbers ---- */

union chunk {
    uint8_t u8[CHUNK];
    int32_t i32[CHUNK];
    int64_t i64[CHUNK];
};

static int64_t whole_at(const char *dtype, const union chunk *from, size_t i) {
    if (!strcmp(dtype, "U8")) return from->u8[i];
    return strcmp(dtype, "I32") ? from->i64[i] : from->i32[i];
}

/* Calls `take` with each number of a tensor of integers, in order, and its index. */
static int read_whole(const struct reading *r, const struct safetensors_entry *e, void *to,
                      int (*take)(const struct reading *r, void *to, uint64_t i, int64_t number)) {
    const size_t width = (size_t)(e->bytes / e->count);
    union chunk chunk;
    for (uint64_t at = 0; at < e->count; at += CHUNK) {
        size_t n = e->count - at < CHUNK ? (size_t)(e->count - at) : CHUNK;
        CHECK(safetensors_read_at(&r->file, e->offset + at * width, &chunk, n * width));
        for (size_t i = 0; i < n; i++)
            CHECK(take(r, to, at + i, whole_at(e->dtype, &chunk, i)));
    }
    return OK;
}

static int take_number(const struct reading *r, void *to, uint64_t i, int64_t number) {
    if (number < -MOST_WHOLE || number > MOST_WHOLE)
        return fail(ERR_FAILED,
                    "data set %s: %s: %lld in sample %llu: integers must be from -%d to %d",
                    r->file.path, r->x_name, (long long)number,
                    (unsigned long long)(i / of_a_sample(r->x)), MOST_WHOLE, MOST_WHOLE);
    ((float *)to)[i] = (float)number;
    return OK;
}

static int take_label(const struct reading *r, void *to, uint64_t i, int64_t number) {
    if ((number < 0 || number >= INT32_MAX) && number != LABEL_IGNORED)
        return fail(ERR_FAILED,
                    "data set %s: %s: label %lld of sample %llu: labels are 0 to the number of "
                    "classes - 1, or -100, the ignore_index",
                    r->file.path, r->y_name, (long long)number,
                    (unsigned long long)(i / of_a_sample(r->y)));
    ((int32_t *)to)[i] = (int32_t)number;
    return OK;
}

/* The numbers that the model uses as indices must be valid: x[from ..] of each sample. */
static int check_part(const struct reading *r, uint64_t from, const struct sample_part *part) {
    const uint64_t each = of_a_sample(r->x);
    const float *x = r->samples;
    const int limit = part->most ? part->most : part->below;
    for (uint64_t i = from; part->below && i < r->x->count; i += each)
        for (uint64_t k = i; k < i + (uint64_t)part->count; k++)
            if (!(x[k] >= 0 && x[k] < (float)limit && x[k] == floorf(x[k])))
                return fail(ERR_FAILED,
                            "data set %s: %s: %g in sample %llu: the model takes integers "
                            "from 0 to %d",
                            r->file.path, r->x_name, (double)x[k], (unsigned long long)(k / each),
                            limit - 1);
    return OK;
}

static int read_floats(const struct reading *r, const struct dataset_config *c) {
    if (!strcmp(r->x->dtype, "F32"))
        CHECK(safetensors_read_at(&r->file, r->x->offset, r->samples, r->x->bytes));
    else
        CHECK(read_whole(r, r->x, r->samples, take_number));
    uint64_t from = 0;
    if (!dataset_has_parts(c, of_a_sample(r->x))) return OK;
    for (int p = 0; p < c->part_count; from += (uint64_t)c->parts[p++].count)
        CHECK(check_part(r, from, &c->parts[p]));
    return OK;
}

static int read_samples(struct reading *r, const struct dataset_config *c) {
    if (c->outline) return OK;
    r->samples = malloc(r->x->count * (r->bytes ? 1 : sizeof(float)));
    if (!r->samples)
        return fail(ERR_MEMORY, "data set %s: no memory for its samples", r->file.path);
    if (r->bytes) return safetensors_read_at(&r->file, r->x->offset, r->samples, r->x->bytes);
    return read_floats(r, c);
}

static int read_answers(struct reading *r, const struct dataset_config *c) {
    int targets = !strcmp(r->y->dtype, "F32");
    if (targets != c->targets)
        return fail(ERR_USAGE, "--loss: %s: %s of data set %s is %s: give --loss %s",
                    dataset_loss(c), r->y_name, r->file.path,
                    targets ? "float32, so targets" : "of integers, so labels",
                    targets ? "mse" : "cross-entropy");
    r->labels = malloc(r->y->count * sizeof *r->labels);
    if (!r->labels) return fail(ERR_MEMORY, "data set %s: no memory for its answers", r->file.path);
    if (targets) return safetensors_read_at(&r->file, r->y->offset, r->labels, r->y->bytes);
    return read_whole(r, r->y, r->labels, take_label);
}

static int make(struct reading *r, struct dataset *set, const struct dataset_config *c) {
    static const char nothing[1]; /* stands for an outline's data; never read */
    CHECK(read_answers(r, c));
    int each = (int)of_a_sample(r->y);
    r->bytes = !strcmp(r->x->dtype, "U8") && !c->part_count;
    CHECK(read_samples(r, c));
    *set = (struct dataset){.name = last_part(c->name),
                            .count = (int)r->x->shape[0],
                            .shape = shape_of(r->x, &c->shape),
                            .outputs = c->targets ? each : 0,
                            .positions = c->targets || each == 1 ? 0 : each,
                            .owned = {r->samples, r->labels},
                            .outline = c->outline};
    const void *samples = c->outline ? nothing : r->samples;
    set->images = r->bytes ? samples : NULL;
    set->numbers = r->bytes ? NULL : samples;
    set->answers = r->labels;
    return c->targets ? OK : dataset_count_classes(set, 0);
}

int dataset_tensors(struct dataset *set, const struct dataset_config *c, int train) {
    struct reading r;
    int code = open_part(&r, c->name, train);
    if (!code) code = make(&r, set, c);
    if (code) {
        free(r.samples);
        free(r.labels);
    }
    safetensors_close(&r.file);
    return code;
}
