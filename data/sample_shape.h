/* The shape of one sample: a picture of C x H x W numbers, or a vector of K numbers, which is K
 * channels of one pixel each. */
#ifndef DATA_SAMPLE_SHAPE_H
#define DATA_SAMPLE_SHAPE_H

#include <stddef.h>
#include <stdio.h>

struct sample_shape {
    int channels, height, width; /* each at least 1; all 0: not given */
};

static inline size_t sample_shape_count(const struct sample_shape *s) {
    return (size_t)s->channels * (size_t)s->height * (size_t)s->width;
}

enum { SAMPLE_SHAPE_BYTES = 40 };

/* "3x32x32", or "10" of a vector: as --shape takes it. Returns `text`. */
static inline const char *sample_shape_text(const struct sample_shape *s,
                                            char text[SAMPLE_SHAPE_BYTES]) {
    if (s->height == 1 && s->width == 1)
        snprintf(text, SAMPLE_SHAPE_BYTES, "%d", s->channels);
    else
        snprintf(text, SAMPLE_SHAPE_BYTES, "%dx%dx%d", s->channels, s->height, s->width);
    return text;
}

#endif
