/* Batch normalisation in steps. Each step is its own op, because BatchNorm and SyncBatchNorm differ
 * between the steps:
 *
 *     forward    moments of each segment -> [BatchNorm: each its own | SyncBatchNorm: merged] ->
 *                factors -> y = x * scale + shift
 *     backward   sums of each segment -> [each its own | added up] -> factors -> dx
 *
 * Moments are F64 (3, C): mean, M2 (the sum of the squared distances from the mean) and count, the
 * values of the channel. Count is the same for every channel; it is in the tensor because the
 * merging devices do not know how many samples this device has. Sums are kept in double.
 *
 * With xmu = x - mean, var = M2 / count and invstd = 1 / sqrt(var + epsilon):
 *
 *     y  = xmu * invstd * w + b, in one pass with a residual sum and a relu, if any
 *     db = sum dy                   dw = invstd * sum(dy xmu)
 *     dx = (dy - sum(dy) / count - xmu * invstd^2 * sum(dy xmu) / count) * invstd * w */
#include <math.h>

#include "device/host/kernels/reference.h"
#include "device/norm_steps.h"

static double *row_of(const struct tensor *t, int row) { /* of an F64 (.., C) tensor */
    return (double *)t->data + (size_t)row * t->dims[t->rank - 1];
}

/* Pixels of one channel of one sample. */
static size_t spatial_of(const struct tensor *x) {
    return tensor_sample_count(x) / (size_t)x->dims[1];
}

static float *plane_of(const struct tensor *x, int n, int c) {
    return tensor_f32(x) + ((size_t)n * x->dims[1] + (size_t)c) * spatial_of(x);
}

void reference_batch_norm_moments(const struct op_args *a) {
    const struct tensor *x = &a->in[0], *moments = &a->out[0];
    size_t spatial = spatial_of(x);
    double count = (double)x->dims[0] * (double)spatial;
    for (int c = 0; c < x->dims[1]; c++) {
        double sum = 0, m2 = 0;
        for (int n = 0; n < x->dims[0]; n++)
            for (size_t i = 0; i < spatial; i++)
                sum += plane_of(x, n, c)[i];
        double mean = count > 0 ? sum / count : 0;
        for (int n = 0; n < x->dims[0]; n++)
            for (size_t i = 0; i < spatial; i++) {
                double xmu = plane_of(x, n, c)[i] - mean;
                m2 += xmu * xmu;
            }
        row_of(moments, 0)[c] = mean;
        row_of(moments, 1)[c] = m2;
        row_of(moments, 2)[c] = count;
    }
}

/* The steps on the channels' numbers (device/norm_steps.h), channel by channel. */
#define STEP(NAME, name)                                              \
    void reference_batch_norm_##name(const struct op_args *a) {       \
        struct norm_steps s = norm_steps_of(OP_BATCH_NORM_##NAME, a); \
        for (size_t c = 0; c < s.channels; c++)                       \
            norm_##name(&s, c);                                       \
    }
STEP(MERGE, merge)
STEP(TOTAL, total)
STEP(OF_RUNNING, of_running)
STEP(FACTORS, factors)
STEP(BACKWARD_WEIGHT, backward_weight)
STEP(BACKWARD_FACTORS, backward_factors)

void reference_batch_norm_track(const struct op_args *a) {
    struct norm_steps s = norm_steps_of(OP_BATCH_NORM_TRACK, a);
    *s.batches += 1;
    for (size_t c = 0; c < s.channels; c++)
        norm_track(&s, norm_track_weight(&s), c);
}

void reference_batch_norm_forward(const struct op_args *a) {
    const struct tensor *x = &a->in[0];
    const float *scale = tensor_f32(&a->in[1]), *shift = scale + x->dims[1];
    for (int n = 0; n < x->dims[0]; n++)
        for (int c = 0; c < x->dims[1]; c++)
            for (size_t i = 0; i < spatial_of(x); i++) {
                float y = fmaf(plane_of(x, n, c)[i], scale[c], shift[c]);
                if (a->in[2].data) y += plane_of(&a->in[2], n, c)[i];
                plane_of(&a->out[0], n, c)[i] = a->p.norm.relu && y < 0 ? 0 : y;
            }
}

void reference_batch_norm_sums(const struct op_args *a) {
    const struct tensor *x = &a->in[0], *dy = &a->in[1];
    for (int c = 0; c < x->dims[1]; c++) {
        double mean = row_of(&a->in[2], 0)[c], sum_dy = 0, sum_dy_xmu = 0;
        for (int n = 0; n < x->dims[0]; n++)
            for (size_t i = 0; i < spatial_of(x); i++) {
                double d = plane_of(dy, n, c)[i];
                sum_dy += d;
                sum_dy_xmu += d * (plane_of(x, n, c)[i] - mean);
            }
        row_of(&a->out[0], 0)[c] = sum_dy;
        row_of(&a->out[0], 1)[c] = sum_dy_xmu;
    }
}

void reference_batch_norm_backward_data(const struct op_args *a) {
    const struct tensor *x = &a->in[0], *dy = &a->in[1];
    int channels = x->dims[1];
    const float *mean = tensor_f32(&a->in[2]), *mean_dy = mean + channels,
                *slope = mean_dy + channels, *scale = slope + channels;
    for (int n = 0; n < x->dims[0]; n++)
        for (int c = 0; c < channels; c++)
            for (size_t i = 0; i < spatial_of(x); i++) {
                float xmu = plane_of(x, n, c)[i] - mean[c];
                float centred = plane_of(dy, n, c)[i] - mean_dy[c];
                plane_of(&a->out[0], n, c)[i] = fmaf(-slope[c], xmu, centred) * scale[c];
            }
}
