/* Names and costs of operations. Flops are counted from the shapes alone, a multiply-add as two, so
 * that every kernel of every kind of device is measured against the same number. */
#include "device/op.h"

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

static double linear_flops(const struct tensor *batch, const struct tensor *w) {
    return 2.0 * batch->dims[0] * (double)tensor_count(w);
}

/* value -= lr * grad; with momentum buf = m * buf + grad, with dampening keep * grad; with nesterov
 * grad += m * buf; with decay grad += d * value. */
static double sgd_flops(const struct sgd_args *sgd, const void *momentum) {
    int dampened = momentum && sgd->dampening != 0, nesterov = momentum && sgd->nesterov;
    return 2.0 + (momentum ? 2.0 : 0.0) + dampened + (nesterov ? 2.0 : 0.0) +
           (sgd->weight_decay != 0 ? 2.0 : 0.0);
}

static double adam_flops(const struct adam_args *adam) {
    double decay = adam->decoupled ? 1 : 2; /* value *= keep, or grad += d * value */
    return 13.0 + (adam->weight_decay != 0 ? decay : 0);
}

double op_flops(enum op op, const struct op_args *args) {
    const struct tensor *in = args->in, *out = args->out;
    double size = args->p.pool.size; /* used where the op is a pool */
    switch (op) {
    case OP_CONV2D_FORWARD: return conv_flops(&out[0], &in[1]);
    case OP_CONV2D_BACKWARD_DATA: return conv_flops(&in[0], &in[1]);
    case OP_CONV2D_BACKWARD_WEIGHT: return conv_flops(&in[1], &out[0]);
    case OP_LINEAR_FORWARD:
    case OP_LINEAR_BACKWARD_DATA: return linear_flops(&in[0], &in[1]);
    case OP_LINEAR_BACKWARD_WEIGHT: return linear_flops(&in[0], &out[0]);
    case OP_AVG_POOL_FORWARD:
    case OP_MAX_POOL_FORWARD: return (double)tensor_count(&out[0]) * size * size;
    case OP_AVG_POOL_BACKWARD: return (double)tensor_count(&in[0]) * size * size;
    case OP_MAX_POOL_BACKWARD: return (double)tensor_count(&in[1]) * size * size;
    /* an addition for each pixel of x, where windows lie side by side */
    case OP_ADAPTIVE_AVG_POOL_FORWARD: return (double)tensor_count(&in[0]);
    case OP_ADAPTIVE_AVG_POOL_BACKWARD: return (double)tensor_count(&out[0]);
    case OP_SOFTMAX_FORWARD:
    case OP_SOFTMAX_BACKWARD: return 4.0 * (double)tensor_count(&in[0]);
    case OP_LOG_SOFTMAX_FORWARD:
    case OP_CROSS_ENTROPY_FORWARD: /* max, subtract, exp, add, subtract */
        return 5.0 * (double)tensor_count(&in[0]);
    case OP_LOG_SOFTMAX_BACKWARD: /* add, exp, multiply, subtract */
        return 4.0 * (double)tensor_count(&in[0]);
    case OP_CROSS_ENTROPY_BACKWARD: return 6.0 * (double)tensor_count(&in[0]);
    case OP_MSE_FORWARD:
    case OP_MSE_BACKWARD: /* subtract, multiply, and add or multiply */
        return 3.0 * (double)tensor_count(&in[0]);
    case OP_SGD: return (double)tensor_count(&out[0]) * sgd_flops(&args->p.sgd, out[1].data);
    case OP_ADADELTA: /* a root and a quotient count one each */
        return (double)tensor_count(&out[0]) * (args->p.adadelta.weight_decay != 0 ? 18.0 : 16.0);
    case OP_ADAM: return (double)tensor_count(&out[0]) * adam_flops(&args->p.adam);
    case OP_BATCH_NORM_MOMENTS: /* add; subtract, multiply, add */
    case OP_BATCH_NORM_SUMS: return 4.0 * (double)tensor_count(&in[0]);
    case OP_BATCH_NORM_FORWARD: return 2.0 * (double)tensor_count(&in[0]);
    case OP_BATCH_NORM_BACKWARD_DATA: return 5.0 * (double)tensor_count(&in[0]);
    case OP_RELU_FORWARD:
    case OP_RELU_BACKWARD:
    case OP_ADD_FORWARD:
    case OP_DROPOUT_FORWARD:
    case OP_DROPOUT_BACKWARD:
    case OP_DROPOUT2D_FORWARD:
    case OP_DROPOUT2D_BACKWARD:
    case OP_ADD:
    case OP_SCALE: return (double)tensor_count(&out[0]);
    case OP_GATHER_SAMPLES: /* divide, subtract, divide */
        return (double)tensor_count(&out[0]) * (args->p.gather.std > 0 ? 3 : 1);
    case OP_NLL_BACKWARD:
    case OP_LOSS_SUM: return (double)in[0].dims[0];
    case OP_BATCH_NORM_MERGE: /* a few for each channel */
    case OP_BATCH_NORM_OF_RUNNING:
    case OP_BATCH_NORM_TRACK:
    case OP_BATCH_NORM_FACTORS:
    case OP_BATCH_NORM_TOTAL:
    case OP_BATCH_NORM_BACKWARD_WEIGHT:
    case OP_BATCH_NORM_BACKWARD_FACTORS:
    case OP_TO_N16:
    case OP_TO_PLAIN:
    case OP_NLL_FORWARD:
    case OP_GATHER_ROWS:
    case OP_FILL:
    case OP_HASH:
    case OP_COUNT: break;
    }
    return 0;
}
