/* Synthetic images that a network can learn, for machines without the real files: digits, by
 * default in ten classes with 28 x 28 grey pixels. With more classes they are numbers of two or
 * three digits. Each image is a pure function of (seed, set, index) and its shape, so it is the
 * same on every machine and in any order. */
#ifndef DATA_SYNTHETIC_H
#define DATA_SYNTHETIC_H

#include <stdint.h>

#include "data/sample_shape.h"

/* The default number of classes, the most classes, and the smallest side of an image. */
enum { SYNTHETIC_CLASSES = 10, SYNTHETIC_MOST = 256, SYNTHETIC_LEAST = 4 };

struct synthetic {
    uint64_t seed;
    uint32_t set;              /* 0: training images; 1: test images */
    struct sample_shape shape; /* sides of at least SYNTHETIC_LEAST */
    int classes;               /* 1 .. SYNTHETIC_MOST */
};

/* Fills images (count, C, H, W) and labels (count), each below `classes`. ERR_MEMORY. */
int synthetic_fill(const struct synthetic *what, int count, uint8_t *images, uint8_t *labels);

#endif
