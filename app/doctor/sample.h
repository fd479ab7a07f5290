/* A model with initial values and a batch of random pictures for it: what check_step
 * takes a training step with. Inside doctor/. */
#ifndef DOCTOR_SAMPLE_H
#define DOCTOR_SAMPLE_H

#include "doctor/check.h"
#include "models/replica.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SAMPLE_MODELS = 3, SAMPLE_MOST = 40 };
const char *sample_name(int i); /* "lenet", "convnet", "complex" */

/* More than a step takes of a device's memory. */
#define SAMPLE_DEVICE_BYTES ((uint64_t)64 << 20)

struct sample {
    struct model model;
    float **values;           /* initial values, by parameter in registration order */
    struct segments segments; /* two segments, which together are the batch */
    size_t pixels_each;       /* pixels of one picture: C * H * W */
    float *pixels;            /* [segments.n][C][H][W] */
    int32_t labels[SAMPLE_MOST];
};

/* Opens model i, with values and pictures drawn from `seed`. sample_free takes a struct that is
 * zeroed or half open. */
int sample_open(struct sample *s, const struct doctor *d, int i, uint64_t seed);
void sample_free(struct sample *s);

#ifdef __cplusplus
}
#endif
#endif
