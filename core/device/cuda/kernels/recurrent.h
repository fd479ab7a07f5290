/* Recurrent layers, with the formulas of host/kernels/reference_recurrent.c. A block takes a sample
 * and goes through its steps, with a barrier after each. Thread j has the units j, j + threads, and
 * so on. A unit's sums add the units of the previous step one by one, in float; its functions use
 * double. So a sample's bits depend only on the sample.
 *
 * A thread keeps its unit's value from step to step, c or a part of a gradient, where its final
 * value belongs: in `last` or in dfirst. */
#ifndef DEVICE_CUDA_KERNELS_RECURRENT_H
#define DEVICE_CUDA_KERNELS_RECURRENT_H

#include "device/cuda/kernels/kernel.h"

enum { RECURRENT_THREADS = 256 };

/* Forward reads gates, b and first and writes y, saved and last. Backward reads dy, saved and dlast
 * and writes dgates, dfirst and du, which is dhidden in a GRU and dgates in others. */
struct recurrence {
    const float *gates, *w, *b, *first, *dy, *dlast;
    float *y, *saved, *last, *dgates, *dfirst, *du;
    int samples, steps, rows, width, kept, states, reverse;
    enum recurrent kind;
};

static inline struct recurrence recurrence_of(enum op op, const struct op_args *a) {
    struct recurrence r = ZEROED;
    int forward = op == OP_RECURRENT_FORWARD;
    const struct tensor *w = &a->in[forward ? 1 : 2], *saved = forward ? &a->out[1] : &a->in[1];
    r.w = tensor_f32(w), r.rows = w->dims[0], r.width = w->dims[1];
    r.saved = tensor_f32(saved), r.kept = saved->data ? saved->dims[2] : 0;
    r.samples = a->in[0].dims[0], r.steps = a->in[0].dims[1];
    r.kind = a->p.recurrent.kind, r.reverse = a->p.recurrent.reverse;
    r.states = r.kind == RECURRENT_LSTM ? 2 : 1;
    if (forward) {
        r.gates = tensor_f32(&a->in[0]), r.b = tensor_f32(&a->in[2]);
        r.first = tensor_f32(&a->in[3]);
        r.y = tensor_f32(&a->out[0]), r.last = tensor_f32(&a->out[2]);
    } else {
        r.dy = tensor_f32(&a->in[0]), r.dlast = tensor_f32(&a->in[3]);
        r.dgates = tensor_f32(&a->out[0]), r.dfirst = tensor_f32(&a->out[1]);
        r.du = r.kind == RECURRENT_GRU ? tensor_f32(&a->out[2]) : r.dgates;
    }
    return r;
}

DUET_HD double recurrent_sigmoid(double x) {
    return 1 / (1 + elementary_exp(-x));
}

/* Row `s`, in order of time, of sample n, with rows of `width` numbers. */
DUET_HD size_t recurrent_row(const struct recurrence *r, int n, int s, int width) {
    int at = r->reverse ? r->steps - 1 - s : s;
    return ((size_t)n * (size_t)r->steps + (size_t)at) * (size_t)width;
}

/* Loops over the units of this thread. */
#define FOR_EACH_UNIT(j, r, at) \
    for (int j = (int)(at).thread; j < (r)->width; j += (int)(at).threads)

/* Loops over the samples of this block. */
#define FOR_EACH_SAMPLE(n, r, at) \
    for (int n = (int)(at).block; n < (r)->samples; n += (int)(at).blocks)

/* ---- forward ---- */

DUET_HD float recurrent_sum(const struct recurrence *r, const float *h, int row) {
    const float *w = r->w + (size_t)row * (size_t)r->width;
    float sum = r->b ? r->b[row] : 0;
    for (int k = 0; h && k < r->width; k++)
        sum = fmaf(w[k], h[k], sum);
    return sum;
}

/* h W^T + b for gate g and unit j. Each gate has its own call, because an array of gates, indexed
 * in a loop, would be in slow memory. */
DUET_HD double recurrent_gate(const struct recurrence *r, const float *h, int g, int j) {
    return (double)recurrent_sum(r, h, g * r->width + j);
}

DUET_HD void recurrent_unit(const struct recurrence *r, const float *h, int n, int s, int j) {
    const float *x = r->gates + recurrent_row(r, n, s, r->rows);
    float *y = r->y + recurrent_row(r, n, s, r->width),
          *saved = r->saved + recurrent_row(r, n, s, r->kept);
    int width = r->width;
    if (r->kind == RECURRENT_LSTM) {
        float *c = r->last + (size_t)n * (size_t)width + j;
        double i = recurrent_sigmoid((double)x[j] + recurrent_gate(r, h, 0, j)),
               f = recurrent_sigmoid((double)x[width + j] + recurrent_gate(r, h, 1, j)),
               g = elementary_tanh((double)x[2 * width + j] + recurrent_gate(r, h, 2, j)),
               o = recurrent_sigmoid((double)x[3 * width + j] + recurrent_gate(r, h, 3, j)),
               cell = f * (double)*c + i * g, t = elementary_tanh(cell);
        saved[j] = (float)i, saved[width + j] = (float)f, saved[2 * width + j] = (float)g;
        saved[3 * width + j] = (float)o, saved[4 * width + j] = *c;
        saved[5 * width + j] = (float)t;
        *c = (float)cell;
        y[j] = (float)(o * t);
    } else if (r->kind == RECURRENT_GRU) {
        double gate = recurrent_sigmoid((double)x[j] + recurrent_gate(r, h, 0, j)),
               z = recurrent_sigmoid((double)x[width + j] + recurrent_gate(r, h, 1, j)),
               u = recurrent_gate(r, h, 2, j),
               new_h = elementary_tanh((double)x[2 * width + j] + gate * u),
               before = h ? (double)h[j] : 0;
        saved[j] = (float)gate, saved[width + j] = (float)z, saved[2 * width + j] = (float)new_h;
        saved[3 * width + j] = (float)u, saved[4 * width + j] = (float)before;
        y[j] = (float)(new_h + z * (before - new_h));
    } else {
        double sum = (double)x[j] + recurrent_gate(r, h, 0, j);
        y[j] = r->kind == RECURRENT_TANH ? (float)elementary_tanh(sum) : sum < 0 ? 0 : (float)sum;
    }
}

DUET_BLOCK void k_recurrent_forward(const struct recurrence *r, struct thread_index at) {
    FOR_EACH_SAMPLE(n, r, at) {
        const float *first = r->first ? r->first + (size_t)n * (size_t)(r->states * r->width) : 0;
        BLOCK_PHASE(at) {
            FOR_EACH_UNIT(j, r, at)
            if (r->last)
                r->last[(size_t)n * (size_t)r->width + j] = first ? first[r->width + j] : 0;
        }
        for (int s = 0; s < r->steps; s++)
            BLOCK_PHASE(at) {
                const float *h = s ? r->y + recurrent_row(r, n, s - 1, r->width) : first;
                FOR_EACH_UNIT(j, r, at) recurrent_unit(r, h, n, s, j);
            }
    }
}

/* ---- backward ---- */

/* The gradient that the next step passes back to unit j through w; du is that step's row. */
DUET_HD float recurrent_back_sum(const struct recurrence *r, const float *du, int j) {
    float sum = 0;
    for (int row = 0; row < r->rows; row++)
        sum = fmaf(r->w[(size_t)row * (size_t)r->width + j], du[row], sum);
    return sum;
}

DUET_HD void recurrent_unit_backward(const struct recurrence *r, float *carry, double dh, int n,
                                     int s, int j) {
    const float *saved = r->saved + recurrent_row(r, n, s, r->kept);
    float *da = r->dgates + recurrent_row(r, n, s, r->rows),
          *du = r->du + recurrent_row(r, n, s, r->rows);
    int width = r->width;
    saved += j;
    if (r->kind == RECURRENT_LSTM) {
        double i = (double)saved[0], f = (double)saved[width], g = (double)saved[2 * width],
               o = (double)saved[3 * width], before = (double)saved[4 * width],
               t = (double)saved[5 * width], dc = (double)*carry + dh * o * (1 - t * t);
        da[j] = (float)(dc * g * i * (1 - i));
        da[width + j] = (float)(dc * before * f * (1 - f));
        da[2 * width + j] = (float)(dc * i * (1 - g * g));
        da[3 * width + j] = (float)(dh * t * o * (1 - o));
        *carry = (float)(dc * f);
    } else if (r->kind == RECURRENT_GRU) {
        double gate = (double)saved[0], z = (double)saved[width], new_h = (double)saved[2 * width],
               u = (double)saved[3 * width], before = (double)saved[4 * width],
               dn = dh * (1 - z) * (1 - new_h * new_h);
        da[j] = du[j] = (float)(dn * u * gate * (1 - gate));
        da[width + j] = du[width + j] = (float)(dh * (before - new_h) * z * (1 - z));
        da[2 * width + j] = (float)dn;
        du[2 * width + j] = (float)(dn * gate);
        *carry = (float)(dh * z);
    } else {
        double y = (double)saved[0];
        da[j] = (float)(r->kind == RECURRENT_TANH ? dh * (1 - y * y) : y > 0 ? dh : 0);
    }
}

DUET_BLOCK void k_recurrent_backward(const struct recurrence *r, struct thread_index at) {
    int lstm = r->kind == RECURRENT_LSTM;
    FOR_EACH_SAMPLE(n, r, at) {
        float *dfirst = r->dfirst + (size_t)n * (size_t)(r->states * r->width),
              *carry = dfirst + (r->states - 1) * r->width;
        BLOCK_PHASE(at) {
            FOR_EACH_UNIT(j, r, at)
            carry[j] = lstm && r->dlast ? r->dlast[(size_t)n * (size_t)r->width + j] : 0;
        }
        for (int s = r->steps - 1; s >= 0; s--)
            BLOCK_PHASE(at) {
                const float *dy = r->dy + recurrent_row(r, n, s, r->width);
                FOR_EACH_UNIT(j, r, at) {
                    double dh = (double)dy[j] + (lstm ? 0 : (double)carry[j]);
                    if (s + 1 < r->steps)
                        dh += (double)recurrent_back_sum(
                            r, r->du + recurrent_row(r, n, s + 1, r->rows), j);
                    recurrent_unit_backward(r, carry + j, dh, n, s, j);
                }
            }
        BLOCK_PHASE(at) {
            const float *du = r->du + recurrent_row(r, n, 0, r->rows);
            FOR_EACH_UNIT(j, r, at)
            dfirst[j] = recurrent_back_sum(r, du, j) + (lstm ? 0 : dfirst[j]);
        }
    }
}

#endif
