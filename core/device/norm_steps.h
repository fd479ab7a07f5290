/* The steps of batch normalisation that work on the C numbers of the channels, written once for all
 * kinds of device. host/kernels/reference_norm.c says what they are for and what the rows of
 * moments, parts, sums and factors hold. Row r of channel c is at [r * channels + c]. */
#ifndef DEVICE_NORM_STEPS_H
#define DEVICE_NORM_STEPS_H

#include "device/op.h"

/* The operands of a step. */
struct norm_steps {
    const float *running, *w, *b;
    const double *moments, *sums, *parts; /* (3,C), (2,C), (S,3,C) or (S,2,C) */
    double *made;                         /* moments or sums that the step writes */
    float *out, *second;                  /* the floats that it writes */
    int64_t *batches;
    size_t channels;
    int part_count;
    double epsilon, momentum;
};

static inline struct norm_steps norm_steps_of(enum op op, const struct op_args *a) {
    const struct tensor *in = a->in, *out = a->out;
    struct norm_steps s;
    memset(&s, 0, sizeof s);
    s.channels = (size_t)in[0].dims[in[0].rank - 1];
    s.epsilon = a->p.norm.epsilon, s.momentum = a->p.norm.momentum;
    s.out = tensor_f32(&out[0]), s.made = (double *)out[0].data;
    switch (op) {
    case OP_BATCH_NORM_MERGE:
    case OP_BATCH_NORM_TOTAL:
        s.parts = (const double *)in[0].data, s.part_count = in[0].dims[0];
        break;
    case OP_BATCH_NORM_OF_RUNNING: s.running = tensor_f32(&in[0]); break;
    case OP_BATCH_NORM_TRACK:
        s.moments = (const double *)in[0].data, s.batches = (int64_t *)out[1].data;
        break;
    case OP_BATCH_NORM_FACTORS:
        s.moments = (const double *)in[0].data, s.w = tensor_f32(&in[1]), s.b = tensor_f32(&in[2]);
        break;
    default: /* OP_BATCH_NORM_BACKWARD_WEIGHT, OP_BATCH_NORM_BACKWARD_FACTORS */
        s.sums = (const double *)in[0].data, s.moments = (const double *)in[1].data;
        s.w = tensor_f32(&in[2]), s.second = tensor_f32(&out[1]);
    }
    return s;
}

EVERY_DEVICE double norm_invstd(const struct norm_steps *s, size_t c) {
    double m2 = s->moments[s->channels + c], count = s->moments[2 * s->channels + c];
    return 1 / sqrt((count > 0 ? m2 / count : 0) + s->epsilon);
}

/* Chan, Golub and LeVeque's update, part by part in the order of the parts; empty ones are left
 * out. */
EVERY_DEVICE void norm_merge(const struct norm_steps *s, size_t c) {
    const size_t row = s->channels;
    double mean = 0, m2 = 0, count = 0;
    for (size_t i = 0; i < (size_t)s->part_count; i++) {
        const double *part = s->parts + 3 * row * i + c;
        if (part[2 * row] == 0) continue;
        double delta = part[0] - mean, total = count + part[2 * row];
        mean += delta * (part[2 * row] / total);
        m2 += part[row] + delta * delta * (count * part[2 * row] / total);
        count = total;
    }
    s->made[c] = mean, s->made[row + c] = m2, s->made[2 * row + c] = count;
}

EVERY_DEVICE void norm_total(const struct norm_steps *s, size_t c) {
    const size_t row = s->channels;
    double sum_dy = 0, sum_dy_xmu = 0;
    for (size_t i = 0; i < (size_t)s->part_count; i++) {
        const double *part = s->parts + 2 * row * i + c;
        sum_dy += part[0];
        sum_dy_xmu += part[row];
    }
    s->made[c] = sum_dy, s->made[row + c] = sum_dy_xmu;
}

EVERY_DEVICE void norm_of_running(const struct norm_steps *s, size_t c) {
    s->made[c] = (double)s->running[c];
    s->made[s->channels + c] = (double)s->running[s->channels + c];
    s->made[2 * s->channels + c] = 1;
}

/* The weight of this batch in the running statistics, and their update with that weight. */
EVERY_DEVICE double norm_track_weight(const struct norm_steps *s) {
    return s->momentum < 0 ? 1 / (double)*s->batches : s->momentum;
}

EVERY_DEVICE void norm_track(const struct norm_steps *s, double weight, size_t c) {
    const size_t row = s->channels;
    double unbiased = s->moments[row + c] / (s->moments[2 * row + c] - 1);
    s->out[c] = (float)(weight * s->moments[c] + (1 - weight) * (double)s->out[c]);
    s->out[row + c] = (float)(weight * unbiased + (1 - weight) * (double)s->out[row + c]);
}

EVERY_DEVICE void norm_factors(const struct norm_steps *s, size_t c) {
    double scale = norm_invstd(s, c) * (double)s->w[c];
    s->out[c] = (float)scale;
    s->out[s->channels + c] = (float)((double)s->b[c] - s->moments[c] * scale);
}

EVERY_DEVICE void norm_backward_weight(const struct norm_steps *s, size_t c) {
    s->out[c] = (float)(s->sums[s->channels + c] * norm_invstd(s, c));
    s->second[c] = (float)s->sums[c];
}

EVERY_DEVICE void norm_backward_factors(const struct norm_steps *s, size_t c) {
    const size_t row = s->channels;
    double invstd = norm_invstd(s, c), count = s->moments[2 * row + c],
           share = count > 0 ? 1 / count : 0;
    s->out[c] = (float)s->moments[c];
    s->out[row + c] = (float)(s->sums[c] * share);
    s->out[2 * row + c] = (float)(s->sums[row + c] * share * invstd * invstd);
    s->out[3 * row + c] = (float)(invstd * (double)s->w[c]);
}

#endif
