/* Names and costs of operations, from their table. Flops are counted only from the shapes, with two
 * for a multiply-add, so that every kernel on every kind of device is measured against the same
 * number. */
#include "device/op_table.h"

#include <stdio.h>
#include <string.h>

const char *op_name(enum op op) {
#define NAME_TEXT(NAME, name, text) [OP_##NAME] = text,
    static const char *const names[OP_COUNT] = {DEVICE_OPS(NAME_TEXT)};
#undef NAME_TEXT
    return (unsigned)op < OP_COUNT ? names[op] : "unknown op";
}

const char *op_name_of(enum op op, const struct op_args *args) {
    static const char *const conv[] = {"group conv forward", "group conv backward data",
                                       "group conv backward weight"},
                             *const forward[] = {"relu forward", "tanh forward", "sigmoid forward"},
                             *const backward[] = {"relu backward", "tanh backward",
                                                  "sigmoid backward"};
    if (op >= OP_CONV2D_FORWARD && op <= OP_CONV2D_BACKWARD_WEIGHT && args->p.conv.general)
        return conv[op - OP_CONV2D_FORWARD];
    if (op == OP_CROSS_ENTROPY_FORWARD && args->p.loss.log_probabilities) return "nll forward";
    if (op == OP_CROSS_ENTROPY_BACKWARD && args->p.loss.log_probabilities) return "nll backward";
    if (op == OP_ACTIVATION_FORWARD && activation_reads_result(args->p.activation.kind))
        return forward[args->p.activation.kind];
    if (op == OP_ACTIVATION_BACKWARD && activation_reads_result(args->p.activation.kind))
        return backward[args->p.activation.kind];
    return op_name(op);
}

const char *op_shape_text(const struct tensor *t, char text[SHAPE_TEXT]) {
    int used = snprintf(text, SHAPE_TEXT, "(");
    for (int d = 0; d < t->rank && d < MAX_RANK; d++)
        used += snprintf(text + used, (size_t)(SHAPE_TEXT - used), d ? ", %d" : "%d", t->dims[d]);
    snprintf(text + used, (size_t)(SHAPE_TEXT - used), ")");
    return text;
}

/* Forward, backward. A sigmoid is exp, add and divide. Those that read x in backward count as gelu,
 * the dearest: two products, and erfc as 3. */
double cost_activation(const struct op_args *a) {
    static const int of[][2] = {{1, 1}, {1, 3}, {3, 3}, {5, 12}};
    enum activation kind = a->p.activation.kind;
    return (double)tensor_count(&a->out[0]) *
           of[activation_reads_result(kind) ? kind : 3][a->in[1].data != NULL];
}

/* Forward, backward; for log-probabilities only a product per row, in backward. */
double cost_cross_entropy(const struct op_args *a) {
    const int back = a->out[1].data == NULL;
    if (a->p.loss.log_probabilities) return back ? a->in[0].dims[0] : 0;
    return (double)tensor_count(&a->in[0]) * (back ? 6 : 5);
}

/* One for each pixel of each window, and one for each of x if the pool includes a relu. */
double cost_pool(const struct op_args *a) {
    double windows = -1, pixels = 0;
    for (int i = 0; i < 3; i++) {
        const struct tensor *t = i < 2 ? &a->in[i] : &a->out[0];
        double count = t->data ? (double)tensor_count(t) : 0;
        if (t->data && (windows < 0 || count < windows)) windows = count;
        if (count > pixels) pixels = count;
    }
    return windows * a->p.pool.size[0] * a->p.pool.size[1] + (a->p.pool.relu ? pixels : 0);
}

/* value -= lr * grad; with momentum buf = m * buf + grad, with dampening keep * grad; with nesterov
 * grad += m * buf; with decay grad += d * value */
double cost_sgd(const struct op_args *a) {
    const struct sgd_args *sgd = &a->p.sgd;
    int momentum = a->out[1].data != NULL, dampened = momentum && sgd->dampening != 0,
        nesterov = momentum && sgd->nesterov, decay = sgd->weight_decay != 0;
    return (double)tensor_count(&a->out[0]) *
           (2 + 2 * momentum + dampened + 2 * nesterov + 2 * decay);
}

/* a root and a quotient count one each */
double cost_adadelta(const struct op_args *a) {
    return (double)tensor_count(&a->out[0]) * (a->p.adadelta.weight_decay != 0 ? 18 : 16);
}

/* with decay grad += d * value, or in AdamW value *= keep */
double cost_adam(const struct op_args *a) {
    int decay = a->p.adam.weight_decay != 0 ? a->p.adam.decoupled ? 1 : 2 : 0;
    return (double)tensor_count(&a->out[0]) * (13 + decay);
}

/* Two products of matrices forward; backward five, of which the first makes the scores again. */
double cost_attention(const struct op_args *a) {
    const int *q = a->in[0].dims, *v = a->in[2].dims;
    double weights = (double)q[0] * q[1] * q[2] * v[2], width = q[3], values = v[3];
    return 2 * weights * (a->in[6].data ? 3 * width + 2 * values : width + values);
}

/* By the first word of its name. The table of an embedding (gather) is float32. */
int op_autocast(enum op op) {
    static const char half[] = " conv2d linear matmul recurrent attention ",
                      full[] = " softmax layer cross mse sum gather embedding ";
    const char *name = op_name(op);
    char word[32];
    snprintf(word, sizeof word, " %.*s ", (int)strcspn(name, " "), name);
    return strstr(half, word) ? 1 : strstr(full, word) ? -1 : 0;
}
