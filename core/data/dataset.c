/* What all data sets have in common: the classes among the labels, the outputs of a model, and the
 * end. data/dataset_list.c opens them. */
#include "data/dataset.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"

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

int dataset_model_outputs(const struct dataset *set) {
    if (set->outputs) return set->outputs;
    return set->classes > DATASET_CLASSES || !strcmp(set->name, DATASET_OWN) ? set->classes
                                                                             : DATASET_CLASSES;
}

void dataset_free(struct dataset *set) {
    free(set->owned[0]);
    free(set->owned[1]);
    if (set->map) munmap(set->map, set->map_bytes);
    memset(set, 0, sizeof *set);
}
