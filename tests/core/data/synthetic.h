/* Synthetic 1x28x28 images, `count` of them in each part. */
#ifndef TESTS_CORE_DATA_SYNTHETIC_H
#define TESTS_CORE_DATA_SYNTHETIC_H

#include "data/dataset.h"

static inline int synthetic_set(struct dataset *set, int count, int train) {
    const int test_share = 6; /* the test set has one sixth as many samples as the training set */
    const struct dataset_config config = {.name = "synthetic",
                                          .samples = train ? count : test_share * count};
    return dataset_make(set, &config, train);
}

#endif
