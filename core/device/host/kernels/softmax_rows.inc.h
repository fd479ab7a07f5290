/* Softmax and the losses, row by row and in double from the scores to the row's loss. A row's bits
 * do not depend on the number of rows. The row's maximum is subtracted before exp, so large scores
 * do not overflow:
 *
 *     log_softmax(x)[j] = x[j] - max - log(sum over i of exp(x[i] - max)), softmax(x) its exp
 *     loss of a row     = -log_softmax(x)[label]       (nll gets log_softmax, cross entropy x)
 *     d loss / d x[j]   = softmax(x)[j] - (j == label)
 *
 * Label smoothing e spreads a part of the target evenly over the C classes:
 *
 *     loss of a row     = (1 - e) * -log_softmax(x)[label]
 *                         - e / C * sum over j of log_softmax(x)[j]
 *     d loss / d x[j]   = softmax(x)[j] - (1 - e) * (j == label) - e / C
 *
 * With class weights w, each -log_softmax(x)[j] above is multiplied by w[j]. A row whose label is
 * ignored has loss 0 and no gradient, whatever its scores.
 *
 * A row's weight is step->weight (MEAN), 1 (SUM) or its entry of dloss (NONE). If a sample has
 * several rows, such as the pixels of a label image, MEAN and the sum of losses use the mean over
 * them. A label outside the row gives a NaN loss and NaN gradients instead of a read past the row;
 * the data reader has already refused such labels.
 *
 * reference_loss.c includes this file and, for each instruction set, n16.inc.h does; the compiler
 * vectorises the loops over exp. */
#include "device/elementary.h"

/* 1 if the label has the largest score, or the first of several equal ones. */
static inline int32_t is_hit(const float *scores, int classes, int label) {
    int best = 0;
    for (int j = 1; j < classes; j++)
        if (scores[j] > scores[best]) best = j;
    return best == label;
}

/* Rows per sample. */
static inline int positions_of(const struct op_args *a) {
    return a->p.loss.positions > 1 ? a->p.loss.positions : 1;
}

static inline int is_ignored(const struct op_args *a, int label) {
    return a->p.loss.ignores && label == a->p.loss.ignore_index;
}

static inline double class_weight(const struct op_args *a, int class) {
    return a->in[3].data ? tensor_f32(&a->in[3])[class] : 1;
}

/* The sum of all classes' weights in a row's loss, which is 1 without class weights. */
static inline double weights_of_all(const struct op_args *a, int label, int classes) {
    double e = a->p.loss.smoothing, all = 0;
    if (!a->in[3].data) return 1;
    for (int j = 0; j < classes; j++)
        all += class_weight(a, j);
    return (1 - e) * class_weight(a, label) + e / classes * all;
}

static inline double row_weight(const struct op_args *a, int row) {
    switch ((enum reduction)a->p.loss.reduction) {
    case REDUCE_MEAN: return (double)a->step->weight / positions_of(a);
    case REDUCE_SUM: return 1;
    case REDUCE_NONE: return tensor_f32(&a->in[2])[row];
    }
    return NAN;
}

struct softmax_row {
    double max, log_sum;
};

static inline struct softmax_row softmax_of(const float *x, int classes) {
    struct softmax_row r = {x[0], 0};
    for (int j = 1; j < classes; j++)
        if (x[j] > r.max || isnan(x[j])) r.max = x[j];
    double sum = 0, part[64]; /* computed independently, added in order */
    for (int j = 0, n; j < classes; j += n) {
        n = classes - j < 64 ? classes - j : 64;
        for (int k = 0; k < n; k++)
            part[k] = elementary_exp(x[j + k] - r.max);
        for (int k = 0; k < n; k++)
            sum += part[k];
    }
    r.log_sum = elementary_log(sum);
    return r;
}

static void row_softmax_forward(const struct op_args *a) {
    int rows = a->out[0].dims[0], classes = a->out[0].dims[1];
    for (int i = 0; i < rows; i++) {
        const float *x = tensor_f32(&a->in[0]) + (size_t)i * classes;
        float *y = tensor_f32(&a->out[0]) + (size_t)i * classes;
        struct softmax_row r = softmax_of(x, classes);
        for (int j = 0; j < classes; j++) {
            double log = x[j] - r.max - r.log_sum;
            y[j] = (float)(a->p.softmax.log ? log : elementary_exp(log));
        }
    }
}

static void row_softmax_backward(const struct op_args *a) {
    int rows = a->out[0].dims[0], classes = a->out[0].dims[1], log = a->p.softmax.log;
    for (int i = 0; i < rows; i++) {
        const float *y = tensor_f32(&a->in[0]) + (size_t)i * classes,
                    *dy = tensor_f32(&a->in[1]) + (size_t)i * classes;
        float *dx = tensor_f32(&a->out[0]) + (size_t)i * classes;
        double sum = 0;
        for (int j = 0; j < classes; j++)
            sum += log ? dy[j] : (double)y[j] * dy[j];
        for (int j = 0; j < classes; j++)
            dx[j] = (float)(log ? dy[j] - elementary_exp(y[j]) * sum : y[j] * (dy[j] - sum));
    }
}

/* nll_loss takes log-probabilities, which are already a log_softmax. */
static inline struct softmax_row softmax_of_loss(const struct op_args *a, const float *x,
                                                 int classes) {
    return a->p.loss.log_probabilities ? (struct softmax_row){0, 0} : softmax_of(x, classes);
}

/* The sum over all classes of -log_softmax times the class's weight. */
static inline double smooth_loss(const struct op_args *a, const float *x, int classes,
                                 const struct softmax_row *r) {
    double sum = 0;
    for (int j = 0; j < classes; j++)
        sum += class_weight(a, j) * (r->log_sum - (x[j] - r->max));
    return sum;
}

static void row_cross_entropy_forward(const struct op_args *a) {
    int rows = a->in[0].dims[0], classes = a->in[0].dims[1];
    double e = a->p.loss.smoothing;
    const int32_t *labels = a->in[1].data;
    double *loss = a->out[0].data;
    int32_t *hits = a->out[1].data;
    for (int i = 0; i < rows; i++) {
        const float *x = tensor_f32(&a->in[0]) + (size_t)i * classes;
        hits[i] = 0, loss[i] = 0;
        if (is_ignored(a, labels[i])) continue;
        struct softmax_row r = softmax_of_loss(a, x, classes);
        int known = labels[i] >= 0 && labels[i] < classes;
        loss[i] = known ? class_weight(a, labels[i]) * (r.log_sum - (x[labels[i]] - r.max)) : NAN;
        if (e != 0) loss[i] = (1 - e) * loss[i] + e / classes * smooth_loss(a, x, classes, &r);
        if (isnan(loss[i])) loss[i] = NAN; /* the sign would depend on the order of operands */
        hits[i] = is_hit(x, classes, labels[i]);
    }
}

static inline void nll_backward(const struct op_args *a, int row, int label, int classes,
                                float *dlogp) {
    int known = label >= 0 && label < classes, ignored = is_ignored(a, label);
    for (int j = 0; j < classes; j++)
        dlogp[j] = known || ignored ? 0 : NAN;
    if (known && !ignored) dlogp[label] = (float)(class_weight(a, label) * -row_weight(a, row));
}

static void row_cross_entropy_backward(const struct op_args *a) {
    int rows = a->in[0].dims[0], classes = a->in[0].dims[1];
    double spread = a->p.loss.smoothing / classes, at_label = 1 - a->p.loss.smoothing;
    const int32_t *labels = a->in[1].data;
    for (int i = 0; i < rows; i++) {
        const float *x = tensor_f32(&a->in[0]) + (size_t)i * classes;
        float *dx = tensor_f32(&a->out[0]) + (size_t)i * classes;
        int known = labels[i] >= 0 && labels[i] < classes, ignored = is_ignored(a, labels[i]);
        if (a->p.loss.log_probabilities) {
            nll_backward(a, i, labels[i], classes, dx);
            continue;
        }
        struct softmax_row r = softmax_of(x, classes);
        double weight = known ? row_weight(a, i) : NAN,
               all = known ? weights_of_all(a, labels[i], classes) : 1;
        for (int j = 0; j < classes; j++) {
            double w = class_weight(a, j), target = j == labels[i] ? at_label * w : 0;
            double d = elementary_exp(x[j] - r.max - r.log_sum) * all - target - spread * w;
            dx[j] = ignored ? 0 : (float)(d * weight);
        }
    }
}
