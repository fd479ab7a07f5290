/* LayerNorm and GroupNorm normalise each row separately, in double, and round to float once.
 *
 *     xhat = (x - mean) / sqrt(var + epsilon)      y = w xhat + b
 *     dx   = (g - mean(g) - xhat mean(g xhat)) / sqrt(var + epsilon),   g = w dy
 *     dw   = sum of dy xhat                        db = sum of dy
 *
 * A row's mean and variance add in the order of its elements, and the sums over rows in the order
 * of the rows. */
#include "device/host/kernels/reference.h"

#include <math.h>

/* The mean of a row, and 1 / sqrt(var + epsilon). */
struct moments {
    double mean, scale;
};

static struct moments moments_of(const float *x, size_t length, double epsilon) {
    struct moments m = {0, 0};
    double squares = 0;
    for (size_t i = 0; i < length; i++)
        m.mean += (double)x[i];
    m.mean /= (double)length;
    for (size_t i = 0; i < length; i++)
        squares += ((double)x[i] - m.mean) * ((double)x[i] - m.mean);
    m.scale = 1 / sqrt(squares / (double)length + epsilon);
    return m;
}

/* The weights of row r: element i has number i / inner; NULL: there are none. */
static const float *weights_of(const struct op_args *p, const struct tensor *w, size_t r) {
    size_t groups = (size_t)p->p.layer_norm.groups,
           weights = (size_t)p->in[0].dims[1] / (size_t)p->p.layer_norm.inner;
    return w->data ? tensor_f32(w) + r % groups * weights : NULL;
}

void reference_layer_norm_forward(const struct op_args *p) {
    size_t length = (size_t)p->in[0].dims[1], inner = (size_t)p->p.layer_norm.inner;
    struct moments *moments = p->out[1].data;
    for (size_t r = 0; r < (size_t)p->in[0].dims[0]; r++) {
        const float *x = tensor_f32(&p->in[0]) + r * length, *w = weights_of(p, &p->in[1], r),
                    *b = weights_of(p, &p->in[2], r);
        float *y = tensor_f32(&p->out[0]) + r * length;
        struct moments m = moments[r] = moments_of(x, length, p->p.layer_norm.epsilon);
        for (size_t i = 0; i < length; i++)
            y[i] = (float)(((double)x[i] - m.mean) * m.scale * (w ? (double)w[i / inner] : 1) +
                           (b ? (double)b[i / inner] : 0));
    }
}

void reference_layer_norm_backward_data(const struct op_args *p) {
    size_t length = (size_t)p->in[0].dims[1], inner = (size_t)p->p.layer_norm.inner;
    for (size_t r = 0; r < (size_t)p->in[0].dims[0]; r++) {
        const float *x = tensor_f32(&p->in[0]) + r * length,
                    *dy = tensor_f32(&p->in[1]) + r * length, *w = weights_of(p, &p->in[2], r);
        float *dx = tensor_f32(&p->out[0]) + r * length;
        struct moments m = moments_of(x, length, p->p.layer_norm.epsilon);
        double sum = 0, product = 0;
        for (size_t i = 0; i < length; i++) {
            double g = (double)dy[i] * (w ? (double)w[i / inner] : 1);
            sum += g;
            product += g * (((double)x[i] - m.mean) * m.scale);
        }
        sum /= (double)length, product /= (double)length;
        for (size_t i = 0; i < length; i++) {
            double g = (double)dy[i] * (w ? (double)w[i / inner] : 1);
            dx[i] = (float)((g - sum - ((double)x[i] - m.mean) * m.scale * product) * m.scale);
        }
    }
}

/* Neighbouring weights are done together, ABREAST at a time, so that x is read in the order of
 * memory. */
enum { ABREAST = 64 };

static inline __attribute__((always_inline)) void some_weights(const struct op_args *p,
                                                               const size_t inner, size_t group,
                                                               size_t first, size_t count) {
    size_t rows = (size_t)p->in[0].dims[0], length = (size_t)p->in[0].dims[1],
           groups = (size_t)p->p.layer_norm.groups, at = group * (length / inner) + first;
    const struct moments *moments = p->in[2].data;
    double dw[ABREAST] = {0}, db[ABREAST] = {0};
    for (size_t r = group; r < rows; r += groups) {
        const float *x = tensor_f32(&p->in[0]) + r * length + first * inner,
                    *dy = tensor_f32(&p->in[1]) + r * length + first * inner;
        struct moments m = moments[r];
        for (size_t k = 0; k < count; k++)
            for (size_t i = k * inner; i < (k + 1) * inner; i++) {
                dw[k] += (double)dy[i] * (((double)x[i] - m.mean) * m.scale);
                db[k] += (double)dy[i];
            }
    }
    for (size_t k = 0; k < count; k++) {
        tensor_f32(&p->out[0])[at + k] = (float)dw[k];
        tensor_f32(&p->out[1])[at + k] = (float)db[k];
    }
}

void reference_layer_norm_backward_weight(const struct op_args *p) {
    size_t inner = (size_t)p->p.layer_norm.inner, weights = (size_t)p->in[0].dims[1] / inner;
    for (size_t group = 0; group < (size_t)p->p.layer_norm.groups; group++)
        for (size_t first = 0; first < weights; first += ABREAST) {
            size_t count = weights - first < ABREAST ? weights - first : ABREAST;
            if (inner == 1) /* a constant, so that the compiler makes vectors of neighbours */
                some_weights(p, 1, group, first, count);
            else
                some_weights(p, inner, group, first, count);
        }
}
