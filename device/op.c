/* Names and costs of operations. Flops are counted from the shapes alone, a multiply-add as two, so
 * that every kernel of every kind of device is measured against the same number. */
#include "device/op_table.h"

const char *op_name(enum op op) {
#define NAME_TEXT(NAME, name, text) [OP_##NAME] = text,
    static const char *const names[OP_COUNT] = {DEVICE_OPS(NAME_TEXT)};
#undef NAME_TEXT
    return (unsigned)op < OP_COUNT ? names[op] : "unknown op";
}

/* One multiply-add for each output pixel and each weight that contributes to it. The forward pass
 * and both gradients of a convolution consist of the same products, so they cost the same. */
static double conv_flops(const struct tensor *y, const struct tensor *w) {
    return 2.0 * (double)tensor_count(y) * (double)tensor_sample_count(w);
}

double flops_conv_forward(const struct op_args *a) {
    return conv_flops(&a->out[0], &a->in[1]);
}

double flops_conv_backward_data(const struct op_args *a) {
    return conv_flops(&a->in[0], &a->in[1]);
}

double flops_conv_backward_weight(const struct op_args *a) {
    return conv_flops(&a->in[1], &a->out[0]);
}

static double linear_flops(const struct tensor *batch, const struct tensor *w) {
    return 2.0 * batch->dims[0] * (double)tensor_count(w);
}

double flops_linear(const struct op_args *a) {
    return linear_flops(&a->in[0], &a->in[1]);
}

double flops_linear_backward_weight(const struct op_args *a) {
    return linear_flops(&a->in[0], &a->out[0]);
}

static double pool_flops(const struct op_args *a, const struct tensor *x, const struct tensor *y) {
    double size = a->p.pool.size;
    return (double)tensor_count(y) * size * size + (a->p.pool.relu ? (double)tensor_count(x) : 0);
}

double flops_pool_forward(const struct op_args *a) {
    return pool_flops(a, &a->in[0], &a->out[0]);
}

double flops_avg_pool_backward(const struct op_args *a) {
    return pool_flops(a, &a->out[0], &a->in[0]);
}

double flops_max_pool_backward(const struct op_args *a) {
    return pool_flops(a, &a->out[0], &a->in[1]);
}

/* one for each row */
double flops_rows(const struct op_args *a) {
    return (double)a->in[0].dims[0];
}

/* value -= lr * grad; with momentum buf = m * buf + grad, with dampening keep * grad; with nesterov
 * grad += m * buf; with decay grad += d * value */
double flops_sgd(const struct op_args *a) {
    const struct sgd_args *sgd = &a->p.sgd;
    int momentum = a->out[1].data != NULL, dampened = momentum && sgd->dampening != 0,
        nesterov = momentum && sgd->nesterov, decay = sgd->weight_decay != 0;
    return (double)tensor_count(&a->out[0]) *
           (2 + 2 * momentum + dampened + 2 * nesterov + 2 * decay);
}

/* a root and a quotient count one each */
double flops_adadelta(const struct op_args *a) {
    return (double)tensor_count(&a->out[0]) * (a->p.adadelta.weight_decay != 0 ? 18 : 16);
}

/* with decay grad += d * value, or in AdamW value *= keep */
double flops_adam(const struct op_args *a) {
    int decay = a->p.adam.weight_decay != 0 ? a->p.adam.decoupled ? 1 : 2 : 0;
    return (double)tensor_count(&a->out[0]) * (13 + decay);
}

/* divide, subtract, divide */
double flops_gather_samples(const struct op_args *a) {
    return (double)tensor_count(&a->out[0]) * (a->p.gather.std > 0 ? 3 : 1);
}

double flops_matmul(const struct op_args *a) {
    int depth = a->in[0].dims[a->p.matmul.turn_a ? 1 : 2];
    return 2.0 * (double)tensor_count(&a->out[0]) * depth;
}

double op_flops(enum op op, const struct op_args *args) {
    if ((unsigned)op >= OP_COUNT) return 0;
    const struct op_row *row = &op_table[op];
    if (row->flops) return row->flops(args);
    if (row->per_input > 0) return row->per_input * (double)tensor_count(&args->in[0]);
    return row->per_output > 0 ? row->per_output * (double)tensor_count(&args->out[0]) : 0;
}
