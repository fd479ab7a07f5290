/* Data sets of programs: those that Duet knows by name, and a program's own arrays or function. */
#include "data/program_dataset.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

int duet_dataset_open(duet_dataset **out, const char *name, const char *folder, int train) {
    CHECK_OUT(out);
    if (!name)
        return fail(
            ERR_USAGE,
            "data set: no name was given: there are fashion-mnist, mnist, synthetic and random");
    struct duet_dataset *set = calloc(1, sizeof *set);
    if (!set) return fail(ERR_MEMORY, "data set %s: no host memory", name);
    set->rank = 3;
    int code = dataset_open(&set->set, name, folder, train);
    if (code)
        duet_dataset_free(set);
    else
        *out = set;
    return code;
}

void duet_dataset_free(duet_dataset *set) {
    if (!set) return;
    dataset_free(&set->set);
    free(set);
}

struct duet_dataset_info duet_dataset_info(const duet_dataset *set) {
    if (!set) return (struct duet_dataset_info){.count = 0};
    const struct dataset *s = &set->set;
    return (struct duet_dataset_info){
        s->count, {s->shape.channels, s->shape.height, s->shape.width}, s->classes};
}

/* ---- a program's own ---- */

/* Where a sample's dimensions are fewer than three, the others are 1. */
static int check_shape(const struct duet_data *d, struct sample_shape *shape) {
    int of[3] = {1, 1, 1};
    if (d->rank < 1 || d->rank > 3)
        return fail(ERR_USAGE, "data set: samples of rank %d: give 1 to 3 dimensions", d->rank);
    for (int i = 0; i < d->rank; i++)
        of[i] = d->shape[i];
    *shape = (struct sample_shape){of[0], of[1], of[2]};
    if (sample_shape_fits(shape)) return OK;
    return fail(ERR_USAGE, "data set: samples of %d x %d x %d numbers: give 1 to %d in all", of[0],
                of[1], of[2], SAMPLE_NUMBERS);
}

static int check_sources(const struct duet_data *d) {
    if (d->count < 1) return fail(ERR_USAGE, "data set: %d samples: give at least 1", d->count);
    if (d->type != DUET_F32 && d->type != DUET_U8)
        return fail(ERR_USAGE, "data set: samples of type %d: give DUET_F32 or DUET_U8",
                    (int)d->type);
    if (!d->samples == !d->read)
        return fail(ERR_USAGE,
                    "data set: %s: give an array of samples or a function that makes them",
                    d->read ? "both an array and a function" : "no samples");
    if (d->read && (d->labels || d->targets))
        return fail(ERR_USAGE, "data set: labels or targets beside a function: it makes them too");
    if (!d->read && !d->labels == !d->targets)
        return fail(ERR_USAGE, "data set: %s: give labels or targets",
                    d->labels ? "both labels and targets" : "neither labels nor targets");
    if (d->outputs < 0 || d->outputs > SAMPLE_NUMBERS || (d->targets && !d->outputs) ||
        (d->labels && d->outputs))
        return fail(ERR_USAGE,
                    "data set: %d outputs: give how many numbers a target has, and 0 with labels",
                    d->outputs);
    if (d->classes < 0 || (d->classes && d->outputs))
        return fail(ERR_USAGE, "data set: %d classes: give at least 1, and 0 with targets",
                    d->classes);
    return OK;
}

/* *classes: 1 + the largest label, where the program does not say. */
static int count_classes(const struct duet_data *d, int *classes, int *ignored) {
    int32_t largest = 0;
    *classes = d->outputs ? 0 : d->classes ? d->classes : 1;
    for (int i = 0; d->labels && i < d->count; i++) {
        if (d->labels[i] != DUET_IGNORED && (d->labels[i] < 0 || d->labels[i] == INT32_MAX ||
                                             (d->classes && d->labels[i] >= d->classes)))
            return fail(ERR_USAGE,
                        "data set: label %d of sample %d: labels are 0 to the number of "
                        "classes - 1, or -100, the ignore_index",
                        (int)d->labels[i], i);
        *ignored |= d->labels[i] == DUET_IGNORED;
        if (d->labels[i] > largest) largest = d->labels[i];
    }
    if (d->labels && !d->classes) *classes = largest + 1;
    return OK;
}

int dataset_of_program(const struct duet_data *d, struct dataset *set) {
    struct sample_shape shape;
    int classes, ignored = 0, bytes = d->type == DUET_U8;
    memset(set, 0, sizeof *set);
    CHECK(check_sources(d));
    CHECK(check_shape(d, &shape));
    CHECK(count_classes(d, &classes, &ignored));
    *set = (struct dataset){.name = DATASET_OWN,
                            .count = d->count,
                            .shape = shape,
                            .classes = classes,
                            .ignored = ignored,
                            .images = bytes ? d->samples : NULL,
                            .numbers = bytes ? NULL : d->samples,
                            .answers = d->labels ? (const void *)d->labels : d->targets,
                            .outputs = d->outputs,
                            .read = d->read,
                            .read_context = d->context,
                            .read_bytes = bytes};
    return OK;
}

int duet_dataset_create(duet_dataset **out, const struct duet_data *d) {
    CHECK_OUT(out);
    if (!d) return fail(ERR_USAGE, "data set: no data was given");
    struct duet_dataset *set = calloc(1, sizeof *set);
    if (!set) return fail(ERR_MEMORY, "data set: no host memory");
    set->rank = d->rank;
    int code = dataset_of_program(d, &set->set);
    if (code)
        free(set);
    else
        *out = set;
    return code;
}
