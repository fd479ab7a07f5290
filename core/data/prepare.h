/* Moves the samples of a batch from the data set into memory that a device can copy from. Two of a
 * loader's four stages are in this file:
 *
 *     disk     files -> the data set in host memory       once per run (train/shared_data.h)
 *     host     the data set -> the rows of the batch      samples are anywhere in the set
 *     pinned   these rows -> floats in staging memory     pinned, so a device can read it
 *     device   staging memory -> the device               on the copy stream (models/input.c) */
#ifndef DATA_PREPARE_H
#define DATA_PREPARE_H

#include "data/dataset.h"

/* The samples to prepare, and their memory. */
struct prepare {
    const struct dataset *set;
    const float *pixel;   /* [table][byte]: the float for that byte */
    int tables;           /* 1, or one for each channel */
    const int32_t *index; /* [n] indices of the samples in the set */
    int n;
    uint8_t *rows;     /* (n, C, H, W) bytes between the two stages; unused for numbers */
    float *pixels;     /* (n, C, H, W), staging memory */
    uint32_t *answers; /* labels or targets, 4 bytes each, staging memory */
};

/* Does both stages. Returns how long each took, in ns. Only a data set's function can fail; its
 * code is returned. */
int prepare_samples(const struct prepare *p, int64_t *host_ns, int64_t *pinned_ns);

/* Staging memory if no device provides pinned memory: loader_config.alloc and release. */
int staging_alloc(void *context, void **out, size_t bytes);
void staging_release(void *context, void *memory);

#endif
