/* LayerNorm and its gradient on row-major tensors. The formulas are those of
 * reference_layer_norm.c, with a row's sum in PARTS parts; part p has the elements p, p + PARTS,
 * ... The parts are independent, so a compiler vectorises them. At the end they are added in
 * halves. The order depends only on the length, so the bits are the same on every instruction set.
 * A row whose neighbours share weights (GroupNorm) is computed one weight after another. */
enum { NORM_PARTS = 16 };

INLINE double norm_total(double parts[NORM_PARTS]) {
    for (int half = NORM_PARTS / 2; half; half /= 2)
        for (int p = 0; p < half; p++)
            parts[p] += parts[p + half];
    return parts[0];
}

struct norm_moments {
    double mean, scale;
};

INLINE struct norm_moments norm_moments_of(const float *x, size_t length, double epsilon) {
    double sums[NORM_PARTS] = {0}, squares[NORM_PARTS] = {0};
    size_t i = 0;
    for (; i + NORM_PARTS <= length; i += NORM_PARTS)
        UNROLL for (size_t p = 0; p < NORM_PARTS; p++) sums[p] += (double)x[i + p];
    for (size_t p = 0; i + p < length; p++)
        sums[p] += (double)x[i + p];
    double mean = norm_total(sums) / (double)length;
    for (i = 0; i + NORM_PARTS <= length; i += NORM_PARTS)
        UNROLL for (size_t p = 0; p < NORM_PARTS; p++) {
            double d = (double)x[i + p] - mean;
            squares[p] += d * d;
        }
    for (size_t p = 0; i + p < length; p++)
        squares[p] += ((double)x[i + p] - mean) * ((double)x[i + p] - mean);
    return (struct norm_moments){
        mean, 1 / __builtin_sqrt(norm_total(squares) / (double)length + epsilon)};
}

/* y = (x - mean) scale w + b for `count` neighbours, which share one weight if w_step is 0. */
INLINE void norm_write(float *y, const float *x, size_t count, struct norm_moments m,
                       const float *w, const float *b, size_t w_step) {
    for (size_t i = 0; i < count; i++)
        y[i] = (float)(((double)x[i] - m.mean) * m.scale * (double)w[i * w_step] +
                       (double)b[i * w_step]);
}

static void fast_layer_norm_forward(const struct op_args *a) {
    static const float one = 1, zero = 0;
    size_t length = (size_t)a->in[0].dims[1], inner = (size_t)a->p.layer_norm.inner,
           groups = (size_t)a->p.layer_norm.groups, weights = length / inner;
    const float *w = tensor_f32(&a->in[1]), *b = tensor_f32(&a->in[2]);
    struct norm_moments *moments = a->out[1].data;
    for (size_t r = 0; r < (size_t)a->in[0].dims[0]; r++) {
        const float *x = tensor_f32(&a->in[0]) + r * length;
        float *y = tensor_f32(&a->out[0]) + r * length;
        struct norm_moments m = moments[r] = norm_moments_of(x, length, a->p.layer_norm.epsilon);
        size_t first = r % groups * weights;
        if (inner == 1 && w && b)
            norm_write(y, x, length, m, w + first, b + first, 1);
        else if (!w && !b)
            norm_write(y, x, length, m, &one, &zero, 0);
        else
            for (size_t k = 0; k < weights; k++)
                norm_write(y + k * inner, x + k * inner, inner, m, w ? w + first + k : &one,
                           b ? b + first + k : &zero, 0);
    }
}

/* dx needs the sums of g and of g xhat, g = w dy. */
static void fast_layer_norm_backward_data(const struct op_args *a) {
    static const float one = 1;
    size_t length = (size_t)a->in[0].dims[1], groups = (size_t)a->p.layer_norm.groups,
           weights = length / (size_t)a->p.layer_norm.inner;
    const float *all = tensor_f32(&a->in[2]);
    if (a->p.layer_norm.inner > 1 && all) {
        reference_layer_norm_backward_data(a);
        return;
    }
    for (size_t r = 0; r < (size_t)a->in[0].dims[0]; r++) {
        const float *x = tensor_f32(&a->in[0]) + r * length,
                    *dy = tensor_f32(&a->in[1]) + r * length,
                    *w = all ? all + r % groups * weights : &one;
        float *dx = tensor_f32(&a->out[0]) + r * length;
        size_t step = all ? 1 : 0, i = 0;
        struct norm_moments m = norm_moments_of(x, length, a->p.layer_norm.epsilon);
        double sums[NORM_PARTS] = {0}, products[NORM_PARTS] = {0};
        for (; i + NORM_PARTS <= length; i += NORM_PARTS)
            UNROLL for (size_t p = 0; p < NORM_PARTS; p++) {
                double g = (double)dy[i + p] * (double)w[(i + p) * step];
                sums[p] += g;
                products[p] += g * (((double)x[i + p] - m.mean) * m.scale);
            }
        for (size_t p = 0; i + p < length; p++) {
            double g = (double)dy[i + p] * (double)w[(i + p) * step];
            sums[p] += g;
            products[p] += g * (((double)x[i + p] - m.mean) * m.scale);
        }
        double sum = norm_total(sums) / (double)length,
               product = norm_total(products) / (double)length;
        for (i = 0; i < length; i++)
            dx[i] = (float)(((double)dy[i] * (double)w[i * step] - sum -
                             ((double)x[i] - m.mean) * m.scale * product) *
                            m.scale);
    }
}
