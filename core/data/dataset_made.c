/* The data sets that are made: synthetic images (data/synthetic.h), and random numbers. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "data/dataset_kinds.h"
#include "data/synthetic.h"

enum { SYNTHETIC_COUNT = 60000, RANDOM_COUNT = 6400, TEST_SHARE = 6 };
static const double MOST_BYTES = 0x1p30;

static int is_random(const struct dataset_config *c) {
    return !strcmp(c->name, "random");
}

int dataset_made_samples(const struct dataset_config *c) {
    if (!is_random(c) && strcmp(c->name, "synthetic")) return 0;
    return c->samples ? c->samples : is_random(c) ? RANDOM_COUNT : SYNTHETIC_COUNT;
}

/* If there are more classes than images, some have none. */
struct dataset dataset_made_sizes(const struct dataset_config *c, int train) {
    static const struct sample_shape usual = {1, 28, 28};
    int count = dataset_made_samples(c), classes = c->classes ? c->classes : DATASET_CLASSES;
    if (!train) count = count < TEST_SHARE ? 1 : count / TEST_SHARE;
    if (!is_random(c) && classes > SYNTHETIC_MOST) classes = SYNTHETIC_MOST;
    return (struct dataset){.name = c->name,
                            .count = count,
                            .shape = c->shape.channels ? c->shape : usual,
                            .classes = c->targets ? 0 : classes,
                            .outputs = c->targets ? classes : 0,
                            .positions = c->targets || !is_random(c) ? 0 : c->positions};
}

int dataset_made_check(const struct dataset_config *c) {
    const struct dataset set = dataset_made_sizes(c, 1);
    const struct sample_shape shape = set.shape;
    const int count = set.count;
    char text[SAMPLE_SHAPE_BYTES];
    if (c->folder)
        return fail(ERR_USAGE, "%s: %s: %s needs no files: leave it out",
                    c->of_program ? "folder" : "--data-dir", c->folder, c->name);
    sample_shape_text(&shape, text);
    if (!sample_shape_fits(&shape))
        return fail(ERR_USAGE, "--shape: %s: give 1 to %d numbers in all", text, SAMPLE_NUMBERS);
    if (c->classes < 0) return fail(ERR_USAGE, "--classes: %d: give at least 1", c->classes);
    if (count < 1) return fail(ERR_USAGE, "--samples: %d: give at least 1", count);
    if (!is_random(c) && (shape.height < SYNTHETIC_LEAST || shape.width < SYNTHETIC_LEAST))
        return fail(ERR_USAGE,
                    "--shape: %s: synthetic images have at least %d x %d pixels: give a larger "
                    "shape, or --dataset random",
                    text, SYNTHETIC_LEAST, SYNTHETIC_LEAST);
    double each = (double)sample_shape_count(&shape) * (is_random(c) ? sizeof(float) : 1) +
                  (double)dataset_answer_count(&set) * sizeof(float);
    if (c->outline || each * count <= MOST_BYTES) return OK;
    return fail(ERR_USAGE,
                "--samples: %d of %s take %.1f GiB of host memory: give at most %.0f, or a smaller "
                "--shape",
                count, text, each * count / MOST_BYTES, MOST_BYTES / each);
}

static int no_memory(struct dataset *set) {
    int count = set->count;
    const char *name = set->name;
    dataset_free(set);
    return fail(ERR_MEMORY, "no memory for %s samples: %d: use fewer", name, count);
}

static int make_synthetic(struct dataset *set, int train) {
    const struct synthetic what = {0, train ? 0 : 1, set->shape, set->classes};
    const size_t count = (size_t)set->count;
    uint8_t *images = set->owned[0] = malloc(count * sample_shape_count(&set->shape)),
            *labels = set->owned[1] = malloc(count);
    set->name = "synthetic", set->images = images, set->labels = labels;
    if (!images || !labels) return no_memory(set);
    int code = synthetic_fill(&what, set->count, images, labels);
    if (code) dataset_free(set);
    return code;
}

/* torch.randn(count), or torch.randint(0, below, (count,)) as floats. */
static void draw_part(struct rng *rng, float *x, size_t count, int below) {
    int32_t some[256];
    if (!below) rng_normal(rng, x, count, 0, 1);
    for (size_t i = 0; below && i < count; i++) {
        size_t at = i % 256, left = count - i;
        if (!at) rng_integers(rng, some, left < 256 ? left : 256, below);
        x[i] = (float)some[at];
    }
}

/* A part is drawn for all samples in sequence, and then distributed. */
static int draw_parts(struct rng *rng, float *x, size_t samples, size_t numbers,
                      const struct dataset_config *c) {
    float *drawn = malloc(samples * numbers * sizeof *drawn);
    if (!drawn) return ERR_MEMORY; /* the caller adds what the memory was for */
    for (int p = 0; p < c->part_count; x += c->parts[p++].count) {
        const size_t each = (size_t)c->parts[p].count;
        draw_part(rng, drawn, samples * each, c->parts[p].below);
        for (size_t i = 0; i < samples; i++)
            memcpy(x + i * numbers, drawn + i * each, each * sizeof *x);
    }
    free(drawn);
    return OK;
}

static int draw_samples(struct rng *rng, float *x, size_t samples, size_t numbers,
                        const struct dataset_config *c) {
    if (c->part_count > 1 && dataset_has_parts(c, numbers))
        return draw_parts(rng, x, samples, numbers, c);
    draw_part(rng, x, samples * numbers, c->part_count ? c->parts[0].below : 0);
    return OK;
}

static int make_random(struct dataset *set, const struct dataset_config *c) {
    struct rng rng;
    size_t count = (size_t)set->count, each = sample_shape_count(&set->shape),
           answers = count * (size_t)dataset_answer_count(set);
    float *x = set->owned[0] = malloc(count * each * sizeof *x),
          *y = set->owned[1] = malloc(answers * sizeof *y);
    set->name = "random", set->numbers = x, set->answers = y;
    if (!x || !y) return no_memory(set);
    rng_seed(&rng, c->seed);
    if (draw_samples(&rng, x, count, each, c)) return no_memory(set);
    if (c->targets)
        rng_normal(&rng, y, answers, 0, 1);
    else
        rng_integers(&rng, set->owned[1], answers, set->classes);
    for (size_t i = 0; c->binary && i < answers; i++)
        y[i] = y[i] > 0;
    return OK;
}

int dataset_made(struct dataset *set, const struct dataset_config *c, int train) {
    if (is_random(c) && !train)
        return fail(ERR_USAGE, "data set random: has no test part: train without one");
    *set = dataset_made_sizes(c, train);
    return is_random(c) ? make_random(set, c) : make_synthetic(set, train);
}
