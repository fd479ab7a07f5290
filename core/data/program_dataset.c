/* Data sets of programs: their own arrays, or a function. data/dataset_list.c opens those that Duet
 * knows by name. */
#include "data/program_dataset.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/dataset_kinds.h"

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

/* If a sample has fewer than three dimensions, the others are 1. */
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
        return fail(ERR_USAGE,
                    "data set: labels or targets with a function: the function makes them too");
    if (!d->read && !d->labels == !d->targets)
        return fail(ERR_USAGE, "data set: %s: give labels or targets",
                    d->labels ? "both labels and targets" : "neither labels nor targets");
    if (d->outputs < 0 || d->outputs > SAMPLE_NUMBERS || (d->targets && !d->outputs) ||
        (d->labels && d->outputs))
        return fail(ERR_USAGE,
                    "data set: %d outputs: give the numbers of a target, or 0 for labels",
                    d->outputs);
    if (d->classes < 0 || (d->classes && d->outputs))
        return fail(ERR_USAGE, "data set: %d classes: give at least 1 for labels, or 0 for targets",
                    d->classes);
    return OK;
}

int dataset_of_program(const struct duet_data *d, struct dataset *set) {
    struct sample_shape shape;
    int bytes = d->type == DUET_U8;
    memset(set, 0, sizeof *set);
    CHECK(check_sources(d));
    CHECK(check_shape(d, &shape));
    *set = (struct dataset){.name = DATASET_OWN,
                            .count = d->count,
                            .shape = shape,
                            .classes = d->outputs   ? 0
                                       : d->classes ? d->classes
                                                    : 1,
                            .images = bytes ? d->samples : NULL,
                            .numbers = bytes ? NULL : d->samples,
                            .answers = d->labels ? (const void *)d->labels : d->targets,
                            .outputs = d->outputs,
                            .read = d->read,
                            .read_context = d->context,
                            .read_bytes = bytes};
    return d->labels ? dataset_count_classes(set, d->classes) : OK;
}

int duet_dataset_create(duet_dataset **out, const struct duet_data *d) {
    CHECK_OUT(out);
    if (!d) return fail(ERR_USAGE, "data set: no data was given");
    struct duet_dataset *set = calloc(1, sizeof *set);
    if (!set) return fail(ERR_MEMORY, "data set: out of host memory");
    set->rank = d->rank;
    int code = dataset_of_program(d, &set->set);
    if (code)
        free(set);
    else
        *out = set;
    return code;
}

/* ---- for the command: arrays, which ranks can share. A function is called once for each sample,
 * from the first to the last. ---- */

static int read_all(struct dataset *set) {
    const size_t count = (size_t)set->count, width = (size_t)dataset_answer_count(set),
                 bytes = sample_shape_count(&set->shape) * (set->read_bytes ? 1 : sizeof(float));
    char *samples = set->owned[0] = malloc(count * bytes + 1);
    int32_t *answers = set->owned[1] = malloc(count * width * sizeof *answers + 1);
    if (!samples || !answers)
        return fail(ERR_MEMORY, "data set %s: no memory for its %zu samples", DATASET_OWN, count);
    for (size_t i = 0; i < count; i++) {
        int code = set->read(set->read_context, (int)i, samples + i * bytes, answers + i * width);
        if (code)
            return fail(ERR_FAILED, "data set %s: its function returned %d for sample %zu",
                        DATASET_OWN, code, i);
    }
    set->images = set->read_bytes ? (uint8_t *)samples : NULL;
    set->numbers = set->read_bytes ? NULL : (float *)(void *)samples;
    set->answers = answers;
    set->read = NULL;
    /* its labels are known only now */
    return set->outputs ? OK : dataset_count_classes(set, set->classes <= 1 ? 0 : set->classes);
}

int dataset_own(struct dataset *set, const struct dataset *from) {
    *set = *from;
    if (!from->read) return OK;
    int code = read_all(set);
    if (code) dataset_free(set);
    return code;
}
