/* A model to take steps with and a batch of random pictures for it. Inside doctor/. */
#ifndef DOCTOR_SAMPLE_H
#define DOCTOR_SAMPLE_H

#include "doctor/check.h"
#include "models/replica.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SAMPLE_MODELS = 2, SAMPLE_MOST = 40 };
const char *sample_name(int i); /* "lenet", "convnet" */

#define SAMPLE_DEVICE_BYTES \
    ((uint64_t)64 << 20) /* what a step takes of a device's memory, and more */

struct sample {
    struct model model;
    float **values;           /* to start from */
    struct segments segments; /* two; the batch is the samples of both */
    size_t pixels_each;       /* of one picture */
    float *pixels;
    int32_t labels[SAMPLE_MOST];
};

/* Model i; values and pictures are drawn from `seed`. Zeroed and half open are fine for
 * sample_free. */
int sample_open(struct sample *s, const struct doctor *d, int i, uint64_t seed);
void sample_free(struct sample *s);

#ifdef __cplusplus
}
#endif
#endif
