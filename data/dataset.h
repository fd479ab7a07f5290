/* Data sets: all pictures and labels, in host memory. */
#ifndef DATA_DATASET_H
#define DATA_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "data/sample_shape.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A model for a data set has at least this many classes, whatever the labels are: a few pictures of
 * Fashion-MNIST need not show all of its ten. */
enum { DATASET_CLASSES = 10 };

struct dataset {
    const char *name;          /* "fashion-mnist", "mnist" or "synthetic" */
    int count;                 /* samples */
    struct sample_shape shape; /* of each */
    int classes;               /* 1 + the largest label */
    const uint8_t *images;     /* (count, C, H, W), row-major, one byte per pixel */
    const uint8_t *labels;     /* (count), each below `classes` */
    void *owned[2];            /* the memory that dataset_free frees */
    void *map;                 /* or unmaps, of map_bytes bytes: data/shared_dataset.h */
    size_t map_bytes;
};

/* Opens the training part (train = 1) or the test part (train = 0).
 *
 * `name` is one of the three names above; any other is ERR_USAGE. `folder` (--data-dir) holds the
 * IDX files, raw or .gz. NULL: the files are looked for in ./data/<name>, in ./datasets/<name>
 * (where `make data` puts them) and in Debian's /usr/share/datasets/<name>. "synthetic" needs no
 * files: it is 60000 pictures for training and 10000 for the test, of seed 0.
 *
 * ERR_FAILED: the set was not found (the message names all ways to get it), or a file is broken.
 * An open set does not change, so any thread may read it. */
int dataset_open(struct dataset *set, const char *name, const char *folder, int train);

/* Makes `count` synthetic pictures (data/synthetic.h). ERR_USAGE: fewer than 1. */
int dataset_synthetic(struct dataset *set, uint64_t seed, int count, int train);

void dataset_free(struct dataset *set); /* takes a zeroed struct and one whose open failed */

#ifdef __cplusplus
}
#endif
#endif
