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

static double norm_invstd(const struct tensor *moments, int c, double epsilon) {
    double m2 = row_of(moments, 1)[c], count = row_of(moments, 2)[c];
    return 1 / sqrt((count > 0 ? m2 / count : 0) + epsilon);
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

/* Chan, Golub and LeVeque's update, part by part in the order of the parts; empty ones are left
 * out. */
void reference_batch_norm_merge(const struct op_args *a) {
    const struct tensor *parts = &a->in[0], *moments = &a->out[0];
    for (int c = 0; c < moments->dims[1]; c++) {
        double mean = 0, m2 = 0, count = 0;
        for (int s = 0; s < parts->dims[0]; s++) {
            double part_count = row_of(parts, 3 * s + 2)[c];
            if (part_count == 0) continue;
            double delta = row_of(parts, 3 * s)[c] - mean, total = count + part_count;
            mean += delta * (part_count / total);
            m2 += row_of(parts, 3 * s + 1)[c] + delta * delta * (count * part_count / total);
            count = total;
        }
        row_of(moments, 0)[c] = mean;
        row_of(moments, 1)[c] = m2;
        row_of(moments, 2)[c] = count;
    }
}

void reference_batch_norm_of_running(const struct op_args *a) {
    const float *running = tensor_f32(&a->in[0]);
    int channels = a->in[0].dims[1];
    for (int c = 0; c < channels; c++) {
        row_of(&a->out[0], 0)[c] = running[c];
        row_of(&a->out[0], 1)[c] = running[channels + c];
        row_of(&a->out[0], 2)[c] = 1;
    }
}

void reference_batch_norm_track(const struct op_args *a) {
    const struct tensor *moments = &a->in[0];
    float *running = tensor_f32(&a->out[0]);
    int64_t *tracked = a->out[1].data;
    int channels = moments->dims[1];
    *tracked += 1;
    double factor = a->p.norm.momentum < 0 ? 1 / (double)*tracked : a->p.norm.momentum;
    for (int c = 0; c < channels; c++) {
        double unbiased = row_of(moments, 1)[c] / (row_of(moments, 2)[c] - 1);
        running[c] = (float)(factor * row_of(moments, 0)[c] + (1 - factor) * running[c]);
        running[channels + c] = (float)(factor * unbiased + (1 - factor) * running[channels + c]);
    }
}

void reference_batch_norm_factors(const struct op_args *a) {
    const float *w = tensor_f32(&a->in[1]), *b = tensor_f32(&a->in[2]);
    float *factors = tensor_f32(&a->out[0]);
    int channels = a->in[0].dims[1];
    for (int c = 0; c < channels; c++) {
        double scale = norm_invstd(&a->in[0], c, a->p.norm.epsilon) * w[c];
        factors[c] = (float)scale;
        factors[channels + c] = (float)(b[c] - row_of(&a->in[0], 0)[c] * scale);
    }
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

void reference_batch_norm_total(const struct op_args *a) {
    const struct tensor *parts = &a->in[0], *total = &a->out[0];
    for (int c = 0; c < total->dims[1]; c++)
        for (int row = 0; row < 2; row++) {
            double sum = 0;
            for (int s = 0; s < parts->dims[0]; s++)
                sum += row_of(parts, 2 * s + row)[c];
            row_of(total, row)[c] = sum;
        }
}

void reference_batch_norm_backward_weight(const struct op_args *a) {
    for (int c = 0; c < a->in[0].dims[1]; c++) {
        double invstd = norm_invstd(&a->in[1], c, a->p.norm.epsilon);
        tensor_f32(&a->out[0])[c] = (float)(row_of(&a->in[0], 1)[c] * invstd);
        tensor_f32(&a->out[1])[c] = (float)row_of(&a->in[0], 0)[c];
    }
}

void reference_batch_norm_backward_factors(const struct op_args *a) {
    const struct tensor *sums = &a->in[0], *moments = &a->in[1];
    float *factors = tensor_f32(&a->out[0]);
    int channels = sums->dims[1];
    for (int c = 0; c < channels; c++) {
        double invstd = norm_invstd(moments, c, a->p.norm.epsilon);
        double count = row_of(moments, 2)[c], share = count > 0 ? 1 / count : 0;
        factors[c] = (float)row_of(moments, 0)[c];
        factors[channels + c] = (float)(row_of(sums, 0)[c] * share);
        factors[2 * channels + c] = (float)(row_of(sums, 1)[c] * share * invstd * invstd);
        factors[3 * channels + c] = (float)(invstd * tensor_f32(&a->in[2])[c]);
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
