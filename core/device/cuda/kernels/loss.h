/* Softmax and the losses, with 32 threads per row, in double from the scores to the row's loss, as
 * in the reference:
 *
 *     log_softmax(x)[j] = x[j] - max - log(sum over i of exp(x[i] - max))
 *     loss of a row     = -log_softmax(x)[label]
 *     d loss / d x[j]   = softmax(x)[j] - (j == label)
 *
 * and with label smoothing e over C classes
 *
 *     loss of a row     = (1 - e) * -log_softmax(x)[label]
 *                         - e / C * sum over j of log_softmax(x)[j]
 *     d loss / d x[j]   = softmax(x)[j] - (1 - e) * (j == label) - e / C
 *
 * With class weights w every -log_softmax(x)[j] is multiplied by w[j]; a row whose label is ignored
 * has loss 0 and no gradient.
 *
 * Lane l of the 32 lanes takes the columns l, l + 32, ...; then the lanes' parts are added in fold
 * order (base/fold.h). This order depends only on the number of classes, so a row's bits do not
 * depend on the number of rows. A label outside the row gives a NaN loss and NaN gradients instead
 * of a read past the row. */
#ifndef DEVICE_CUDA_KERNELS_LOSS_H
#define DEVICE_CUDA_KERNELS_LOSS_H

#include "device/cuda/kernels/kernel.h"

enum { ROW_LANES = 32, ROWS_A_BLOCK = 4, ROW_THREADS = ROW_LANES * ROWS_A_BLOCK };

/* scores is x, or log-probabilities (nll), or y, the output (softmax backward). dy is the gradient
 * of y, or the targets (mse.h). */
struct row_op {
    const float *scores, *dy, *dloss, *weights; /* weights: class weights; NULL: all are 1 */
    const int32_t *labels;
    float *out;
    double *loss;
    int32_t *hits;
    int rows, classes, reduction, distance, places, ignores, ignore_index;
    int log; /* 1: for softmax its logarithm; for cross entropy log-probabilities (nll_loss) */
    double smoothing; /* cross entropy */
    const struct step_block *step;
};

struct row_shared {
    double max[ROW_THREADS], sum[ROW_THREADS], smooth[ROW_THREADS];
    int32_t beaten[ROW_THREADS];
};

static inline struct row_op row_op_of(enum op op, const struct op_args *a) {
    struct row_op r = ZEROED;
    r.scores = tensor_f32(&a->in[0]);
    r.rows = a->in[0].dims[0], r.classes = a->in[0].dims[1], r.step = a->step;
    if (op == OP_CROSS_ENTROPY_FORWARD || op == OP_MSE_FORWARD)
        r.loss = (double *)a->out[0].data, r.hits = (int32_t *)a->out[1].data;
    else
        r.out = tensor_f32(&a->out[0]);
    if (op == OP_SOFTMAX_FORWARD || op == OP_SOFTMAX_BACKWARD) {
        r.log = a->p.softmax.log, r.dy = tensor_f32(&a->in[1]);
        return r;
    }
    if (op == OP_MSE_FORWARD || op == OP_MSE_BACKWARD)
        r.dy = tensor_f32(&a->in[1]);
    else
        r.labels = (const int32_t *)a->in[1].data;
    r.dloss = tensor_f32(&a->in[2]), r.weights = tensor_f32(&a->in[3]);
    r.ignores = a->p.loss.ignores, r.ignore_index = a->p.loss.ignore_index;
    r.reduction = a->p.loss.reduction, r.distance = a->p.loss.distance;
    r.places = a->p.loss.places > 1 ? a->p.loss.places : 1;
    if (op == OP_CROSS_ENTROPY_FORWARD || op == OP_CROSS_ENTROPY_BACKWARD)
        r.smoothing = a->p.loss.smoothing, r.log = a->p.loss.log_probabilities;
    return r;
}

/* Loops over the rows of a block, ROWS_A_BLOCK at a time. The bounds are the same for all its
 * threads. */
#define FOR_EACH_ROW_GROUP(first, p, at)                                \
    for (int first = (int)(at).block * ROWS_A_BLOCK; first < (p)->rows; \
         first += (int)(at).blocks * ROWS_A_BLOCK)

/* This thread's row, which may be beyond the last one, and its lane of the row. */
DUET_HD int row_of(int first, struct place at) {
    return first + (int)at.thread / ROW_LANES;
}

DUET_HD int lane_of(struct place at) {
    return (int)at.thread % ROW_LANES;
}

/* Lane 0's cell in shared memory, which holds the row's result after the tree. */
DUET_HD int row_cell(struct place at) {
    return (int)at.thread / ROW_LANES * ROW_LANES;
}

/* A NaN need not win here, since it makes the sum of exponentials a NaN anyway. */
DUET_HD double larger(double a, double b) {
    return b > a ? b : a;
}

/* The phases of a binary tree over the lanes of each row. */
#define ROW_FOLD(at, half)                          \
    for (int half = ROW_LANES / 2; half; half /= 2) \
    BLOCK_PHASE(at) if (lane_of(at) < half)

/* Puts each row's maximum and its sum of exp(x - max) into the row's cell. */
DUET_BLOCK void rows_softmax(const struct row_op *p, struct row_shared *shared, int first,
                             struct place at) {
    BLOCK_PHASE(at) {
        const float *x = p->scores + (size_t)row_of(first, at) * (size_t)p->classes;
        double max = -(double)INFINITY;
        for (int j = lane_of(at); j < p->classes && row_of(first, at) < p->rows; j += ROW_LANES)
            max = larger(max, x[j]);
        shared->max[at.thread] = max;
    }
    ROW_FOLD(at, half) {
        shared->max[at.thread] = larger(shared->max[at.thread], shared->max[at.thread + half]);
    }
    BLOCK_PHASE(at) {
        const float *x = p->scores + (size_t)row_of(first, at) * (size_t)p->classes;
        double max = shared->max[row_cell(at)], sum = 0;
        for (int j = lane_of(at); j < p->classes && row_of(first, at) < p->rows; j += ROW_LANES)
            sum += elementary_exp(x[j] - max);
        shared->sum[at.thread] = sum;
    }
    ROW_FOLD(at, half) {
        shared->sum[at.thread] += shared->sum[at.thread + half];
    }
}

DUET_HD int is_ignored(const struct row_op *p, int32_t label) {
    return p->ignores && label == p->ignore_index;
}

DUET_HD double class_weight(const struct row_op *p, int class_index) {
    return p->weights ? (double)p->weights[class_index] : 1;
}

/* After rows_softmax, puts the sum over all classes of -log_softmax times the weight into each
 * row's cell. Without label smoothing it does nothing. */
DUET_BLOCK void rows_smooth(const struct row_op *p, struct row_shared *shared, int first,
                            struct place at) {
    if (p->smoothing == 0) return;
    BLOCK_PHASE(at) {
        const float *x = p->scores + (size_t)row_of(first, at) * (size_t)p->classes;
        double max = shared->max[row_cell(at)], log_sum = elementary_log(shared->sum[row_cell(at)]),
               sum = 0;
        for (int j = lane_of(at); j < p->classes && row_of(first, at) < p->rows; j += ROW_LANES)
            sum += mul_f64(class_weight(p, j), log_sum - (x[j] - max));
        shared->smooth[at.thread] = sum;
    }
    ROW_FOLD(at, half) {
        shared->smooth[at.thread] += shared->smooth[at.thread + half];
    }
}

/* Puts the sum of all class weights, if any, into each row's cell. */
DUET_BLOCK void rows_weights(const struct row_op *p, struct row_shared *shared, int first,
                             struct place at) {
    (void)first;
    if (!p->weights) return;
    BLOCK_PHASE(at) {
        double sum = 0;
        for (int j = lane_of(at); j < p->classes; j += ROW_LANES)
            sum += p->weights[j];
        shared->smooth[at.thread] = sum;
    }
    ROW_FOLD(at, half) {
        shared->smooth[at.thread] += shared->smooth[at.thread + half];
    }
}

/* A score beats the label's score if it is larger, or equal and earlier. Puts the number of such
 * scores into each row's cell; 0 is a hit. A NaN never beats it, except as score 0, since the
 * reference's search starts there and would never leave it. */
DUET_BLOCK void rows_beaten(const struct row_op *p, struct row_shared *shared, int first,
                            struct place at) {
    BLOCK_PHASE(at) {
        const float *x = p->scores + (size_t)row_of(first, at) * (size_t)p->classes;
        int32_t beaten = 0, label = row_of(first, at) < p->rows ? p->labels[row_of(first, at)] : -1;
        if (label < 0 || label >= p->classes || is_ignored(p, label)) {
            beaten = 1;
        } else if (is_nan(x[0]) || is_nan(x[label])) {
            beaten = label != 0;
        } else {
            for (int j = lane_of(at); j < p->classes; j += ROW_LANES)
                beaten += j < label ? x[j] >= x[label] : x[j] > x[label];
        }
        shared->beaten[at.thread] = beaten;
    }
    ROW_FOLD(at, half) {
        shared->beaten[at.thread] += shared->beaten[at.thread + half];
    }
}

DUET_HD double row_weight(const struct row_op *p, int row) {
    switch (p->reduction) {
    case REDUCE_MEAN: return (double)p->step->weight / p->places;
    case REDUCE_SUM: return 1;
    default: return p->dloss[row];
    }
}

DUET_BLOCK void k_softmax_forward(const struct row_op *p, struct row_shared *shared,
                                  struct place at) {
    FOR_EACH_ROW_GROUP(first, p, at) {
        rows_softmax(p, shared, first, at);
        BLOCK_PHASE(at) {
            size_t start = (size_t)row_of(first, at) * (size_t)p->classes;
            double max = shared->max[row_cell(at)],
                   log_sum = elementary_log(shared->sum[row_cell(at)]);
            for (int j = lane_of(at); j < p->classes && row_of(first, at) < p->rows;
                 j += ROW_LANES) {
                double y = p->scores[start + (size_t)j] - max - log_sum;
                p->out[start + (size_t)j] = (float)(p->log ? y : elementary_exp(y));
            }
        }
    }
}

DUET_BLOCK void k_softmax_backward(const struct row_op *p, struct row_shared *shared,
                                   struct place at) {
    FOR_EACH_ROW_GROUP(first, p, at) {
        BLOCK_PHASE(at) {
            size_t start = (size_t)row_of(first, at) * (size_t)p->classes;
            double sum = 0;
            for (int j = lane_of(at); j < p->classes && row_of(first, at) < p->rows; j += ROW_LANES)
                sum += mul_f64(p->log ? 1 : p->scores[start + (size_t)j], p->dy[start + (size_t)j]);
            shared->sum[at.thread] = sum;
        }
        ROW_FOLD(at, half) {
            shared->sum[at.thread] += shared->sum[at.thread + half];
        }
        BLOCK_PHASE(at) {
            size_t start = (size_t)row_of(first, at) * (size_t)p->classes;
            double sum = shared->sum[row_cell(at)];
            for (int j = lane_of(at); j < p->classes && row_of(first, at) < p->rows;
                 j += ROW_LANES) {
                double y = p->scores[start + (size_t)j], dy = p->dy[start + (size_t)j];
                p->out[start + (size_t)j] =
                    (float)(p->log ? dy - mul_f64(elementary_exp(y), sum) : mul_f64(y, dy - sum));
            }
        }
    }
}

DUET_BLOCK void k_cross_entropy_forward(const struct row_op *p, struct row_shared *shared,
                                        struct place at) {
    FOR_EACH_ROW_GROUP(first, p, at) {
        if (!p->log) rows_softmax(p, shared, first, at);
        rows_smooth(p, shared, first, at);
        rows_beaten(p, shared, first, at);
        BLOCK_PHASE(at) {
            int row = row_of(first, at);
            if (lane_of(at) == 0 && row < p->rows) {
                const float *x = p->scores + (size_t)row * (size_t)p->classes;
                int32_t label = p->labels[row];
                int known = label >= 0 && label < p->classes;
                double loss = not_a_number();
                if (known)
                    loss = mul_f64(class_weight(p, label),
                                   p->log ? -(double)x[label]
                                          : elementary_log(shared->sum[at.thread]) -
                                                (x[label] - shared->max[at.thread]));
                if (p->smoothing != 0)
                    loss = mul_f64(1 - p->smoothing, loss) +
                           mul_f64(p->smoothing / p->classes, shared->smooth[at.thread]);
                p->loss[row] = is_ignored(p, label) ? 0 : loss;
                p->hits[row] = shared->beaten[at.thread] == 0;
            }
        }
    }
}

DUET_BLOCK void k_cross_entropy_backward(const struct row_op *p, struct row_shared *shared,
                                         struct place at) {
    FOR_EACH_ROW_GROUP(first, p, at) {
        if (!p->log) rows_softmax(p, shared, first, at);
        rows_weights(p, shared, first, at);
        BLOCK_PHASE(at) {
            int row = row_of(first, at);
            if (row < p->rows) {
                size_t start = (size_t)row * (size_t)p->classes;
                int32_t label = p->labels[row];
                double weight =
                    label >= 0 && label < p->classes ? row_weight(p, row) : not_a_number();
                double max = p->log ? 0 : shared->max[row_cell(at)],
                       log_sum = p->log ? 0 : elementary_log(shared->sum[row_cell(at)]);
                double spread = p->smoothing / p->classes, at_label = 1 - p->smoothing;
                double all = 1;
                if (p->weights && label >= 0 && label < p->classes)
                    all = mul_f64(at_label, class_weight(p, label)) +
                          mul_f64(spread, shared->smooth[row_cell(at)]);
                for (int j = lane_of(at); j < p->classes; j += ROW_LANES) {
                    double w = class_weight(p, j), target = j == label ? mul_f64(at_label, w) : 0;
                    double softmax =
                        p->log ? 0 : elementary_exp(p->scores[start + (size_t)j] - max - log_sum);
                    double d = mul_f64(softmax, all) - target - mul_f64(spread, w);
                    p->out[start + (size_t)j] =
                        is_ignored(p, label) ? 0 : (float)mul_f64(d, weight);
                }
            }
        }
    }
}

#endif
