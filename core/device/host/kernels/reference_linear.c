/* The fully connected layer: y[n][m] = b[m] + sum over k of w(m,k) * x[n][k].
 *
 * The weight matrix is stored as (M,K), as in PyTorch's Linear, or as (K,M), as in a formula X @ W.
 * Two strides serve both: w(m,k) = w[m * by_m + k * by_k]. A batch of images counts as (N, C*H*W),
 * so flattening costs nothing. */
#include "device/host/kernels/reference.h"

struct weight_strides {
    size_t by_m, by_k;
};

static struct weight_strides strides_of(const struct op_args *a, int outputs, int inputs) {
    if (a->p.linear.weight_is_in_out) return (struct weight_strides){1, (size_t)outputs};
    return (struct weight_strides){(size_t)inputs, 1};
}

void reference_linear_forward(const struct op_args *a) {
    const struct tensor *x = &a->in[0], *y = &a->out[0];
    int samples = y->dims[0], inputs = (int)tensor_sample_count(x),
        outputs = (int)tensor_sample_count(y);
    const float *w = tensor_f32(&a->in[1]), *b = tensor_f32(&a->in[2]);
    struct weight_strides s = strides_of(a, outputs, inputs);
    for (int n = 0; n < samples; n++)
        for (int m = 0; m < outputs; m++) {
            const float *row = tensor_f32(x) + (size_t)n * inputs;
            double sum = b[m];
            for (int k = 0; k < inputs; k++)
                sum += (double)w[m * s.by_m + k * s.by_k] * row[k];
            tensor_f32(y)[(size_t)n * outputs + m] = (float)sum;
        }
}

void reference_linear_backward_data(const struct op_args *a) {
    const struct tensor *dy = &a->in[0], *dx = &a->out[0];
    int samples = dy->dims[0], inputs = (int)tensor_sample_count(dx),
        outputs = (int)tensor_sample_count(dy);
    const float *w = tensor_f32(&a->in[1]);
    struct weight_strides s = strides_of(a, outputs, inputs);
    for (int n = 0; n < samples; n++)
        for (int k = 0; k < inputs; k++) {
            const float *row = tensor_f32(dy) + (size_t)n * outputs;
            double sum = 0;
            for (int m = 0; m < outputs; m++)
                sum += (double)w[m * s.by_m + k * s.by_k] * row[m];
            tensor_f32(dx)[(size_t)n * inputs + k] = (float)sum;
        }
}

void reference_linear_backward_weight(const struct op_args *a) {
    const struct tensor *x = &a->in[0], *dy = &a->in[1];
    int samples = dy->dims[0], inputs = (int)tensor_sample_count(x),
        outputs = (int)tensor_sample_count(dy);
    float *dw = tensor_f32(&a->out[0]), *db = tensor_f32(&a->out[1]);
    struct weight_strides s = strides_of(a, outputs, inputs);
    for (int m = 0; m < outputs; m++) {
        const float *column = tensor_f32(dy) + m;
        for (int k = 0; k < inputs; k++) {
            double sum = 0;
            for (int n = 0; n < samples; n++)
                sum += (double)column[(size_t)n * outputs] * tensor_f32(x)[(size_t)n * inputs + k];
            dw[m * s.by_m + k * s.by_k] = (float)sum;
        }
        double sum = 0;
        for (int n = 0; n < samples; n++)
            sum += column[(size_t)n * outputs];
        db[m] = (float)sum;
    }
}
