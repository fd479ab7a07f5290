/* Scaled dot product attention for every kernel: the operands of a launch, and the formulas for one
 * query and one key. Row i of matrix b is a query, row j a key:
 *
 *     score  = scale q_i . k_j + mask[i][j]         -infinity where the key is hidden
 *     weight = exp(score - lse_i)                   a row's weights sum to 1
 *     y_i    = sum over j of kept weight v_j        kept: dropout's factor, 1 without it
 *
 * and from dy, with slope = weight scale dy_i . (kept v_j - y_i), which is d loss / d (q_i . k_j):
 *
 *     dq_i = sum over j of slope k_j      dk_j = sum over i of slope q_i
 *     dv_j = sum over i of kept weight dy_i
 *
 * Nothing is kept per pair of query and key; backward recomputes the weights. */
#ifndef DEVICE_ATTENTION_H
#define DEVICE_ATTENTION_H

#include <math.h>

#include "base/philox.h"
#include "device/op.h"

/* The distances between samples, matrices and rows of an operand (N,H,L,E). */
struct attention_rows {
    float *data;
    size_t sample, head, row;
};

/* Matrix b is number b % H of sample b / H. */
struct attention {
    struct attention_rows q, k, v, y, dy; /* forward writes y */
    struct attention_rows dq, dk, dv;
    const float *mask;
    float *lse;                                   /* forward writes it */
    size_t batches, queries, keys, width, values; /* N H, L S E V */
    uint32_t heads;
    size_t masks, mask_rows, mask_shared;
    double scale;
    int causal;
    const struct step_block *step; /* NULL: no dropout */
    uint64_t threshold;
    uint32_t layer, virtual_device;
    float factor; /* factor for weights that dropout keeps */
};

static inline struct attention_rows attention_rows_of(const struct tensor *t) {
    int stride[MAX_RANK] = {0};
    tensor_strides(t, stride);
    return (struct attention_rows){tensor_f32(t), (size_t)stride[0], (size_t)stride[1],
                                   (size_t)stride[2]};
}

static inline struct attention attention_of(enum op op, const struct op_args *args) {
    const struct attention_args *p = &args->p.attention;
    const struct tensor *in = args->in;
    struct attention a;
    int back = op == OP_ATTENTION_BACKWARD, drops = p->dropout.p != 0;
    a.q = attention_rows_of(&in[0]), a.k = attention_rows_of(&in[1]);
    a.v = attention_rows_of(&in[2]), a.y = attention_rows_of(back ? &in[4] : &args->out[0]);
    a.dy = attention_rows_of(&in[6]), a.dq = attention_rows_of(&args->out[0]);
    a.dk = attention_rows_of(&args->out[1]), a.dv = attention_rows_of(&args->out[2]);
    a.mask = tensor_f32(&in[3]), a.lse = tensor_f32(back ? &in[5] : &args->out[1]);
    a.heads = (uint32_t)in[0].dims[1], a.batches = (size_t)in[0].dims[0] * a.heads;
    a.queries = (size_t)in[0].dims[2], a.keys = (size_t)in[1].dims[2];
    a.width = (size_t)in[0].dims[3], a.values = (size_t)in[2].dims[3];
    a.scale = p->scale, a.causal = p->causal;
    a.masks = a.mask ? (size_t)in[3].dims[0] : 1, a.mask_rows = a.mask ? (size_t)in[3].dims[1] : 1;
    a.mask_shared = a.mask ? (size_t)p->mask_shared : 1;
    a.step = drops ? args->step : NULL;
    a.threshold = philox_threshold(1.0 - (double)p->dropout.p);
    a.factor = 1.0f / (1.0f - p->dropout.p);
    a.layer = (uint32_t)p->dropout.layer, a.virtual_device = (uint32_t)p->dropout.v;
    return a;
}

/* Row i of matrix b. The number of matrices is below 2^31. */
PHILOX_FUNCTION float *attention_row(const struct attention *a, const struct attention_rows *of,
                                     size_t b, size_t i) {
    uint32_t sample = (uint32_t)b / a->heads, head = (uint32_t)b - sample * a->heads;
    return of->data + sample * of->sample + head * of->head + i * of->row;
}

/* The mask's row for query i of matrix b; NULL without a mask. */
PHILOX_FUNCTION const float *attention_mask(const struct attention *a, size_t b, size_t i) {
    size_t row = b / a->mask_shared % a->masks * a->mask_rows + (a->mask_rows > 1 ? i : 0);
    return a->mask ? a->mask + row * a->keys : NULL;
}

/* Query i may use the first keys; a mask may hide some of them. */
PHILOX_FUNCTION size_t attention_keys(const struct attention *a, size_t i) {
    return a->causal && i + 1 < a->keys ? i + 1 : a->keys;
}

/* The score of a key that query i may use. Products of floats are exact in double. */
PHILOX_FUNCTION double attention_score(const struct attention *a, size_t b, size_t i, size_t j) {
    const float *q = attention_row(a, &a->q, b, i), *k = attention_row(a, &a->k, b, j),
                *mask = attention_mask(a, b, i);
    double sum = 0;
    for (size_t e = 0; e < a->width; e++)
        sum += (double)q[e] * (double)k[e];
    return sum * a->scale + (mask ? (double)mask[j] : 0);
}

PHILOX_FUNCTION double attention_weight(const struct attention *a, size_t b, size_t i, size_t j) {
    return elementary_exp(attention_score(a, b, i, j) - (double)a->lse[b * a->queries + i]);
}

/* Dropout's factor of one weight. */
PHILOX_FUNCTION float attention_kept(const struct attention *a, size_t b, size_t i, size_t j) {
    if (!a->step) return 1;
    uint64_t element = (b * a->queries + i) * a->keys + j;
    return philox_keep(a->step->seed, a->virtual_device, (uint32_t)a->step->step, a->layer, element,
                       a->threshold)
               ? a->factor
               : 0;
}

PHILOX_FUNCTION double attention_slope(const struct attention *a, size_t b, size_t i, size_t j,
                                       double weight, float kept) {
    const float *v = attention_row(a, &a->v, b, j), *y = attention_row(a, &a->y, b, i),
                *dy = attention_row(a, &a->dy, b, i);
    double sum = 0;
    for (size_t e = 0; e < a->values; e++)
        sum += (double)dy[e] * ((double)kept * (double)v[e] - (double)y[e]);
    return weight * a->scale * sum;
}

#endif
