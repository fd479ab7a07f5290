/* The stages of preparing a batch; see prepare.h. */
#include "data/prepare.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"

/* Numbers are taken as they are: the first stage has nothing to do. */
static void copy_numbers(const struct prepare *p) {
    const struct dataset *set = p->set;
    size_t count = sample_shape_count(&set->shape);
    for (int i = 0; i < p->n; i++)
        memcpy(p->pixels + (size_t)i * count, set->numbers + (size_t)p->index[i] * count,
               count * sizeof(float));
}

static void collect_rows(const struct prepare *p) {
    size_t count = sample_shape_count(&p->set->shape);
    for (int i = 0; i < p->n; i++)
        memcpy(p->rows + (size_t)i * count, p->set->images + (size_t)p->index[i] * count, count);
}

static void convert_rows(const struct prepare *p) {
    size_t count = sample_shape_count(&p->set->shape), all = (size_t)p->n * count,
           plane = count / (size_t)p->tables;
    if (p->tables == 1)
        for (size_t k = 0; k < all; k++)
            p->pixels[k] = p->pixel[p->rows[k]];
    for (size_t k = 0; p->tables > 1 && k < all; k++)
        p->pixels[k] = p->pixel[k % count / plane * 256 + p->rows[k]];
}

static void copy_answers(const struct prepare *p) {
    const struct dataset *set = p->set;
    size_t width = (size_t)dataset_answer_count(set);
    const uint32_t *answers = set->answers;
    for (int i = 0; i < p->n; i++)
        if (answers)
            memcpy(p->answers + (size_t)i * width, answers + (size_t)p->index[i] * width,
                   width * sizeof *answers);
        else
            p->answers[i] = set->labels[p->index[i]];
}

/* The data set's function writes the samples directly to their place. */
static int read_samples(const struct prepare *p) {
    const struct dataset *set = p->set;
    size_t count = sample_shape_count(&set->shape), width = (size_t)dataset_answer_count(set);
    for (int i = 0; i < p->n; i++) {
        size_t at = (size_t)i * count;
        void *sample = set->read_bytes ? (void *)(p->rows + at) : (void *)(p->pixels + at);
        int code =
            set->read(set->read_context, p->index[i], sample, p->answers + (size_t)i * width);
        if (code)
            return fail(code > ERR_PEER || code < 0 ? ERR_FAILED : code,
                        "data set %s: its function returned %d for sample %d", set->name, code,
                        p->index[i]);
    }
    return OK;
}

int prepare_samples(const struct prepare *p, int64_t *host_ns, int64_t *pinned_ns) {
    const struct dataset *set = p->set;
    int64_t start = now_ns();
    if (set->read)
        CHECK(read_samples(p));
    else if (!set->numbers)
        collect_rows(p);
    int64_t collected = now_ns();
    if (set->numbers) copy_numbers(p);
    if (set->read ? set->read_bytes : !set->numbers) convert_rows(p);
    if (!set->read) copy_answers(p);
    *host_ns = collected - start;
    *pinned_ns = now_ns() - collected;
    return OK;
}

int staging_alloc(void *context, void **out, size_t bytes) {
    (void)context;
    *out = aligned_alloc(64, (bytes + 63) / 64 * 64);
    return *out ? OK
                : fail(ERR_MEMORY, "loader: no memory for a batch: %zu bytes: use a smaller batch",
                       bytes);
}

void staging_release(void *context, void *memory) {
    (void)context;
    free(memory);
}
