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
#include "device/norm_steps.h"

enum { NORM_THREADS = 256, NORM_PART = 8192 };

/* For the kernels that read x. */
struct norm {
    const float *x, *dy;
    float *out;
    const double *moments;                      /* (3,C) */
    double *made;                               /* moments or sums that a kernel writes, per part */
    const float *factors;                       /* (2,C) or (4,C) */
    uint32_t count;                             /* elements of x, below 2^31 */
    int samples, channels, spatial, part_count; /* part_count: of each channel */
    struct divider by_spatial, by_channels;
    const float *residual; /* BATCH_NORM_FORWARD: added to y; NULL: none */
    int relu;
};

struct norm_shared {
    double a[NORM_THREADS], b[NORM_THREADS];
};

static inline struct norm norm_of(enum op op, const struct op_args *a) {
    const int forward = op == OP_BATCH_NORM_FORWARD;
    struct norm n = ZEROED;
    const struct tensor *in = a->in, *out = a->out;
    n.x = tensor_f32(&in[0]), n.count = (uint32_t)tensor_count(&in[0]);
    n.samples = in[0].dims[0], n.channels = in[0].dims[1], n.part_count = 1;
    n.spatial = (int)(tensor_sample_count(&in[0]) / (size_t)n.channels);
    n.by_spatial = divider_of((uint32_t)n.spatial);
    n.by_channels = divider_of((uint32_t)n.channels);
    n.factors = tensor_f32(&in[forward ? 1 : 2]), n.dy = tensor_f32(&in[1]);
    n.moments = (const double *)in[2].data, n.made = (double *)out[0].data;
    n.out = tensor_f32(&out[0]);
    if (forward) n.residual = tensor_f32(&in[2]), n.relu = a->p.norm.relu;
    return n;
}

/* Cuts the moments or sums of *n into parts. Several parts go to `workspace`, and *merge is the
 * step that adds them up: norm_merge for moments, norm_total for sums. With 3 doubles for each
 * NORM_PART floats, the workspace for 2^31 elements is below 13 MiB. */
static inline int norm_cut(struct norm *n, double *workspace, struct norm_steps *merge) {
    uint32_t values = (uint32_t)n->samples * (uint32_t)n->spatial;
    if (values <= NORM_PART) return 0;
    n->part_count = (int)((values + NORM_PART - 1) / NORM_PART);
    memset(merge, 0, sizeof *merge);
    merge->parts = workspace, merge->part_count = n->part_count;
    merge->made = n->made, merge->channels = (size_t)n->channels;
    n->made = workspace;
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
DUET_BLOCK void norm_fold(struct norm_shared *shared, struct thread_index at) {
    BLOCK_FOLD(at, half, at.threads, 1) {
        shared->a[at.thread] += shared->a[at.thread + half];
        shared->b[at.thread] += shared->b[at.thread + half];
    }
}

DUET_BLOCK void k_batch_norm_moments(const struct norm *p, struct norm_shared *shared,
                                     struct thread_index at) {
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
                                  struct thread_index at) {
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

#define K_STEP(name)                                                                       \
    DUET_HD void k_batch_norm_##name(const struct norm_steps *s, struct thread_index at) { \
        for (size_t c = thread_first(at); c < s->channels; c += thread_stride(at))         \
            norm_##name(s, c);                                                             \
    }
K_STEP(merge)
K_STEP(total)
K_STEP(of_running)
K_STEP(factors)
K_STEP(backward_weight)
K_STEP(backward_factors)

/* Runs as one block: one thread counts this batch before all threads read the number of batches. */
DUET_BLOCK void k_batch_norm_track(const struct norm_steps *s, struct norm_shared *shared,
                                   struct thread_index at) {
    BLOCK_PHASE(at) {
        if (at.thread == 0) {
            *s->batches += 1;
            shared->a[0] = norm_track_weight(s);
        }
    }
    BLOCK_PHASE(at) {
        for (size_t c = at.thread; c < s->channels; c += at.threads)
            norm_track(s, shared->a[0], c);
    }
}

/* ---- element by element ---- */

DUET_HD uint32_t norm_channel(const struct norm *p, uint32_t i) {
    uint32_t rest, channel;
    divide(p->by_channels, divide(p->by_spatial, i, &rest), &channel);
    return channel;
}

DUET_HD void k_batch_norm_forward(const struct norm *p, struct thread_index at) {
    const float *scale = p->factors, *shift = scale + p->channels;
    for (size_t i = thread_first(at); i < p->count; i += thread_stride(at)) {
        uint32_t c = norm_channel(p, (uint32_t)i);
        float y = fmaf(p->x[i], scale[c], shift[c]);
        if (p->residual) y += p->residual[i];
        p->out[i] = p->relu && y < 0 ? 0 : y;
    }
}

DUET_HD void k_batch_norm_backward_data(const struct norm *p, struct thread_index at) {
    const float *mean = p->factors, *mean_dy = mean + p->channels, *slope = mean_dy + p->channels,
                *scale = slope + p->channels;
    for (size_t i = thread_first(at); i < p->count; i += thread_stride(at)) {
        uint32_t c = norm_channel(p, (uint32_t)i);
        float centred = p->dy[i] - mean_dy[c];
        p->out[i] = fmaf(-slope[c], p->x[i] - mean[c], centred) * scale[c];
    }
}

#endif
