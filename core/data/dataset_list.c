/* The list of data sets: it opens each from the file of its kind (data/dataset_kinds.h). */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/nearest.h"
#include "data/dataset_kinds.h"
#include "data/program_dataset.h"

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

int dataset_has_test(const struct dataset_config *c) {
    enum kind kind = kind_of(c->name);
    if (kind == TENSORS) return dataset_tensors_test(c);
    return kind == OWN ? c->own[1].count > 0 : kind != RANDOM;
}

/* ---- checks ---- */

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
    if (kind != FILES) return dataset_made_check(c);
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

/* ---- opening ---- */

int dataset_make(struct dataset *set, const struct dataset_config *c, int train) {
    memset(set, 0, sizeof *set);
    CHECK(dataset_check(c));
    switch (kind_of(c->name)) {
    case OWN: return dataset_own(set, &c->own[train ? 0 : 1]);
    case TENSORS: return dataset_tensors(set, c, train);
    case FILES: return dataset_files(set, c, train);
    default: return dataset_made(set, c, train);
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
    int bytes = kind != RANDOM;
    memset(set, 0, sizeof *set);
    CHECK(dataset_check(c));
    if (kind == TENSORS) return dataset_tensors(set, c, train);
    if (c->folder)
        return fail(ERR_USAGE,
                    "--data-dir: %s: its files are not read: give --dataset synthetic or random "
                    "with --shape, --classes and --samples",
                    c->folder);
    *set = dataset_made_sizes(c, train);
    set->outline = 1;
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
    set->images = bytes ? (const uint8_t *)nothing : NULL;
    set->numbers = bytes ? NULL : (const float *)(const void *)nothing;
    set->answers = nothing;
    return OK;
}

int dataset_open(struct dataset *set, const char *name, const char *folder, int train) {
    const struct dataset_config config = {.name = name, .folder = folder, .of_program = 1};
    return dataset_make(set, &config, train);
}

int duet_dataset_open(duet_dataset **out, const char *name, const char *folder, int train) {
    CHECK_OUT(out);
    if (!name)
        return fail(
            ERR_USAGE,
            "data set: the name is NULL: expected fashion-mnist, mnist, synthetic or random");
    struct duet_dataset *set = calloc(1, sizeof *set);
    if (!set) return fail(ERR_MEMORY, "data set %s: out of host memory", name);
    set->rank = 3;
    int code = dataset_open(&set->set, name, folder, train);
    if (code)
        duet_dataset_free(set);
    else
        *out = set;
    return code;
}
