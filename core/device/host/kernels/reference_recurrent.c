/* Recurrent layers, in PyTorch's notation, for a = x W_ih^T + b_ih and u = h W_hh^T + b_hh:
 *
 *     LSTM   i, f, o = sigmoid(a + u), g = tanh(a + u), c = f c + i g, h = o tanh(c)
 *     GRU    r, z = sigmoid(a + u), n = tanh(a_n + r u_n), h = n + z (h - n)
 *     TANH   h = tanh(a + u)            RELU   h = max(a + u, 0)
 *
 * Sums and functions use double; the results of a step are rounded to float once. Backward walks
 * over the steps from the last to the first. The gradient of h is dy plus the gradient from the
 * next step through w. */
#include <math.h>

#include "device/host/kernels/reference.h"

static double sigmoid(double x) {
    return 1 / (1 + elementary_exp(-x));
}

/* The s-th step in order of computation. */
static int index_of_step(const struct op_args *a, int s, int steps) {
    return a->p.recurrent.reverse ? steps - 1 - s : s;
}

/* A sample's part of a tensor; NULL: there is none. */
static float *part_of(const struct tensor *t, int n) {
    return t->data ? tensor_f32(t) + (size_t)n * tensor_sample_count(t) : NULL;
}

/* ---- forward ---- */

/* u of gate row `row`. */
static double hidden_sum(const struct op_args *a, const float *h, int row) {
    const struct tensor *w = &a->in[1];
    const float *weights = tensor_f32(w) + (size_t)row * (size_t)w->dims[1],
                *b = tensor_f32(&a->in[2]);
    double sum = b ? (double)b[row] : 0;
    for (int k = 0; h && k < w->dims[1]; k++)
        sum += (double)weights[k] * (double)h[k];
    return sum;
}

/* Unit j of a step. h is that of the step before, or NULL for zeros; *c is kept up to date. */
static float forward_unit(const struct op_args *args, const float *a, const float *h, float *c,
                          float *saved, int j) {
    int width = args->in[1].dims[1];
    double u[4] = {0}, x[4] = {0};
    for (int g = 0; g * width < args->in[1].dims[0]; g++)
        u[g] = hidden_sum(args, h, g * width + j), x[g] = (double)a[g * width + j];
    switch (args->p.recurrent.kind) {
    case RECURRENT_LSTM: {
        double i = sigmoid(x[0] + u[0]), f = sigmoid(x[1] + u[1]), g = elementary_tanh(x[2] + u[2]),
               o = sigmoid(x[3] + u[3]), cell = f * (double)*c + i * g;
        const double keep[6] = {i, f, g, o, (double)*c, elementary_tanh(cell)};
        for (int k = 0; k < 6; k++)
            saved[k * width + j] = (float)keep[k];
        *c = (float)cell;
        return (float)(o * elementary_tanh(cell));
    }
    case RECURRENT_GRU: {
        double r = sigmoid(x[0] + u[0]), z = sigmoid(x[1] + u[1]),
               n = elementary_tanh(x[2] + r * u[2]), before = h ? (double)h[j] : 0;
        const double keep[5] = {r, z, n, u[2], before};
        for (int k = 0; k < 5; k++)
            saved[k * width + j] = (float)keep[k];
        return (float)(n + z * (before - n));
    }
    case RECURRENT_TANH: return (float)elementary_tanh(x[0] + u[0]);
    default: return x[0] + u[0] < 0 ? 0 : (float)(x[0] + u[0]);
    }
}

void reference_recurrent_forward(const struct op_args *p) {
    int steps = p->in[0].dims[1], rows = p->in[0].dims[2], width = p->in[1].dims[1];
    for (int n = 0; n < p->in[0].dims[0]; n++) {
        const float *a = part_of(&p->in[0], n), *first = part_of(&p->in[3], n), *h = first;
        float *y = part_of(&p->out[0], n), *saved = part_of(&p->out[1], n),
              *c = part_of(&p->out[2], n);
        for (int j = 0; c && j < width; j++)
            c[j] = first ? first[width + j] : 0;
        for (int s = 0; s < steps; s++) {
            size_t at = (size_t)index_of_step(p, s, steps);
            float *kept = saved ? saved + at * (size_t)p->out[1].dims[2] : NULL;
            for (int j = 0; j < width; j++)
                y[at * (size_t)width + (size_t)j] =
                    forward_unit(p, a + at * (size_t)rows, h, c ? c + j : NULL, kept, j);
            h = y + at * (size_t)width;
        }
    }
}

/* ---- backward ---- */

/* The gradients of a and u of unit j, from dh, that of its h. *carry is the part of the gradient of
 * a state that does not go through w: of c in an LSTM, of h in a GRU. */
static void backward_unit(enum recurrent kind, const float *saved, int width, int j, double dh,
                          double *carry, float *da, float *du) {
    double v[6];
    for (int k = 0; k < (kind == RECURRENT_LSTM ? 6 : kind == RECURRENT_GRU ? 5 : 1); k++)
        v[k] = (double)saved[k * width + j];
    if (kind == RECURRENT_LSTM) {
        double i = v[0], f = v[1], g = v[2], o = v[3], dc = *carry + dh * o * (1 - v[5] * v[5]);
        da[j] = (float)(dc * g * i * (1 - i));
        da[width + j] = (float)(dc * v[4] * f * (1 - f));
        da[2 * width + j] = (float)(dc * i * (1 - g * g));
        da[3 * width + j] = (float)(dh * v[5] * o * (1 - o));
        *carry = dc * f;
    } else if (kind == RECURRENT_GRU) {
        double r = v[0], z = v[1], n = v[2], dn = dh * (1 - z) * (1 - n * n);
        da[j] = du[j] = (float)(dn * v[3] * r * (1 - r));
        da[width + j] = du[width + j] = (float)(dh * (v[4] - n) * z * (1 - z));
        da[2 * width + j] = (float)dn;
        du[2 * width + j] = (float)(dn * r);
        *carry = dh * z;
    } else {
        da[j] = (float)(kind == RECURRENT_TANH ? dh * (1 - v[0] * v[0]) : v[0] > 0 ? dh : 0);
    }
}

/* The gradient through w to unit j of the previous step; du NULL: none. */
static double through_weights(const struct tensor *w, const float *du, int j) {
    double sum = 0;
    for (int row = 0; du && row < w->dims[0]; row++)
        sum +=
            (double)tensor_f32(w)[(size_t)row * (size_t)w->dims[1] + (size_t)j] * (double)du[row];
    return sum;
}

/* Between steps the carry is in dfirst, where its last value belongs. */
void reference_recurrent_backward(const struct op_args *p) {
    const struct tensor *w = &p->in[2];
    enum recurrent kind = p->p.recurrent.kind;
    int steps = p->in[0].dims[1], width = w->dims[1], lstm = kind == RECURRENT_LSTM;
    for (int n = 0; n < p->in[0].dims[0]; n++) {
        const float *dy = part_of(&p->in[0], n), *saved = part_of(&p->in[1], n),
                    *dlast = part_of(&p->in[3], n);
        float *da = part_of(&p->out[0], n), *dfirst = part_of(&p->out[1], n),
              *du = kind == RECURRENT_GRU ? part_of(&p->out[2], n) : da, *behind = NULL;
        for (int j = 0; j < (1 + lstm) * width; j++)
            dfirst[j] = j >= width && dlast ? dlast[j - width] : 0;
        for (int s = steps - 1; s >= 0; s--) {
            size_t at = (size_t)index_of_step(p, s, steps), rows = at * (size_t)w->dims[0];
            for (int j = 0; j < width; j++) {
                double carry = (double)dfirst[lstm * width + j],
                       dh = (double)dy[at * (size_t)width + (size_t)j] +
                            through_weights(w, behind, j) + (lstm ? 0 : carry);
                carry = lstm ? carry : 0;
                backward_unit(kind, saved + at * (size_t)p->in[1].dims[2], width, j, dh, &carry,
                              da + rows, du + rows);
                dfirst[lstm * width + j] = (float)carry;
            }
            behind = du + rows;
        }
        for (int j = 0; j < width; j++)
            dfirst[j] = (float)(through_weights(w, behind, j) + (lstm ? 0 : (double)dfirst[j]));
    }
}
