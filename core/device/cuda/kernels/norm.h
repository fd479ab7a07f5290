/* Batch normalisation: the steps of device/host/kernels/reference_norm.c, as kernels.
 *
 * Moments and sums: a channel's values, the pixels of all samples, are cut into parts of NORM_PART,
 * with a block for each. Each thread has a sum in double; these are folded in shared memory. If a
 * channel has several parts, each block writes its part to the workspace, as ranks do for
 * SyncBatchNorm, and the same kernel merges them. The order depends only on the shape. Double
 * precision costs almost nothing here, since the kernels read memory far more slowly than they add.
 *
 * With only one block per channel a GPU would be mostly idle: the moments of 64 channels with
 * 131,072 values took 313 us on an H200, as long as the convolution before them.
 *
 * Steps on C numbers have one thread per channel; forward and dx are elementwise. */
#ifndef DEVICE_CUDA_KERNELS_NORM_H
#define DEVICE_CUDA_KERNELS_NORM_H

#include "device/cuda/kernels/kernel.h"

enum { NORM_THREADS = 256, NORM_PART = 8192 };

/* One struct for all kernels of the family; each reads its own part. */
struct norm {
    const float *x, *dy, *w, *b;
    float *out, *second;
    const double *moments, *sums, *parts; /* (3,C), (2,C), (S,3,C) or (S,2,C) */
    double *made;                         /* moments or sums that a kernel writes, per part */
    const float *factors;                 /* (2,C) or (4,C) */
    int64_t *batches;
    uint32_t count;                             /* elements of x, below 2^31 */
    int samples, channels, spatial, part_count; /* parts that a kernel reads, or makes */
    double epsilon, momentum;
    struct divider by_spatial, by_channels;
    const float *residual; /* BATCH_NORM_FORWARD: added to y; NULL: none */
    int relu;
};

struct norm_shared {
    double a[NORM_THREADS], b[NORM_THREADS];
};

static inline struct norm norm_of(enum op op, const struct op_args *a) {
    struct norm n = ZEROED;
    const struct tensor *in = a->in, *out = a->out;
    n.channels = in[0].dims[op == OP_BATCH_NORM_MERGE || op == OP_BATCH_NORM_TOTAL ? 2 : 1];
    n.epsilon = a->p.norm.epsilon, n.momentum = a->p.norm.momentum;
    n.by_spatial = divider_of(1), n.by_channels = divider_of((uint32_t)n.channels);
    n.part_count = 1;
    switch (op) {
    case OP_BATCH_NORM_MOMENTS:
    case OP_BATCH_NORM_SUMS:
    case OP_BATCH_NORM_FORWARD:
    case OP_BATCH_NORM_BACKWARD_DATA:
        n.x = tensor_f32(&in[0]), n.count = (uint32_t)tensor_count(&in[0]);
        n.samples = in[0].dims[0];
        n.spatial = (int)(tensor_sample_count(&in[0]) / (size_t)n.channels);
        n.by_spatial = divider_of((uint32_t)n.spatial);
        break;
    default: break;
    }
    switch (op) {
    case OP_BATCH_NORM_MOMENTS: n.made = (double *)out[0].data; break;
    case OP_BATCH_NORM_TOTAL:
    case OP_BATCH_NORM_MERGE:
        n.parts = (const double *)in[0].data, n.part_count = in[0].dims[0];
        n.made = (double *)out[0].data;
        break;
    case OP_BATCH_NORM_OF_RUNNING: n.x = tensor_f32(&in[0]), n.made = (double *)out[0].data; break;
    case OP_BATCH_NORM_TRACK:
        n.moments = (const double *)in[0].data, n.out = tensor_f32(&out[0]);
        n.batches = (int64_t *)out[1].data;
        break;
    case OP_BATCH_NORM_FACTORS:
        n.moments = (const double *)in[0].data, n.w = tensor_f32(&in[1]), n.b = tensor_f32(&in[2]);
        n.out = tensor_f32(&out[0]);
        break;
    case OP_BATCH_NORM_FORWARD:
        n.factors = tensor_f32(&in[1]), n.out = tensor_f32(&out[0]);
        n.residual = tensor_f32(&in[2]), n.relu = a->p.norm.relu;
        break;
    case OP_BATCH_NORM_SUMS:
        n.dy = tensor_f32(&in[1]), n.moments = (const double *)in[2].data;
        n.made = (double *)out[0].data;
        break;
    case OP_BATCH_NORM_BACKWARD_WEIGHT:
        n.sums = (const double *)in[0].data, n.moments = (const double *)in[1].data;
        n.out = tensor_f32(&out[0]), n.second = tensor_f32(&out[1]);
        break;
    case OP_BATCH_NORM_BACKWARD_FACTORS:
        n.sums = (const double *)in[0].data, n.moments = (const double *)in[1].data;
        n.w = tensor_f32(&in[2]), n.out = tensor_f32(&out[0]);
        break;
    default: /* OP_BATCH_NORM_BACKWARD_DATA */
        n.dy = tensor_f32(&in[1]), n.factors = tensor_f32(&in[2]);
        n.out = tensor_f32(&out[0]);
        break;
    }
    return n;
}

/* Cuts the moments or sums of *n into parts. Several parts go to `workspace`, and *merge is the op
 * that adds them up: OP_BATCH_NORM_MERGE for moments, OP_BATCH_NORM_TOTAL for sums. With 3 doubles
 * for each NORM_PART floats, the workspace for 2^31 elements is below 13 MiB. */
static inline int norm_cut(struct norm *n, double *workspace, struct norm *merge) {
    uint32_t values = (uint32_t)n->samples * (uint32_t)n->spatial;
    if (values <= NORM_PART) return 0;
    n->part_count = (int)((values + NORM_PART - 1) / NORM_PART);
    *merge = *n;
    merge->parts = n->made = workspace;
    return 1;
}

/* ---- over a part of a channel: one block each ---- */

/* A part of a channel, where its values begin and end, and where its results go. */
struct norm_part {
    int c;
    uint32_t begin, end;
    size_t row; /* row of the part's results in `made`: (parts, 3 or 2, C) */
};

DUET_HD struct norm_part norm_part_at(const struct norm *p, uint32_t block, int results) {
    uint32_t values = (uint32_t)p->samples * (uint32_t)p->spatial, c;
    uint32_t part = divide(p->by_channels, block, &c);
    struct norm_part at = {(int)c, part * NORM_PART, (part + 1) * NORM_PART,
                           (size_t)part * (size_t)results * (size_t)p->channels + c};
    if (at.end > values) at.end = values;
    return at;
}

DUET_HD uint32_t norm_parts(const struct norm *p) {
    return (uint32_t)p->channels * (uint32_t)p->part_count;
}

/* Value i of channel c: [sample][channel][pixel]. */
DUET_HD size_t norm_at(const struct norm *p, int c, uint32_t i) {
    uint32_t pixel, sample = divide(p->by_spatial, i, &pixel);
    return ((size_t)sample * (size_t)p->channels + (size_t)c) * (size_t)p->spatial + pixel;
}

/* Adds both sums of the threads, in fold order, into a[0] and b[0]. */
DUET_BLOCK void norm_fold(struct norm_shared *shared, struct place at) {
    BLOCK_FOLD(at, half, at.threads, 1) {
        shared->a[at.thread] += shared->a[at.thread + half];
        shared->b[at.thread] += shared->b[at.thread + half];
    }
}

DUET_BLOCK void k_batch_norm_moments(const struct norm *p, struct norm_shared *shared,
                                     struct place at) {
    for (uint32_t block = at.block; block < norm_parts(p); block += at.blocks) {
        const struct norm_part part = norm_part_at(p, block, 3);
        const double count = (double)(part.end - part.begin);
        double *made = p->made + part.row;
        BLOCK_PHASE(at) {
            double sum = 0;
            for (uint32_t i = part.begin + at.thread; i < part.end; i += at.threads)
                sum += (double)p->x[norm_at(p, part.c, i)];
            shared->a[at.thread] = sum, shared->b[at.thread] = 0;
        }
        norm_fold(shared, at);
        BLOCK_PHASE(at) {
            if (at.thread == 0) made[0] = count > 0 ? shared->a[0] / count : 0;
        }
        BLOCK_PHASE(at) {
            double mean = made[0], m2 = 0;
            for (uint32_t i = part.begin + at.thread; i < part.end; i += at.threads) {
                double xmu = (double)p->x[norm_at(p, part.c, i)] - mean;
                m2 += xmu * xmu;
            }
            shared->b[at.thread] = m2;
        }
        norm_fold(shared, at);
        BLOCK_PHASE(at) {
            if (at.thread == 0) made[p->channels] = shared->b[0], made[2 * p->channels] = count;
        }
    }
}

DUET_BLOCK void k_batch_norm_sums(const struct norm *p, struct norm_shared *shared,
                                  struct place at) {
    for (uint32_t block = at.block; block < norm_parts(p); block += at.blocks) {
        const struct norm_part part = norm_part_at(p, block, 2);
        double *made = p->made + part.row;
        BLOCK_PHASE(at) {
            double mean = p->moments[part.c], sum_dy = 0, sum_dy_xmu = 0;
            for (uint32_t i = part.begin + at.thread; i < part.end; i += at.threads) {
                size_t e = norm_at(p, part.c, i);
                double d = (double)p->dy[e];
                sum_dy += d;
                sum_dy_xmu += d * ((double)p->x[e] - mean);
            }
            shared->a[at.thread] = sum_dy, shared->b[at.thread] = sum_dy_xmu;
        }
        norm_fold(shared, at);
        BLOCK_PHASE(at) {
            if (at.thread == 0) made[0] = shared->a[0], made[p->channels] = shared->b[0];
        }
    }
}

/* ---- C numbers: one thread each ---- */

#define FOR_EACH_CHANNEL(c, p, at) \
    for (int c = (int)place_first(at); c < (p)->channels; c += (int)place_stride(at))

DUET_HD double norm_invstd(const struct norm *p, int c) {
    double m2 = p->moments[p->channels + c], count = p->moments[2 * p->channels + c];
    return 1 / sqrt((count > 0 ? m2 / count : 0) + p->epsilon);
}

DUET_HD void k_batch_norm_merge(const struct norm *p, struct place at) {
    size_t row = (size_t)p->channels;
    FOR_EACH_CHANNEL(c, p, at) {
        double mean = 0, m2 = 0, count = 0;
        for (int s = 0; s < p->part_count; s++) {
            const double *part = p->parts + 3 * row * (size_t)s + c;
            if (part[2 * row] == 0) continue;
            double delta = part[0] - mean, total = count + part[2 * row];
            mean += delta * (part[2 * row] / total);
            m2 += part[row] + delta * delta * (count * part[2 * row] / total);
            count = total;
        }
        p->made[c] = mean, p->made[row + (size_t)c] = m2, p->made[2 * row + (size_t)c] = count;
    }
}

DUET_HD void k_batch_norm_total(const struct norm *p, struct place at) {
    size_t row = (size_t)p->channels;
    FOR_EACH_CHANNEL(c, p, at) {
        double sum_dy = 0, sum_dy_xmu = 0;
        for (int s = 0; s < p->part_count; s++) {
            const double *part = p->parts + 2 * row * (size_t)s + c;
            sum_dy += part[0];
            sum_dy_xmu += part[row];
        }
        p->made[c] = sum_dy, p->made[row + (size_t)c] = sum_dy_xmu;
    }
}

DUET_HD void k_batch_norm_of_running(const struct norm *p, struct place at) {
    FOR_EACH_CHANNEL(c, p, at) {
        p->made[c] = (double)p->x[c];
        p->made[p->channels + c] = (double)p->x[p->channels + c];
        p->made[2 * p->channels + c] = 1;
    }
}

/* Runs as one block: all threads read the number of batches before one thread counts this batch. */
DUET_BLOCK void k_batch_norm_track(const struct norm *p, struct norm_shared *shared,
                                   struct place at) {
    BLOCK_PHASE(at) {
        if (at.thread == 0) {
            *p->batches += 1;
            shared->a[0] = p->momentum < 0 ? 1 / (double)*p->batches : p->momentum;
        }
    }
    BLOCK_PHASE(at) {
        double factor = shared->a[0];
        for (int c = (int)at.thread; c < p->channels; c += (int)at.threads) {
            float *mean = p->out + c, *variance = mean + p->channels;
            double count = p->moments[2 * p->channels + c];
            double unbiased = p->moments[p->channels + c] / (count - 1);
            *mean = (float)(factor * p->moments[c] + (1 - factor) * (double)*mean);
            *variance = (float)(factor * unbiased + (1 - factor) * (double)*variance);
        }
    }
}

DUET_HD void k_batch_norm_factors(const struct norm *p, struct place at) {
    FOR_EACH_CHANNEL(c, p, at) {
        double scale = norm_invstd(p, c) * (double)p->w[c];
        p->out[c] = (float)scale;
        p->out[p->channels + c] = (float)((double)p->b[c] - p->moments[c] * scale);
    }
}

DUET_HD void k_batch_norm_backward_weight(const struct norm *p, struct place at) {
    FOR_EACH_CHANNEL(c, p, at) {
        p->out[c] = (float)(p->sums[p->channels + c] * norm_invstd(p, c));
        p->second[c] = (float)p->sums[c];
    }
}

DUET_HD void k_batch_norm_backward_factors(const struct norm *p, struct place at) {
    int row = p->channels;
    FOR_EACH_CHANNEL(c, p, at) {
        double invstd = norm_invstd(p, c), count = p->moments[2 * row + c];
        double share = count > 0 ? 1 / count : 0;
        double slope = p->sums[row + c] * share * invstd * invstd;
        p->out[c] = (float)p->moments[c];
        p->out[row + c] = (float)(p->sums[c] * share);
        p->out[2 * row + c] = (float)slope;
        p->out[3 * row + c] = (float)(invstd * (double)p->w[c]);
    }
}

/* ---- element by element ---- */

DUET_HD uint32_t norm_channel(const struct norm *p, uint32_t i) {
    uint32_t rest, channel;
    divide(p->by_channels, divide(p->by_spatial, i, &rest), &channel);
    return channel;
}

DUET_HD void k_batch_norm_forward(const struct norm *p, struct place at) {
    const float *scale = p->factors, *shift = scale + p->channels;
    for (size_t i = place_first(at); i < p->count; i += place_stride(at)) {
        uint32_t c = norm_channel(p, (uint32_t)i);
        float y = fmaf(p->x[i], scale[c], shift[c]);
        if (p->residual) y += p->residual[i];
        p->out[i] = p->relu && y < 0 ? 0 : y;
    }
}

DUET_HD void k_batch_norm_backward_data(const struct norm *p, struct place at) {
    const float *mean = p->factors, *mean_dy = mean + p->channels, *slope = mean_dy + p->channels,
                *scale = slope + p->channels;
    for (size_t i = place_first(at); i < p->count; i += place_stride(at)) {
        uint32_t c = norm_channel(p, (uint32_t)i);
        float centred = p->dy[i] - mean_dy[c];
        p->out[i] = fmaf(-slope[c], p->x[i] - mean[c], centred) * scale[c];
    }
}

#endif
