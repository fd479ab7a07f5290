/* The mean squared error and similar losses (enum distance), with 32 threads per row as in loss.h,
 * and in double as in the reference:
 *
 *     loss of a row   = sum over j of distance(x[j], target[j]) / M
 *     d loss / d x[j] = slope(x[j], target[j]) / M
 *
 * The order of the sum depends only on the number of columns. In struct row_op the targets are in
 * dy. */
#ifndef DEVICE_CUDA_KERNELS_MSE_H
#define DEVICE_CUDA_KERNELS_MSE_H

#include "device/cuda/kernels/loss.h"

DUET_HD double row_distance(const struct row_op *p, double x, double target) {
    double far = fabs(x - target);
    if (p->distance == DISTANCE_SMOOTH_L1) return far < 1 ? far * far / 2 : far - .5;
    if (p->distance == DISTANCE_LOGISTIC)
        return x * ((x > 0 ? 1 : 0) - target) + elementary_log1p(elementary_exp(-fabs(x)));
    return far * far;
}

DUET_HD double row_slope(const struct row_op *p, double x, double target) {
    double off = x - target;
    if (p->distance == DISTANCE_SMOOTH_L1) return fabs(off) >= 1 ? copysign(1.0, off) : off;
    if (p->distance == DISTANCE_LOGISTIC) return 1 / (1 + elementary_exp(-x)) - target;
    return 2 * off;
}

DUET_BLOCK void k_mse_forward(const struct row_op *p, struct row_shared *shared,
                              struct thread_index at) {
    FOR_EACH_ROW_GROUP(first, p, at) {
        BLOCK_PHASE(at) {
            size_t start = (size_t)row_of(first, at) * (size_t)p->columns;
            double sum = 0;
            FOR_EACH_COLUMN(j, p, first, at)
            sum += row_distance(p, p->scores[start + (size_t)j], p->dy[start + (size_t)j]);
            shared->sum[at.thread] = sum;
        }
        ROW_FOLD(at, half) {
            shared->sum[at.thread] += shared->sum[at.thread + half];
        }
        BLOCK_PHASE(at) {
            int row = row_of(first, at);
            if (lane_of(at) == 0 && row < p->rows) {
                p->loss[row] = shared->sum[at.thread] / p->columns;
                p->hits[row] = 0;
            }
        }
    }
}

/* It has no sum, so it does not use `shared`. */
DUET_BLOCK void k_mse_backward(const struct row_op *p, struct row_shared *shared,
                               struct thread_index at) {
    (void)shared;
    FOR_EACH_ROW_GROUP(first, p, at) {
        BLOCK_PHASE(at) {
            int row = row_of(first, at);
            if (row < p->rows) {
                size_t start = (size_t)row * (size_t)p->columns;
                double weight = row_weight(p, row) / p->columns;
                for (int j = lane_of(at); j < p->columns; j += ROW_LANES)
                    p->out[start + (size_t)j] = (float)(row_slope(p, p->scores[start + (size_t)j],
                                                                  p->dy[start + (size_t)j]) *
                                                        weight);
            }
        }
    }
}

#endif
