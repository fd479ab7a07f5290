/* The list of data sets, and the generated ones: synthetic images and random numbers.
 * data/dataset_files.c reads the others. */
#include "data/dataset.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/random.h"
#include "base/text/nearest.h"
#include "data/dataset_kinds.h"
#include "data/synthetic.h"

enum { SYNTHETIC_COUNT = 60000, RANDOM_COUNT = 6400, TEST_SHARE = 6 };
static const double MOST_BYTES = 0x1p30;
static const struct sample_shape default_shape = {1, 28, 28};

enum kind { UNKNOWN, FILES, SYNTHETIC, RANDOM, OWN, TENSORS };

int dataset_is_file(const char *name) {
    return strpbrk(name, "./") != NULL;
}

static enum kind kind_of(const char *name) {
    if (!strcmp(name, "fashion-mnist") || !strcmp(name, "mnist")) return FILES;
    if (!strcmp(name, "synthetic")) return SYNTHETIC;
    if (!strcmp(name, DATASET_OWN)) return OWN;
    if (dataset_is_file(name)) return TENSORS;
    return strcmp(name, "random") ? UNKNOWN : RANDOM;
}

static struct sample_shape shape_of(const struct dataset_config *c) {
    return c->shape.channels ? c->shape : default_shape;
}

static int classes_of(const struct dataset_config *c) {
    return c->classes ? c->classes : DATASET_CLASSES;
}

/* Numbers per answer in a random set. */
static int answers_of(const struct dataset_config *c) {
    return c->targets ? classes_of(c) : c->positions ? c->positions : 1;
}

int dataset_made_samples(const struct dataset_config *c) {
    enum kind kind = kind_of(c->name);
    if (kind != SYNTHETIC && kind != RANDOM) return 0;
    return c->samples ? c->samples : kind == RANDOM ? RANDOM_COUNT : SYNTHETIC_COUNT;
}

int dataset_has_test(const struct dataset_config *c) {
    enum kind kind = kind_of(c->name);
    if (kind == TENSORS) return dataset_tensors_test(c);
    return kind == OWN ? c->own[1].count > 0 : kind != RANDOM;
}

/* ---- checks ---- */

static int check_made(const struct dataset_config *c, enum kind kind) {
    struct sample_shape shape = shape_of(c);
    char text[SAMPLE_SHAPE_BYTES];
    int count = dataset_made_samples(c);
    if (c->folder)
        return fail(ERR_USAGE, "%s: %s: %s needs no files: leave it out",
                    c->of_program ? "folder" : "--data-dir", c->folder, c->name);
    sample_shape_text(&shape, text);
    if (!sample_shape_fits(&shape))
        return fail(ERR_USAGE, "--shape: %s: give 1 to %d numbers in all", text, SAMPLE_NUMBERS);
    if (c->classes < 0) return fail(ERR_USAGE, "--classes: %d: give at least 1", c->classes);
    if (count < 1) return fail(ERR_USAGE, "--samples: %d: give at least 1", count);
    if (kind == SYNTHETIC && (shape.height < SYNTHETIC_LEAST || shape.width < SYNTHETIC_LEAST))
        return fail(ERR_USAGE,
                    "--shape: %s: synthetic images have at least %d x %d pixels: give a larger "
                    "shape, or --dataset random",
                    text, SYNTHETIC_LEAST, SYNTHETIC_LEAST);
    double each = (double)sample_shape_count(&shape) * (kind == RANDOM ? sizeof(float) : 1) +
                  (double)answers_of(c) * sizeof(float);
    if (c->outline || each * count <= MOST_BYTES) return OK;
    return fail(ERR_USAGE,
                "--samples: %d of %s take %.1f GiB of host memory: give at most %.0f, or a smaller "
                "--shape",
                count, text, each * count / MOST_BYTES, MOST_BYTES / each);
}

int dataset_model_outputs(const struct dataset *set) {
    if (set->outputs) return set->outputs;
    return set->classes > DATASET_CLASSES || !strcmp(set->name, DATASET_OWN) ? set->classes
                                                                             : DATASET_CLASSES;
}

/* A data set that the program brings along has its own sizes, which no option changes. */
static int check_own(const struct dataset_config *c) {
    int outputs = c->own[0].outputs;
    if (!c->own[0].count)
        return fail(ERR_USAGE,
                    "--dataset: own: this program supplies no data: name another data set");
    if (c->folder || c->shape.channels || c->samples)
        return fail(ERR_USAGE, "--dataset: own: the program supplies the samples: leave %s out",
                    c->folder    ? "--data-dir"
                    : c->samples ? "--samples"
                                 : "--shape");
    if (!c->targets != !outputs)
        return fail(ERR_USAGE, "--loss: %s: the program's data has %s: give --loss %s",
                    dataset_loss(c), outputs ? "targets" : "labels",
                    outputs ? "mse" : "cross-entropy");
    if (!c->own[1].count || c->own[1].outputs == outputs) return OK;
    return fail(ERR_USAGE,
                "--dataset: own: %d outputs for training, %d for the test: give one number",
                outputs, c->own[1].outputs);
}

int dataset_check(const struct dataset_config *c) {
    static const char *const words[] = {"fashion-mnist", "mnist", "synthetic", "random",
                                        DATASET_OWN};
    enum kind kind = kind_of(c->name);
    char text[SAMPLE_SHAPE_BYTES];
    if (kind == UNKNOWN || (kind == TENSORS && c->of_program))
        return unknown_value(c->of_program ? "data set" : "--dataset", c->name, words,
                             c->own[0].count ? 5 : 4);
    if (kind == OWN && c->of_program)
        return fail(ERR_USAGE,
                    "data set: own: cannot be opened: create it with duet_dataset_create");
    if (kind == OWN) return check_own(c);
    if (kind == TENSORS && c->folder)
        return fail(ERR_USAGE, "--data-dir: %s: --dataset %s is a file: give one of the two",
                    c->folder, c->name);
    if (kind == TENSORS) return OK;
    if (c->targets && kind != RANDOM)
        return fail(ERR_USAGE, "--loss: %s: %s has labels, not targets: give --dataset random",
                    dataset_loss(c), c->name);
    if (kind != FILES) return check_made(c, kind);
    if (c->shape.channels)
        return fail(ERR_USAGE,
                    "--shape: %s: the images of %s have their own: leave it out, or give "
                    "--dataset random or synthetic",
                    sample_shape_text(&c->shape, text), c->name);
    if (c->samples)
        return fail(ERR_USAGE,
                    "--samples: %d: %s has its own: leave it out, or give --dataset random or "
                    "synthetic",
                    c->samples, c->name);
    return OK;
}

/* ---- the sets that are made ---- */

static int no_memory(struct dataset *set) {
    int count = set->count;
    const char *name = set->name;
    dataset_free(set);
    return fail(ERR_MEMORY, "no memory for %s samples: %d: use fewer", name, count);
}

static int make_synthetic(struct dataset *set, const struct synthetic *what, int count) {
    size_t pixels = sample_shape_count(&what->shape);
    uint8_t *images = malloc((size_t)count * pixels), *labels = malloc((size_t)count);
    *set = (struct dataset){.name = "synthetic",
                            .count = count,
                            .shape = what->shape,
                            .classes = what->classes,
                            .images = images,
                            .labels = labels,
                            .owned = {images, labels}};
    if (!images || !labels) return no_memory(set);
    int code = synthetic_fill(what, count, images, labels);
    if (code) dataset_free(set);
    return code;
}

/* If there are more classes than images, some have none. */
static int synthetic_part(struct dataset *set, const struct dataset_config *c, int train) {
    int count = dataset_made_samples(c), classes = classes_of(c);
    const struct synthetic what = {0, train ? 0 : 1, shape_of(c),
                                   classes < SYNTHETIC_MOST ? classes : SYNTHETIC_MOST};
    if (!train) count = count < TEST_SHARE ? 1 : count / TEST_SHARE;
    return make_synthetic(set, &what, count);
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
    struct sample_shape shape = shape_of(c);
    struct rng rng;
    size_t count = (size_t)dataset_made_samples(c), classes = (size_t)classes_of(c);
    size_t numbers = count * sample_shape_count(&shape), answers = count * (size_t)answers_of(c);
    float *x = malloc(numbers * sizeof *x);
    void *y = malloc(answers * sizeof(float));
    *set = (struct dataset){.name = "random",
                            .count = (int)count,
                            .shape = shape,
                            .classes = c->targets ? 0 : (int)classes,
                            .owned = {x, y},
                            .numbers = x,
                            .answers = y,
                            .outputs = c->targets ? (int)classes : 0,
                            .positions = c->targets ? 0 : c->positions};
    if (!x || !y) return no_memory(set);
    rng_seed(&rng, c->seed);
    if (draw_samples(&rng, x, count, sample_shape_count(&shape), c)) return no_memory(set);
    if (c->targets)
        rng_normal(&rng, y, answers, 0, 1);
    else
        rng_integers(&rng, y, answers, (int32_t)classes);
    for (size_t i = 0; c->binary && i < answers; i++)
        ((float *)y)[i] = ((float *)y)[i] > 0;
    return OK;
}

/* ---- opening ---- */

int dataset_count_classes(struct dataset *set, int most) {
    const int32_t *label = set->answers;
    const int64_t each = dataset_answer_count(set), all = set->count * each;
    set->classes = most ? most : 1;
    for (int64_t i = 0; i < all; i++)
        if (label[i] == LABEL_IGNORED)
            set->ignored = 1;
        else if (label[i] < 0 || label[i] == INT32_MAX || (most && label[i] >= most))
            return fail(ERR_USAGE,
                        "data set %s: label %d of sample %d: labels are 0 to the number of classes "
                        "- 1, or -100, the ignore_index",
                        set->name, (int)label[i], (int)(i / each));
        else if (label[i] >= set->classes)
            set->classes = label[i] + 1;
    return OK;
}

int dataset_make(struct dataset *set, const struct dataset_config *c, int train) {
    memset(set, 0, sizeof *set);
    CHECK(dataset_check(c));
    switch (kind_of(c->name)) {
    case SYNTHETIC: return synthetic_part(set, c, train);
    case OWN: return dataset_own(set, &c->own[train ? 0 : 1]);
    case TENSORS: return dataset_tensors(set, c, train);
    case RANDOM:
        return train ? make_random(set, c)
                     : fail(ERR_USAGE, "data set random: has no test part: train without one");
    default: return dataset_files(set, c, train);
    }
}

/* Fashion-MNIST was made to take MNIST's place, so both have the same sizes. */
enum { MNIST_TRAIN = 60000, MNIST_TEST = 10000 };

struct sample_shape dataset_shape(const struct dataset_config *c) {
    enum kind kind = kind_of(c->name);
    if (kind == OWN) return c->own[0].shape;
    if (kind == TENSORS) return dataset_tensors_shape(c);
    return kind == FILES && !c->outline ? dataset_files_shape(c) : c->shape;
}

int dataset_outline(struct dataset *set, const struct dataset_config *c, int train) {
    static const char nothing[1]; /* never read */
    enum kind kind = kind_of(c->name);
    int made = dataset_made_samples(c), classes = classes_of(c), bytes = kind != RANDOM;
    memset(set, 0, sizeof *set);
    CHECK(dataset_check(c));
    if (kind == TENSORS) return dataset_tensors(set, c, train);
    if (c->folder)
        return fail(ERR_USAGE,
                    "--data-dir: %s: its files are not read: give --dataset synthetic or random "
                    "with --shape, --classes and --samples",
                    c->folder);
    if (!train) made = made < TEST_SHARE ? 1 : made / TEST_SHARE;
    *set = (struct dataset){.name = c->name,
                            .count = made,
                            .shape = shape_of(c),
                            .classes = c->targets ? 0 : classes,
                            .outputs = c->targets ? classes : 0,
                            .positions = c->targets || kind != RANDOM ? 0 : c->positions,
                            .outline = 1};
    if (kind == FILES) {
        set->count = train ? MNIST_TRAIN : MNIST_TEST;
        set->classes = DATASET_CLASSES;
    }
    if (kind == OWN) {
        const struct dataset *own = &c->own[train ? 0 : 1];
        if (own->read && own->classes <= 1 && !own->outputs && !c->classes)
            return fail(ERR_USAGE,
                        "--dataset: own: the labels that its function makes are not read: "
                        "give --classes");
        set->count = own->count, set->shape = own->shape;
        set->classes = own->classes, set->outputs = own->outputs;
        bytes = own->read ? own->read_bytes : !own->numbers;
    }
    if (kind == SYNTHETIC && classes > SYNTHETIC_MOST) set->classes = SYNTHETIC_MOST;
    set->images = bytes ? (const uint8_t *)nothing : NULL;
    set->numbers = bytes ? NULL : (const float *)(const void *)nothing;
    set->answers = nothing;
    return OK;
}

int dataset_open(struct dataset *set, const char *name, const char *folder, int train) {
    const struct dataset_config config = {.name = name, .folder = folder, .of_program = 1};
    return dataset_make(set, &config, train);
}

void dataset_free(struct dataset *set) {
    free(set->owned[0]);
    free(set->owned[1]);
    if (set->map) munmap(set->map, set->map_bytes);
    memset(set, 0, sizeof *set);
}
