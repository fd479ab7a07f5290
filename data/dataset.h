/* Data sets: pictures and labels in memory, whole. */
#ifndef DATA_DATASET_H
#define DATA_DATASET_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { DATASET_CLASSES = 10 };

struct dataset {
    const char *name; /* "fashion-mnist", "mnist" or "synthetic" */
    int count, rows, cols;
    const uint8_t *images; /* (count, rows, cols) */
    const uint8_t *labels; /* (count), each below DATASET_CLASSES */
    void *owned[2];        /* what dataset_free frees */
};

/* Opens the training or test part. `name` is one of the three (ERR_USAGE else). `folder`
 * (--data-dir) is where the IDX files lie, raw or .gz; NULL: the known places, ./data/<name>,
 * ./datasets/<name> (make data) and Debian's /usr/share/datasets/<name>. "synthetic" needs no
 * files. ERR_FAILED: nowhere to be found (the text names all ways to get it), or broken.
 * Immutable once open: any thread may read. */
int dataset_open(struct dataset *set, const char *name, const char *folder, int train);

/* The same from two named files; images and labels must agree in number. */
int dataset_read(struct dataset *set, const char *name, const char *images_path,
                 const char *labels_path);

/* `count` synthetic pictures; dataset_open takes 60000 for training and 10000 for the test, both
 * with seed 0. */
int dataset_synthetic(struct dataset *set, uint64_t seed, int count, int train);

void dataset_free(struct dataset *set); /* zeroed or half open is fine */

#ifdef __cplusplus
}
#endif
#endif
