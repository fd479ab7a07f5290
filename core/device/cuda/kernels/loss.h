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
 * A label outside the row gives a NaN loss and NaN gradients instead of a read past the row. */
#ifndef DEVICE_CUDA_KERNELS_LOSS_H
#define DEVICE_CUDA_KERNELS_LOSS_H

#include "device/cuda/kernels/rows.h"

/* scores is x, or log-probabilities (nll), or y, the output (softmax backward). dy is the gradient
 * of y, or the targets (mse.h). */
struct row_op {
    const float *scores, *dy, *dloss, *weights; /* weights: class weights; NULL: all are 1 */
    const int32_t *labels;
    float *out;
    double *loss;
    int32_t *hits;
    int rows, columns, reduction, distance, positions, ignores, ignore_index;
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
    r.rows = a->in[0].dims[0], r.columns = a->in[0].dims[1], r.step = a->step;
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
    r.positions = a->p.loss.positions > 1 ? a->p.loss.positions : 1;
    if (op == OP_CROSS_ENTROPY_FORWARD || op == OP_CROSS_ENTROPY_BACKWARD)
        r.smoothing = a->p.loss.smoothing, r.log = a->p.loss.log_probabilities;
    return r;
}

/* A NaN need not win here, since it makes the sum of exponentials a NaN anyway. */
DUET_HD double larger(double a, double b) {
    return b > a ? b : a;
}

/* Puts each row's maximum and its sum of exp(x - max) into the row's cell. */
DUET_BLOCK void rows_softmax(const struct row_op *p, struct row_shared *shared, int first,
                             struct thread_index at) {
    BLOCK_PHASE(at) {
        const float *x = p->scores + (size_t)row_of(first, at) * (size_t)p->columns;
        double max = -(double)INFINITY;
        FOR_EACH_COLUMN(j, p, first, at)
        max = larger(max, x[j]);
        shared->max[at.thread] = max;
    }
    ROW_FOLD(at, half) {
        shared->max[at.thread] = larger(shared->max[at.thread], shared->max[at.thread + half]);
    }
    BLOCK_PHASE(at) {
        const float *x = p->scores + (size_t)row_of(first, at) * (size_t)p->columns;
        double max = shared->max[row_cell(at)], sum = 0;
        FOR_EACH_COLUMN(j, p, first, at)
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
                            struct thread_index at) {
    if (p->smoothing == 0) return;
    BLOCK_PHASE(at) {
        const float *x = p->scores + (size_t)row_of(first, at) * (size_t)p->columns;
        double max = shared->max[row_cell(at)], log_sum = elementary_log(shared->sum[row_cell(at)]),
               sum = 0;
        FOR_EACH_COLUMN(j, p, first, at)
        sum += class_weight(p, j) * (log_sum - (x[j] - max));
        shared->smooth[at.thread] = sum;
    }
    ROW_FOLD(at, half) {
        shared->smooth[at.thread] += shared->smooth[at.thread + half];
    }
}

/* Puts the sum of all class weights, if any, into each row's cell. */
DUET_BLOCK void rows_weights(const struct row_op *p, struct row_shared *shared, int first,
                             struct thread_index at) {
    (void)first;
    if (!p->weights) return;
    BLOCK_PHASE(at) {
        double sum = 0;
        for (int j = lane_of(at); j < p->columns; j += ROW_LANES)
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
                            struct thread_index at) {
    BLOCK_PHASE(at) {
        const float *x = p->scores + (size_t)row_of(first, at) * (size_t)p->columns;
        int32_t beaten = 0, label = row_of(first, at) < p->rows ? p->labels[row_of(first, at)] : -1;
        if (label < 0 || label >= p->columns || is_ignored(p, label)) {
            beaten = 1;
        } else if (is_nan(x[0]) || is_nan(x[label])) {
            beaten = label != 0;
        } else {
            for (int j = lane_of(at); j < p->columns; j += ROW_LANES)
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
    case REDUCE_MEAN: return (double)p->step->weight / p->positions;
    case REDUCE_SUM: return 1;
    default: return p->dloss[row];
    }
}

DUET_BLOCK void k_softmax_forward(const struct row_op *p, struct row_shared *shared,
                                  struct thread_index at) {
    FOR_EACH_ROW_GROUP(first, p, at) {
        rows_softmax(p, shared, first, at);
        BLOCK_PHASE(at) {
            size_t start = (size_t)row_of(first, at) * (size_t)p->columns;
            double max = shared->max[row_cell(at)],
                   log_sum = elementary_log(shared->sum[row_cell(at)]);
            FOR_EACH_COLUMN(j, p, first, at) {
                double y = p->scores[start + (size_t)j] - max - log_sum;
                p->out[start + (size_t)j] = (float)(p->log ? y : elementary_exp(y));
            }
        }
    }
}

DUET_BLOCK void k_softmax_backward(const struct row_op *p, struct row_shared *shared,
                                   struct thread_index at) {
    FOR_EACH_ROW_GROUP(first, p, at) {
        BLOCK_PHASE(at) {
            size_t start = (size_t)row_of(first, at) * (size_t)p->columns;
            double sum = 0;
            FOR_EACH_COLUMN(j, p, first, at)
            sum += p->log ? (double)p->dy[start + (size_t)j]
                          : (double)p->scores[start + (size_t)j] * p->dy[start + (size_t)j];
            shared->sum[at.thread] = sum;
        }
        ROW_FOLD(at, half) {
            shared->sum[at.thread] += shared->sum[at.thread + half];
        }
        BLOCK_PHASE(at) {
            size_t start = (size_t)row_of(first, at) * (size_t)p->columns;
            double sum = shared->sum[row_cell(at)];
            FOR_EACH_COLUMN(j, p, first, at) {
                double y = p->scores[start + (size_t)j], dy = p->dy[start + (size_t)j];
                p->out[start + (size_t)j] =
                    (float)(p->log ? dy - elementary_exp(y) * sum : y * (dy - sum));
            }
        }
    }
}

DUET_BLOCK void k_cross_entropy_forward(const struct row_op *p, struct row_shared *shared,
                                        struct thread_index at) {
    FOR_EACH_ROW_GROUP(first, p, at) {
        if (!p->log) rows_softmax(p, shared, first, at);
        rows_smooth(p, shared, first, at);
        rows_beaten(p, shared, first, at);
        BLOCK_PHASE(at) {
            int row = row_of(first, at);
            if (lane_of(at) == 0 && row < p->rows) {
                const float *x = p->scores + (size_t)row * (size_t)p->columns;
                int32_t label = p->labels[row];
                int known = label >= 0 && label < p->columns;
                double loss = not_a_number();
                if (known)
                    loss =
                        class_weight(p, label) * (p->log ? -(double)x[label]
                                                         : elementary_log(shared->sum[at.thread]) -
                                                               (x[label] - shared->max[at.thread]));
                if (p->smoothing != 0)
                    loss = (1 - p->smoothing) * loss +
                           p->smoothing / p->columns * shared->smooth[at.thread];
                p->loss[row] = is_ignored(p, label) ? 0 : loss;
                p->hits[row] = shared->beaten[at.thread] == 0;
            }
        }
    }
}

DUET_BLOCK void k_cross_entropy_backward(const struct row_op *p, struct row_shared *shared,
                                         struct thread_index at) {
    FOR_EACH_ROW_GROUP(first, p, at) {
        if (!p->log) rows_softmax(p, shared, first, at);
        rows_weights(p, shared, first, at);
        BLOCK_PHASE(at) {
            int row = row_of(first, at);
            if (row < p->rows) {
                size_t start = (size_t)row * (size_t)p->columns;
                int32_t label = p->labels[row];
                double weight =
                    label >= 0 && label < p->columns ? row_weight(p, row) : not_a_number();
                double max = p->log ? 0 : shared->max[row_cell(at)],
                       log_sum = p->log ? 0 : elementary_log(shared->sum[row_cell(at)]);
                double spread = p->smoothing / p->columns, at_label = 1 - p->smoothing;
                double all = 1;
                if (p->weights && label >= 0 && label < p->columns)
                    all = at_label * class_weight(p, label) + spread * shared->smooth[row_cell(at)];
                for (int j = lane_of(at); j < p->columns; j += ROW_LANES) {
                    double w = class_weight(p, j), target = j == label ? at_label * w : 0;
                    double softmax =
                        p->log ? 0 : elementary_exp(p->scores[start + (size_t)j] - max - log_sum);
                    double d = softmax * all - target - spread * w;
                    p->out[start + (size_t)j] = is_ignored(p, label) ? 0 : (float)(d * weight);
                }
            }
        }
    }
}

#endif
