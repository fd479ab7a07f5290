/* The stages of preparing a batch: see prepare.h. */
#include "data/prepare.h"

#include <string.h>

#include "base/clock.h"

/* Numbers are taken as they are: the first stage has nothing to do. */
static void copy_numbers(const struct prepare *p) {
    const struct dataset *set = p->set;
    size_t count = sample_shape_count(&set->shape), width = (size_t)dataset_answer_count(set);
    const uint32_t *answers = set->answers;
    for (int i = 0; i < p->n; i++) {
        size_t sample = (size_t)p->index[i], row = (size_t)i;
        memcpy(p->pixels + row * count, set->numbers + sample * count, count * sizeof(float));
        memcpy(p->answers + row * width, answers + sample * width, width * sizeof *answers);
    }
}

static void collect_rows(const struct prepare *p) {
    size_t count = sample_shape_count(&p->set->shape);
    for (int i = 0; i < p->n; i++)
        memcpy(p->rows + (size_t)i * count, p->set->images + (size_t)p->index[i] * count, count);
}

static void convert_rows(const struct prepare *p) {
    size_t all = (size_t)p->n * sample_shape_count(&p->set->shape);
    for (size_t k = 0; k < all; k++)
        p->pixels[k] = p->pixel[p->rows[k]];
    for (int i = 0; i < p->n; i++)
        p->answers[i] = p->set->labels[p->index[i]];
}

void prepare_samples(const struct prepare *p, int64_t *host_ns, int64_t *pinned_ns) {
    int64_t start = now_ns();
    if (!p->set->numbers) collect_rows(p);
    int64_t collected = now_ns();
    if (p->set->numbers)
        copy_numbers(p);
    else
        convert_rows(p);
    *host_ns = collected - start;
    *pinned_ns = now_ns() - collected;
}
