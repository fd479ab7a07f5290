/* Computes losses row by row, in double. Losses with labels are in softmax_rows.inc.h, losses
 * between numbers here. A row's bits do not depend on the number of rows. */
#include "device/host/kernels/reference.h"

#include <math.h>

#include "device/host/kernels/softmax_rows.inc.h"

#define BY_ROWS(name)                                \
    void reference_##name(const struct op_args *a) { \
        row_##name(a);                               \
    }
BY_ROWS(softmax_forward)
BY_ROWS(softmax_backward)
BY_ROWS(cross_entropy_forward)
BY_ROWS(cross_entropy_backward)

/* The distance from a number to its target, and its slope. e^-|x| does not overflow: log(1 + e^x) -
 * x t = x (1 - t) + log(1 + e^-|x|) for x above 0, and without the 1 below. */
static double distance(int kind, double x, double target) {
    double far = fabs(x - target);
    switch (kind) {
    case DISTANCE_SMOOTH_L1: return far < 1 ? far * far / 2 : far - .5;
    case DISTANCE_LOGISTIC:
        return x * ((x > 0) - target) + elementary_log1p(elementary_exp(-fabs(x)));
    default: return far * far;
    }
}

static double slope(int kind, double x, double target) {
    double off = x - target;
    switch (kind) {
    case DISTANCE_SMOOTH_L1: return fabs(off) >= 1 ? copysign(1, off) : off; /* keeps NaN */
    case DISTANCE_LOGISTIC: return 1 / (1 + elementary_exp(-x)) - target;
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
    ((double *)a->out[0].data)[cell] = loss_sum / positions_of(a);
    ((int64_t *)a->out[1].data)[cell] = hit_sum;
}
