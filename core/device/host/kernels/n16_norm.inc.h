/* Batch normalisation in N16: the four ops that read whole activations. reference_norm.c has the
 * formulas; the ops on C numbers have no fast form. A channel of a segment is a strided list of
 * planes, one per group. Each op goes through them once.
 *
 * Sums are kept in double. Each of the 16 lanes has two, for the even and the odd pixels of its
 * planes, and adds in the order of groups and pixels, whatever the width of the vectors. So no
 * addition waits for the previous one. At the end the sums are added in one order.
 *
 * Lanes past the segment's end hold junk in x, which no sum includes. dx gets zeros there, because
 * the previous layer's weight gradients rely on them. */

/* A register of doubles holds half as many lanes as a register of floats. */
enum { HALVES = LANES > 2 ? 2 : 1, HALF = LANES / HALVES, TURNS = 2 };
typedef double dvec __attribute__((vector_size(VEC_LANES * 4)));
typedef float half __attribute__((vector_size(VEC_LANES * 2)));
typedef int32_t ihalf __attribute__((vector_size(VEC_LANES * 2)));
typedef float half_in_memory __attribute__((vector_size(VEC_LANES * 2), aligned(4), may_alias));

INLINE half load_half(const float *p) {
    if (LANES == 1) return (half){*p};
    return *(const half_in_memory *)p;
}

/* The same numbers in double. gcc needs four instructions for this conversion without the
 * intrinsic. */
INLINE dvec widen(half x) {
#if LANES == 16
    return (dvec)_mm512_cvtps_pd((__m256)x);
#elif LANES == 8
    return (dvec)_mm256_cvtps_pd((__m128)x);
#else
    return __builtin_convertvector(x, dvec);
#endif
}

/* a * b + c, rounded once. */
INLINE dvec fused_double(dvec a, dvec b, dvec c) {
#if LANES == 16
    return (dvec)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif LANES == 8
    return (dvec)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#elif WIDE > 4
    return (dvec)_mm_fmadd_pd((__m128d)a, (__m128d)b, (__m128d)c);
#else
    UNROLL for (int i = 0; i < HALF; i++) c[i] = __builtin_fma(a[i], b[i], c[i]);
    return c;
#endif
}

/* a + b, as a * 1 + b, which has the same bits. Many processors convert in the units that add and
 * multiply in others. These sums run next to conversions, so the other units compute them. */
INLINE dvec add_double(dvec a, dvec b) {
#if WIDE > 4
    dvec one = 1.0 - (dvec){0};
    KEEP_IN_REGISTER(one); /* otherwise the compiler would optimise it away */
    return fused_double(a, one, b);
#else
    return a + b;
#endif
}

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

/* All ones in the lanes of a group that hold a sample, 0 elsewhere. */
struct norm_lanes {
    int32_t mask[MOST_LANES];
};

INLINE struct norm_lanes norm_lanes(const struct norm *s, int group) {
    struct norm_lanes lanes = {{0}};
    for (int i = 0; i < GROUP; i++)
        lanes.mask[i] = -((size_t)(group * GROUP + i) < s->samples);
    return lanes;
}

/* Partial sums of LANES lanes: of dy, and of dy times x's distance from a centre. */
struct norm_sums {
    dvec plain[TURNS][HALVES], weighted[TURNS][HALVES];
};

/* Adds a pixel. If dy is NULL, x's distance from the centre takes its place. Lanes outside `mask`
 * count as at the centre; a NULL mask means that all lanes hold a sample. */
INLINE void norm_add_pixel(struct norm_sums *sums, int turn, const float *x, const float *dy,
                           const int32_t *mask, double centre) {
    UNROLL for (int h = 0; h < HALVES; h++) {
        half value = load_half(x + h * HALF);
        if (mask) {
            ihalf holds, rest = (ihalf)((float)centre - (half){0});
            memcpy(&holds, mask + h * HALF, sizeof holds);
            value = (half)((holds & (ihalf)value) | (~holds & rest));
        }
        dvec xmu = widen(value) - centre;
        dvec d = dy ? widen(load_half(dy + h * HALF)) : xmu;
        sums->plain[turn][h] = add_double(d, sums->plain[turn][h]);
        sums->weighted[turn][h] = fused_double(d, xmu, sums->weighted[turn][h]);
    }
}

INLINE void norm_add_plane(struct norm_sums *sums, const float *x, const float *dy, size_t pixels,
                           const int32_t *mask, double centre) {
    size_t i = 0;
    for (; i + TURNS <= pixels; i += TURNS)
        UNROLL for (int turn = 0; turn < TURNS; turn++) {
            size_t at = (i + (size_t)turn) * GROUP;
            norm_add_pixel(sums, turn, x + at, dy ? dy + at : NULL, mask, centre);
        }
    for (; i < pixels; i++)
        norm_add_pixel(sums, 0, x + i * GROUP, dy ? dy + i * GROUP : NULL, mask, centre);
}

/* Adds the 16 sums of a channel in fold order. */
INLINE double sum_of_lanes(double *sums) {
    for (int apart = GROUP / 2; apart > 0; apart /= 2)
        for (int i = 0; i < apart; i++)
            sums[i] += sums[i + apart];
    return sums[0];
}

/* Computes both sums over channel c; `dy` may be NULL. */
INLINE void norm_channel(const struct norm *s, const float *x, const float *dy, int c,
                         double centre, double *plain, double *weighted) {
    double lanes[2][GROUP];
    for (int lane = 0; lane < GROUP; lane += LANES) {
        struct norm_sums sums = {0};
        for (int group = 0; group < s->groups; group++) {
            size_t at = norm_plane(s, group, c) + (size_t)lane;
            const float *dy_at = dy ? dy + at : NULL;
            if ((size_t)(group + 1) * GROUP <= s->samples) {
                norm_add_plane(&sums, x + at, dy_at, s->spatial, NULL, centre);
            } else {
                struct norm_lanes holds = norm_lanes(s, group);
                norm_add_plane(&sums, x + at, dy_at, s->spatial, holds.mask + lane, centre);
            }
        }
        UNROLL for (int h = 0; h < HALVES; h++) {
            dvec p = sums.plain[0][h] + sums.plain[1][h],
                 w = sums.weighted[0][h] + sums.weighted[1][h];
            memcpy(lanes[0] + lane + h * HALF, &p, HALF * sizeof(double));
            memcpy(lanes[1] + lane + h * HALF, &w, HALF * sizeof(double));
        }
    }
    *plain = sum_of_lanes(lanes[0]);
    *weighted = sum_of_lanes(lanes[1]);
}

/* Works in one pass: the distances from the channel's first value give both the mean and the
 * squared distances from the mean. That value is close to the others, so few digits cancel, however
 * far from 0 they all are. */
static void n16_batch_norm_moments(const struct op_args *a) {
    struct norm s = norm_of(&a->in[0]);
    const float *x = tensor_f32(&a->in[0]);
    double *mean = a->out[0].data, *m2 = mean + s.channels, *count = m2 + s.channels;
    for (int c = 0; c < s.channels; c++) {
        double sum = 0, squares = 0, first = 0;
        count[c] = (double)s.samples * (double)s.spatial;
        if (count[c] > 0) {
            first = (double)x[norm_plane(&s, 0, c)];
            if (first - first != 0) first = 0; /* infinite or NaN: do not centre */
            norm_channel(&s, x, NULL, c, first, &sum, &squares);
            squares -= sum * (sum / count[c]);
            sum = first + sum / count[c];
        }
        mean[c] = sum;
        m2[c] = squares < 0 ? 0 : squares;
    }
}

static void n16_batch_norm_sums(const struct op_args *a) {
    struct norm s = norm_of(&a->in[0]);
    const double *mean = a->in[2].data;
    double *sum_dy = a->out[0].data, *sum_dy_xmu = sum_dy + s.channels;
    for (int c = 0; c < s.channels; c++)
        norm_channel(&s, tensor_f32(&a->in[0]), tensor_f32(&a->in[1]), c, mean[c], &sum_dy[c],
                     &sum_dy_xmu[c]);
}

/* `residual` may be NULL; it and `relu` are constants after inlining. */
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
    struct norm s = norm_of(&a->in[0]);
    const float *mean = tensor_f32(&a->in[2]), *mean_dy = mean + s.channels,
                *slope = mean_dy + s.channels, *scale = slope + s.channels;
    for (int group = 0; group < s.groups; group++)
        for (int c = 0; c < s.channels; c++)
            for (int lane = 0; lane < GROUP; lane += LANES) {
                size_t at = norm_plane(&s, group, c) + (size_t)lane;
                const float *x = tensor_f32(&a->in[0]) + at, *dy = tensor_f32(&a->in[1]) + at;
                float *dx = tensor_f32(&a->out[0]) + at;
                struct norm_lanes lanes = norm_lanes(&s, group);
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
