/* Attention with the formulas of device/attention.h, in double. The weights are recomputed for each
 * ABREAST columns of a result, so that only these columns' sums are kept. Sums over keys follow the
 * order of the keys, and sums over queries that of the queries. */
#include "device/attention.h"

#include "device/host/kernels/reference.h"

enum { ABREAST = 64 };

static size_t columns_from(size_t first, size_t count) {
    return count - first < ABREAST ? count - first : (size_t)ABREAST;
}

/* log(sum of exp(score)); 0 if every key is hidden, so that all weights are 0. */
static double log_sum_of(const struct attention *a, size_t b, size_t i) {
    double max = -INFINITY, sum = 0;
    size_t keys = attention_keys(a, i);
    for (size_t j = 0; j < keys; j++) {
        double score = attention_score(a, b, i, j);
        if (score > max || isnan(score)) max = score;
    }
    if (isinf(max) && max < 0) return 0;
    for (size_t j = 0; j < keys; j++)
        sum += elementary_exp(attention_score(a, b, i, j) - max);
    return max + elementary_log(sum);
}

void reference_attention_forward(const struct op_args *args) {
    struct attention a = attention_of(OP_ATTENTION_FORWARD, args);
    for (size_t row = 0; row < a.batches * a.queries; row++) {
        size_t b = row / a.queries, i = row % a.queries;
        double lse = log_sum_of(&a, b, i);
        a.lse[row] = (float)lse;
        for (size_t first = 0; first < a.values; first += ABREAST) {
            size_t count = columns_from(first, a.values);
            double sum[ABREAST] = {0};
            for (size_t j = 0; j < attention_keys(&a, i); j++) {
                double weight = elementary_exp(attention_score(&a, b, i, j) - lse) *
                                (double)attention_kept(&a, b, i, j);
                for (size_t e = 0; e < count; e++)
                    sum[e] += weight * (double)attention_row(&a, &a.v, b, j)[first + e];
            }
            for (size_t e = 0; e < count; e++)
                attention_row(&a, &a.y, b, i)[first + e] = (float)sum[e];
        }
    }
}

static void query_gradient(const struct attention *a, size_t b, size_t i) {
    for (size_t first = 0; first < a->width; first += ABREAST) {
        size_t count = columns_from(first, a->width);
        double dq[ABREAST] = {0};
        for (size_t j = 0; j < attention_keys(a, i); j++) {
            double slope = attention_slope(a, b, i, j, attention_weight(a, b, i, j),
                                           attention_kept(a, b, i, j));
            for (size_t e = 0; e < count; e++)
                dq[e] += slope * (double)attention_row(a, &a->k, b, j)[first + e];
        }
        for (size_t e = 0; e < count; e++)
            attention_row(a, &a->dq, b, i)[first + e] = (float)dq[e];
    }
}

/* The gradients of key j and of its value. */
static void key_gradients(const struct attention *a, size_t b, size_t j) {
    size_t most = a->width > a->values ? a->width : a->values;
    for (size_t first = 0; first < most; first += ABREAST) {
        size_t width = first < a->width ? columns_from(first, a->width) : 0,
               values = first < a->values ? columns_from(first, a->values) : 0;
        double dk[ABREAST] = {0}, dv[ABREAST] = {0};
        for (size_t i = a->causal ? j : 0; i < a->queries; i++) {
            double weight = attention_weight(a, b, i, j);
            float kept = attention_kept(a, b, i, j);
            double slope = attention_slope(a, b, i, j, weight, kept);
            const float *q = attention_row(a, &a->q, b, i) + first,
                        *dy = attention_row(a, &a->dy, b, i) + first;
            for (size_t e = 0; e < width; e++)
                dk[e] += slope * (double)q[e];
            for (size_t e = 0; e < values; e++)
                dv[e] += weight * (double)kept * (double)dy[e];
        }
        for (size_t e = 0; e < width; e++)
            attention_row(a, &a->dk, b, j)[first + e] = (float)dk[e];
        for (size_t e = 0; e < values; e++)
            attention_row(a, &a->dv, b, j)[first + e] = (float)dv[e];
    }
}

void reference_attention_backward(const struct op_args *args) {
    struct attention a = attention_of(OP_ATTENTION_BACKWARD, args);
    for (size_t b = 0; b < a.batches; b++) {
        for (size_t i = 0; i < a.queries; i++)
            query_gradient(&a, b, i);
        for (size_t j = 0; j < a.keys; j++)
            key_gradients(&a, b, j);
    }
}
