/* Softmax and the losses, row by row and in double from the scores to the row's loss. A row gets
 * the same bits among any number of rows. The row's maximum is subtracted before exp, so no large
 * score overflows:
 *
 *     log_softmax(x)[j] = x[j] - max - log(sum over i of exp(x[i] - max)), softmax(x) its exp
 *     loss of a row     = -log_softmax(x)[label]       (nll is given log_softmax, cross entropy x)
 *     d loss / d x[j]   = softmax(x)[j] - (j == label)
 *
 * Label smoothing e spreads a part of the target evenly over the C classes:
 *
 *     loss of a row     = (1 - e) * -log_softmax(x)[label]
 *                         - e / C * sum over j of log_softmax(x)[j]
 *     d loss / d x[j]   = softmax(x)[j] - (1 - e) * (j == label) - e / C
 *
 * With weights w of the classes every -log_softmax(x)[j] above counts w[j] times. A row whose label
 * is ignored has loss 0 and no gradient, whatever its scores are.
 *
 * A row's weight is step->weight (MEAN), 1 (SUM) or its entry of dloss (NONE). Where a sample has
 * several rows, as an image of labels, MEAN and the sum of losses take their mean. A label outside
 * the row gives a NaN loss and NaN gradients instead of a read past the row; the data reader has
 * refused such labels before. */
#include "device/host/kernels/reference.h"

#include <math.h>

struct softmax_row {
    double max, log_sum;
};

static struct softmax_row softmax_of(const float *x, int classes) {
    struct softmax_row r = {x[0], 0};
    for (int j = 1; j < classes; j++)
        if (x[j] > r.max || isnan(x[j])) r.max = x[j];
    double sum = 0;
    for (int j = 0; j < classes; j++)
        sum += exp(x[j] - r.max);
    r.log_sum = log(sum);
    return r;
}

void reference_softmax_forward(const struct op_args *a) {
    int rows = a->out[0].dims[0], classes = a->out[0].dims[1];
    for (int i = 0; i < rows; i++) {
        const float *x = tensor_f32(&a->in[0]) + (size_t)i * classes;
        float *y = tensor_f32(&a->out[0]) + (size_t)i * classes;
        struct softmax_row r = softmax_of(x, classes);
        for (int j = 0; j < classes; j++) {
            double log = x[j] - r.max - r.log_sum;
            y[j] = (float)(a->p.softmax.log ? log : exp(log));
        }
    }
}

void reference_softmax_backward(const struct op_args *a) {
    int rows = a->out[0].dims[0], classes = a->out[0].dims[1], log = a->p.softmax.log;
    for (int i = 0; i < rows; i++) {
        const float *y = tensor_f32(&a->in[0]) + (size_t)i * classes,
                    *dy = tensor_f32(&a->in[1]) + (size_t)i * classes;
        float *dx = tensor_f32(&a->out[0]) + (size_t)i * classes;
        double sum = 0;
        for (int j = 0; j < classes; j++)
            sum += log ? dy[j] : (double)y[j] * dy[j];
        for (int j = 0; j < classes; j++)
            dx[j] = (float)(log ? dy[j] - exp(y[j]) * sum : y[j] * (dy[j] - sum));
    }
}

/* 1 if the largest score, the first of equals, is the label's. */
static int32_t is_hit(const float *scores, int classes, int label) {
    int best = 0;
    for (int j = 1; j < classes; j++)
        if (scores[j] > scores[best]) best = j;
    return best == label;
}

/* Rows of a sample. */
static int places_of(const struct op_args *a) {
    return a->p.loss.places > 1 ? a->p.loss.places : 1;
}

static int is_ignored(const struct op_args *a, int label) {
    return a->p.loss.ignores && label == a->p.loss.ignore_index;
}

static double class_weight(const struct op_args *a, int class) {
    return a->in[3].data ? tensor_f32(&a->in[3])[class] : 1;
}

/* The sum of what all classes weigh in a row's loss: 1 unless they have weights. */
static double weights_of_all(const struct op_args *a, int label, int classes) {
    double e = a->p.loss.smoothing, all = 0;
    if (!a->in[3].data) return 1;
    for (int j = 0; j < classes; j++)
        all += class_weight(a, j);
    return (1 - e) * class_weight(a, label) + e / classes * all;
}

static double row_weight(const struct op_args *a, int row) {
    switch ((enum reduction)a->p.loss.reduction) {
    case REDUCE_MEAN: return (double)a->step->weight / places_of(a);
    case REDUCE_SUM: return 1;
    case REDUCE_NONE: return tensor_f32(&a->in[2])[row];
    }
    return NAN;
}

void reference_nll_forward(const struct op_args *a) {
    int rows = a->in[0].dims[0], classes = a->in[0].dims[1];
    const int32_t *labels = a->in[1].data;
    double *loss = a->out[0].data;
    int32_t *hits = a->out[1].data;
    for (int i = 0; i < rows; i++) {
        const float *logp = tensor_f32(&a->in[0]) + (size_t)i * classes;
        hits[i] = 0, loss[i] = 0;
        if (is_ignored(a, labels[i])) continue;
        int known = labels[i] >= 0 && labels[i] < classes;
        loss[i] = known ? class_weight(a, labels[i]) * -(double)logp[labels[i]] : NAN;
        hits[i] = is_hit(logp, classes, labels[i]);
    }
}

void reference_nll_backward(const struct op_args *a) {
    int rows = a->in[0].dims[0], classes = a->in[0].dims[1];
    const int32_t *labels = a->in[1].data;
    for (int i = 0; i < rows; i++) {
        float *dlogp = tensor_f32(&a->out[0]) + (size_t)i * classes;
        int known = labels[i] >= 0 && labels[i] < classes, ignored = is_ignored(a, labels[i]);
        for (int j = 0; j < classes; j++)
            dlogp[j] = known || ignored ? 0 : NAN;
        if (known && !ignored)
            dlogp[labels[i]] = (float)(class_weight(a, labels[i]) * -row_weight(a, i));
    }
}

/* The sum over all classes of -log_softmax, each by its weight. */
static double smooth_loss(const struct op_args *a, const float *x, int classes,
                          const struct softmax_row *r) {
    double sum = 0;
    for (int j = 0; j < classes; j++)
        sum += class_weight(a, j) * (r->log_sum - (x[j] - r->max));
    return sum;
}

void reference_cross_entropy_forward(const struct op_args *a) {
    int rows = a->in[0].dims[0], classes = a->in[0].dims[1];
    double e = a->p.loss.smoothing;
    const int32_t *labels = a->in[1].data;
    double *loss = a->out[0].data;
    int32_t *hits = a->out[1].data;
    for (int i = 0; i < rows; i++) {
        const float *x = tensor_f32(&a->in[0]) + (size_t)i * classes;
        hits[i] = 0, loss[i] = 0;
        if (is_ignored(a, labels[i])) continue;
        struct softmax_row r = softmax_of(x, classes);
        int known = labels[i] >= 0 && labels[i] < classes;
        loss[i] = known ? class_weight(a, labels[i]) * (r.log_sum - (x[labels[i]] - r.max)) : NAN;
        if (e != 0) loss[i] = (1 - e) * loss[i] + e / classes * smooth_loss(a, x, classes, &r);
        hits[i] = is_hit(x, classes, labels[i]);
    }
}

void reference_cross_entropy_backward(const struct op_args *a) {
    int rows = a->in[0].dims[0], classes = a->in[0].dims[1];
    double spread = a->p.loss.smoothing / classes, at_label = 1 - a->p.loss.smoothing;
    const int32_t *labels = a->in[1].data;
    for (int i = 0; i < rows; i++) {
        const float *x = tensor_f32(&a->in[0]) + (size_t)i * classes;
        float *dx = tensor_f32(&a->out[0]) + (size_t)i * classes;
        int known = labels[i] >= 0 && labels[i] < classes, ignored = is_ignored(a, labels[i]);
        struct softmax_row r = softmax_of(x, classes);
        double weight = known ? row_weight(a, i) : NAN,
               all = known ? weights_of_all(a, labels[i], classes) : 1;
        for (int j = 0; j < classes; j++) {
            double w = class_weight(a, j), target = j == labels[i] ? at_label * w : 0;
            double d = exp(x[j] - r.max - r.log_sum) * all - target - spread * w;
            dx[j] = ignored ? 0 : (float)(d * weight);
        }
    }
}

/* From one number to its target, and the slope of that. e^-|x| does not overflow:
 * log(1 + e^x) - x t = x (1 - t) + log(1 + e^-|x|) for x above 0, and without the 1 below. */
static double distance(int kind, double x, double target) {
    double far = fabs(x - target);
    switch (kind) {
    case DISTANCE_SMOOTH_L1: return far < 1 ? far * far / 2 : far - .5;
    case DISTANCE_LOGISTIC: return x * ((x > 0) - target) + log1p(exp(-fabs(x)));
    default: return far * far;
    }
}

static double slope(int kind, double x, double target) {
    double off = x - target;
    switch (kind) {
    case DISTANCE_SMOOTH_L1: return fabs(off) >= 1 ? copysign(1, off) : off; /* NaN stays */
    case DISTANCE_LOGISTIC: return 1 / (1 + exp(-x)) - target;
    default: return 2 * off;
    }
}

/* The loss of a row is the mean of its distances, so that the mean over the rows of a batch is the
 * mean over all its elements, as in nn.MSELoss:
 *
 *     loss of a row   = sum over j of distance(x[j], target[j]) / M
 *     d loss / d x[j] = slope(x[j], target[j]) / M */
void reference_mse_forward(const struct op_args *a) {
    int rows = a->in[0].dims[0], columns = a->in[0].dims[1];
    double *loss = a->out[0].data;
    int32_t *hits = a->out[1].data;
    for (int i = 0; i < rows; i++) {
        const float *x = tensor_f32(&a->in[0]) + (size_t)i * columns,
                    *target = tensor_f32(&a->in[1]) + (size_t)i * columns;
        double sum = 0;
        for (int j = 0; j < columns; j++)
            sum += distance(a->p.loss.distance, x[j], target[j]);
        loss[i] = sum / columns;
        hits[i] = 0;
    }
}

void reference_mse_backward(const struct op_args *a) {
    int rows = a->in[0].dims[0], columns = a->in[0].dims[1];
    for (int i = 0; i < rows; i++) {
        const float *x = tensor_f32(&a->in[0]) + (size_t)i * columns,
                    *target = tensor_f32(&a->in[1]) + (size_t)i * columns;
        float *dx = tensor_f32(&a->out[0]) + (size_t)i * columns;
        double weight = row_weight(a, i) / columns;
        for (int j = 0; j < columns; j++)
            dx[j] = (float)(slope(a->p.loss.distance, x[j], target[j]) * weight);
    }
}

/* Adds one segment's rows in order. The trainer adds the sums of segments and ranks, in fold
 * order. */
void reference_loss_sum(const struct op_args *a) {
    const double *loss = a->in[0].data;
    const int32_t *hits = a->in[1].data;
    double loss_sum = 0;
    int64_t hit_sum = 0;
    for (int i = 0; i < a->in[0].dims[0]; i++) {
        loss_sum += loss[i];
        hit_sum += hits[i];
    }
    size_t cell = (size_t)a->step->row * a->out[0].dims[1] + a->p.loss.column;
    ((double *)a->out[0].data)[cell] = loss_sum / places_of(a);
    ((int64_t *)a->out[1].data)[cell] = hit_sum;
}
