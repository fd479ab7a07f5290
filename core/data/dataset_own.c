/* The data set of a program in the form that the command uses: arrays that can lie in shared memory
 * and on a device. So if the set is a function, the process that opens it calls it once for each
 * sample, from the first to the last. */
#include "data/dataset_own.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { BYTE_LABELS = 256 };

/* What is copied, and where to. */
struct copy {
    const struct dataset *from;
    size_t numbers, width; /* of a sample, of an answer */
    int bytes;             /* 1: samples are bytes */
    uint8_t *images;       /* (count, numbers), of bytes */
    float *floats;         /* (count, numbers), of numbers */
    uint32_t *answers;     /* (count, width) */
};

static int read_all(const struct copy *c) {
    const struct dataset *from = c->from;
    for (int i = 0; i < from->count; i++) {
        size_t at = (size_t)i * c->numbers;
        void *sample = c->bytes ? (void *)(c->images + at) : (void *)(c->floats + at);
        int code = from->read(from->read_context, i, sample, c->answers + (size_t)i * c->width);
        if (code)
            return fail(ERR_FAILED, "data set %s: its function returned %d for sample %d",
                        DATASET_OWN, code, i);
    }
    return OK;
}

static int copy_all(const struct copy *c) {
    size_t count = (size_t)c->from->count;
    if (c->from->read) return read_all(c);
    if (c->bytes)
        memcpy(c->images, c->from->images, count * c->numbers);
    else
        memcpy(c->floats, c->from->numbers, count * c->numbers * sizeof *c->floats);
    memcpy(c->answers, c->from->answers, count * c->width * sizeof *c->answers);
    return OK;
}

/* A function's labels are known only now. */
static int count_classes(const struct copy *c, int *classes, int *ignored) {
    const int32_t *label = (const int32_t *)c->answers;
    int most = c->from->read && c->from->classes <= 1 ? INT32_MAX : c->from->classes;
    int32_t largest = 0;
    *classes = 0;
    if (c->from->outputs) return OK;
    for (int i = 0; i < c->from->count; i++) {
        if (label[i] == LABEL_IGNORED)
            *ignored = 1;
        else if (label[i] < 0 || label[i] >= most)
            return fail(ERR_USAGE,
                        "data set %s: label %d of sample %d: labels are 0 to the number of classes "
                        "- 1, or -100, the ignore_index",
                        DATASET_OWN, (int)label[i], i);
        if (label[i] > largest) largest = label[i];
    }
    *classes = most == INT32_MAX ? largest + 1 : most;
    return OK;
}

/* Labels become bytes in the memory of the answers, from the front: each is read before. */
static void narrow_labels(const struct copy *c) {
    uint8_t *narrow = (uint8_t *)c->answers;
    for (int i = 0; i < c->from->count; i++)
        narrow[i] = (uint8_t)c->answers[i];
}

static int widen_images(struct copy *c) {
    size_t all = (size_t)c->from->count * c->numbers;
    c->floats = malloc(all * sizeof *c->floats + 1);
    if (!c->floats) return fail(ERR_MEMORY, "data set %s: no memory for it", DATASET_OWN);
    for (size_t i = 0; i < all; i++)
        c->floats[i] = (float)c->images[i] / 255.0f;
    free(c->images);
    c->images = NULL;
    c->bytes = 0;
    return OK;
}

static int make(struct copy *c, int *classes, int *ignored) {
    size_t count = (size_t)c->from->count;
    if (c->bytes)
        c->images = malloc(count * c->numbers + 1);
    else
        c->floats = malloc(count * c->numbers * sizeof *c->floats + 1);
    c->answers = malloc(count * c->width * sizeof *c->answers + 1);
    if (!(c->bytes ? (void *)c->images : (void *)c->floats) || !c->answers)
        return fail(ERR_MEMORY, "data set %s: no memory for its %zu samples", DATASET_OWN, count);
    CHECK(copy_all(c));
    CHECK(count_classes(c, classes, ignored));
    if (!c->bytes) return OK;
    if (c->from->outputs || *classes > BYTE_LABELS || *ignored) return widen_images(c);
    narrow_labels(c);
    return OK;
}

int dataset_own(struct dataset *set, const struct dataset *from) {
    struct copy c = {.from = from,
                     .numbers = sample_shape_count(&from->shape),
                     .width = (size_t)dataset_answer_count(from),
                     .bytes = from->read ? from->read_bytes : !from->numbers};
    int classes = 0, ignored = 0, code = make(&c, &classes, &ignored);
    if (code) {
        free(c.images), free(c.floats), free(c.answers);
        return code;
    }
    *set = (struct dataset){.name = DATASET_OWN,
                            .count = from->count,
                            .shape = from->shape,
                            .classes = classes,
                            .ignored = ignored,
                            .outputs = from->outputs,
                            .owned = {c.bytes ? (void *)c.images : c.floats, c.answers}};
    if (c.bytes)
        set->images = c.images, set->labels = (const uint8_t *)c.answers;
    else
        set->numbers = c.floats, set->answers = c.answers;
    return OK;
}
