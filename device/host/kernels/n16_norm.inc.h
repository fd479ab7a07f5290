/* Batch normalisation in N16: the four ops that read whole activations (reference_norm.c tells the
 * formulas; the ops on C numbers have no fast form). A channel of a segment is a strided list of
 * planes, one a group. Sums are kept in double: each of the 16 lanes has its own, added up in one
 * order at the end, and a lane takes its values in the order of groups and pixels whatever the
 * width of the vectors. The second pass over a channel finds it in the cache.
 *
 * Lanes past the segment's end hold junk in x, which is masked out of every sum. dx gets zeros
 * there, because the weight gradients of the layer before rely on them. */

/* A register of doubles holds half as many lanes as one of floats. All 16 lanes of a pixel are
 * taken at once: so many sums are under way that none waits for the one before. */
enum { HALF = LANES / 2, HALVES = GROUP / HALF };
typedef double dvec __attribute__((vector_size(LANES * 4)));
typedef float half __attribute__((vector_size(LANES * 2)));
typedef int32_t ihalf __attribute__((vector_size(LANES * 2)));
typedef float half_in_memory __attribute__((vector_size(LANES * 2), aligned(4), may_alias));

struct norm {
    int channels, groups;
    size_t spatial, samples; /* pixels of a plane; samples of the segment */
};

INLINE struct norm norm_of(const struct tensor *x) {
    return (struct norm){x->dims[1], x->groups, tensor_sample_count(x) / (size_t)x->dims[1],
                         (size_t)x->dims[0]};
}

INLINE size_t norm_plane(const struct norm *s, int group, int c) {
    return ((size_t)group * s->channels + (size_t)c) * s->spatial * GROUP;
}

/* The lanes of one group: all ones where they hold a sample, and `mean` there; 0 elsewhere, so that
 * a lane without a sample lies at distance 0 and adds nothing. */
struct norm_lanes {
    int32_t mask[GROUP];
    double mean[GROUP];
};

INLINE struct norm_lanes norm_lanes(const struct norm *s, int group, double mean) {
    struct norm_lanes lanes;
    for (int i = 0; i < GROUP; i++) {
        int holds = (size_t)(group * GROUP + i) < s->samples;
        lanes.mask[i] = -holds;
        lanes.mean[i] = holds ? mean : 0;
    }
    return lanes;
}

/* Half h of a pixel in double. */
INLINE dvec widen(const float *pixel, int h) {
    return __builtin_convertvector(*(const half_in_memory *)(pixel + h * HALF), dvec);
}

/* The same less the mean; 0 in lanes without a sample. */
INLINE dvec norm_xmu(const struct norm_lanes *lanes, const float *pixel, int h) {
    ihalf mask, bits;
    dvec mean;
    memcpy(&mask, lanes->mask + h * HALF, sizeof mask);
    memcpy(&bits, pixel + h * HALF, sizeof bits);
    memcpy(&mean, lanes->mean + h * HALF, sizeof mean);
    return __builtin_convertvector((half)(mask & bits), dvec) - mean;
}

/* The 16 sums of a channel as one number, in fold order. */
INLINE double sum_of_lanes(double *sums) {
    for (int apart = GROUP / 2; apart > 0; apart /= 2)
        for (int i = 0; i < apart; i++)
            sums[i] += sums[i + apart];
    return sums[0];
}

/* The sum over a channel of x - mean, or of its square. */
INLINE double norm_sum(const struct norm *s, const float *x, int c, double mean, const int square) {
    double sums[GROUP];
    dvec sum[HALVES] = {{0}};
    for (int group = 0; group < s->groups; group++) {
        const float *pixel = x + norm_plane(s, group, c);
        struct norm_lanes lanes = norm_lanes(s, group, mean);
        for (size_t i = 0; i < s->spatial; i++, pixel += GROUP)
            UNROLL for (int h = 0; h < HALVES; h++) {
                dvec xmu = norm_xmu(&lanes, pixel, h);
                sum[h] += square ? xmu * xmu : xmu;
            }
    }
    memcpy(sums, sum, sizeof sums);
    return sum_of_lanes(sums);
}

static void n16_batch_norm_moments(const struct op_args *a) {
    if (a->in[0].layout == LAYOUT_PLAIN) {
        reference_batch_norm_moments(a);
        return;
    }
    struct norm s = norm_of(&a->in[0]);
    const float *x = tensor_f32(&a->in[0]);
    double *mean = a->out[0].data, *m2 = mean + s.channels, *count = m2 + s.channels;
    for (int c = 0; c < s.channels; c++) {
        count[c] = (double)s.samples * (double)s.spatial;
        mean[c] = count[c] > 0 ? norm_sum(&s, x, c, 0, 0) / count[c] : 0;
        m2[c] = norm_sum(&s, x, c, mean[c], 1);
    }
}

static void n16_batch_norm_sums(const struct op_args *a) {
    if (a->in[0].layout == LAYOUT_PLAIN) {
        reference_batch_norm_sums(a);
        return;
    }
    struct norm s = norm_of(&a->in[0]);
    const double *mean = a->in[2].data;
    double *sum_dy = a->out[0].data, *sum_dy_xmu = sum_dy + s.channels;
    for (int c = 0; c < s.channels; c++) {
        double plain[GROUP], weighted[GROUP];
        dvec sum[HALVES] = {{0}}, sum_xmu[HALVES] = {{0}};
        for (int group = 0; group < s.groups; group++) {
            size_t at = norm_plane(&s, group, c);
            const float *x = tensor_f32(&a->in[0]) + at, *dy = tensor_f32(&a->in[1]) + at;
            struct norm_lanes lanes = norm_lanes(&s, group, mean[c]);
            for (size_t i = 0; i < s.spatial * GROUP; i += GROUP)
                UNROLL for (int h = 0; h < HALVES; h++) {
                    dvec d = widen(dy + i, h);
                    sum[h] += d;
                    sum_xmu[h] += d * norm_xmu(&lanes, x + i, h);
                }
        }
        memcpy(plain, sum, sizeof plain);
        memcpy(weighted, sum_xmu, sizeof weighted);
        sum_dy[c] = sum_of_lanes(plain);
        sum_dy_xmu[c] = sum_of_lanes(weighted);
    }
}

/* `residual` may be NULL; it and `relu` are constants where this is inlined. */
INLINE void norm_apply(const float *x, const float *residual, const int relu, float *y,
                       size_t count, float scale, float shift) {
    vec by = splat(scale), plus = splat(shift);
    for (size_t i = 0; i < count; i += LANES) {
        vec v = fused(load(x + i), by, plus);
        if (residual) v += load(residual + i);
        store(y + i, relu ? select_vec(v < 0, splat(0), v) : v);
    }
}

static void n16_batch_norm_forward(const struct op_args *a) {
    if (a->in[0].layout == LAYOUT_PLAIN) {
        reference_batch_norm_forward(a);
        return;
    }
    struct norm s = norm_of(&a->in[0]);
    const float *scale = tensor_f32(&a->in[1]), *shift = scale + s.channels;
    for (int group = 0; group < s.groups; group++)
        for (int c = 0; c < s.channels; c++) {
            size_t at = norm_plane(&s, group, c), count = s.spatial * GROUP;
            const float *x = tensor_f32(&a->in[0]) + at,
                        *residual = a->in[2].data ? tensor_f32(&a->in[2]) + at : NULL;
            float *y = tensor_f32(&a->out[0]) + at;
            if (residual)
                norm_apply(x, residual, a->p.norm.relu, y, count, scale[c], shift[c]);
            else if (a->p.norm.relu)
                norm_apply(x, NULL, 1, y, count, scale[c], shift[c]);
            else
                norm_apply(x, NULL, 0, y, count, scale[c], shift[c]);
        }
}

static void n16_batch_norm_backward_data(const struct op_args *a) {
    if (a->in[0].layout == LAYOUT_PLAIN) {
        reference_batch_norm_backward_data(a);
        return;
    }
    struct norm s = norm_of(&a->in[0]);
    const float *mean = tensor_f32(&a->in[2]), *mean_dy = mean + s.channels,
                *slope = mean_dy + s.channels, *scale = slope + s.channels;
    for (int group = 0; group < s.groups; group++)
        for (int c = 0; c < s.channels; c++)
            for (int lane = 0; lane < GROUP; lane += LANES) {
                size_t at = norm_plane(&s, group, c) + (size_t)lane;
                const float *x = tensor_f32(&a->in[0]) + at, *dy = tensor_f32(&a->in[1]) + at;
                float *dx = tensor_f32(&a->out[0]) + at;
                struct norm_lanes lanes = norm_lanes(&s, group, 0);
                ivec mask;
                memcpy(&mask, lanes.mask + lane, sizeof mask);
                vec m = splat(mean[c]), m_dy = splat(mean_dy[c]), k = splat(-slope[c]),
                    by = splat(scale[c]);
                for (size_t i = 0; i < s.spatial * GROUP; i += GROUP) {
                    vec centred = load(dy + i) - m_dy;
                    vec made = fused(k, load(x + i) - m, centred) * by;
                    store(dx + i, (vec)(mask & (ivec)made));
                }
            }
}
