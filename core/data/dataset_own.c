/* The data set of a program in the form that the command uses: arrays, which ranks can share. Those
 * of the program are taken as they are there. If the set is a function, the process that opens it
 * calls it once for each sample, from the first to the last. */
#include "data/dataset_own.h"

#include <stdlib.h>

#include "base/error.h"

/* A function's labels are known only now. */
static int count_classes(struct dataset *set) {
    const int32_t *label = set->answers;
    const int most = set->classes <= 1 ? INT32_MAX : set->classes;
    int32_t largest = 0;
    for (int i = 0; i < set->count; i++) {
        if (label[i] == LABEL_IGNORED)
            set->ignored = 1;
        else if (label[i] < 0 || label[i] >= most)
            return fail(ERR_USAGE,
                        "data set %s: label %d of sample %d: labels are 0 to the number of classes "
                        "- 1, or -100, the ignore_index",
                        DATASET_OWN, (int)label[i], i);
        if (label[i] > largest) largest = label[i];
    }
    set->classes = most == INT32_MAX ? largest + 1 : most;
    return OK;
}

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
    return set->outputs ? OK : count_classes(set);
}

int dataset_own(struct dataset *set, const struct dataset *from) {
    *set = *from;
    if (!from->read) return OK;
    int code = read_all(set);
    if (code) dataset_free(set);
    return code;
}
