/* The shape of one sample: an image of C x H x W numbers, or a vector of K numbers, which is K
 * channels of one pixel each. */
#ifndef DATA_SAMPLE_SHAPE_H
#define DATA_SAMPLE_SHAPE_H

#include <stddef.h>

/* The most numbers in a sample, and the bytes of its shape as a string. */
enum { SAMPLE_NUMBERS = 1 << 24, SAMPLE_SHAPE_BYTES = 40 };

struct sample_shape {
    int channels, height, width; /* each at least 1; all 0: not given */
};

static inline size_t sample_shape_count(const struct sample_shape *s) {
    return (size_t)s->channels * (size_t)s->height * (size_t)s->width;
}

/* 1: every side is at least 1, and a sample has at most SAMPLE_NUMBERS numbers. */
int sample_shape_fits(const struct sample_shape *s);

/* Writes "3x32x32", or "10" for a vector. Returns `text`. */
const char *sample_shape_text(const struct sample_shape *s, char text[SAMPLE_SHAPE_BYTES]);

/* Reads such a string. ERR_USAGE begins with `what` if the string is not a shape or the shape does
 * not fit; *shape is then unchanged. */
int sample_shape_parse(const char *what, const char *text, struct sample_shape *shape);

#endif
