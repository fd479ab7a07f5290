/* The mean of a loss with class weights or ignored labels. PyTorch divides the sum of the losses by
 * the weights of the labels that count:
 *
 *     mean = sum over rows of loss[i] / sum over rows of w[label[i]]
 *
 * The labels are known before the forward pass, but only on the device. So existing ops compute the
 * divisor there: the weights of the labels are rows of a table, in which the ignored class has
 * weight 0. A label outside the table reads NaN, which is not above -1, so it also counts as 0. */
#include "base/error.h"
#include "nn/tape/tape_internal.h"

/* The weights of the classes (C,1), in their own memory if a class is ignored. */
static int make_table(duet_tape *t, const struct op_args *loss, int classes, struct tensor *table) {
    const struct loss_args *p = &loss->p.loss;
    int ignored = p->ignores && p->ignore_index >= 0 && p->ignore_index < classes;
    if (loss->in[3].data && !ignored) {
        *table = tensor_seen_as(&loss->in[3], 2, classes, 1, 0);
        return OK;
    }
    *table = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, 2, (int[]){classes, 1});
    CHECK(tape_error(t));
    struct op_args fill = {.out[0] = *table, .p.fill.value = loss->in[3].data ? 0 : 1};
    CHECK(launch(t->stream, OP_FILL, &fill));
    if (loss->in[3].data) {
        struct op_args add = {.in = {*table, tensor_seen_as(&loss->in[3], 2, classes, 1, 0)},
                              .out[0] = *table};
        CHECK(launch(t->stream, OP_ADD_FORWARD, &add));
    }
    if (!ignored) return OK;
    fill.out[0] = tensor_plain(tensor_f32(table) + p->ignore_index, DTYPE_F32, 1, (int[]){1});
    fill.p.fill.value = 0;
    return launch(t->stream, OP_FILL, &fill);
}

/* The weight of each label (N,1). */
static int look_up(duet_tape *t, const struct tensor *table, const struct tensor *labels,
                   struct tensor *weights) {
    const int dims[] = {labels->dims[0], 1};
    struct tensor found = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, 2, dims),
                  is_class = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, 2, dims);
    *weights = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, 2, dims);
    CHECK(tape_error(t));
    struct op_args gather = {.in = {*table, *labels}, .out[0] = found},
                   above = {.in[0] = found,
                            .out[0] = is_class,
                            .p.activation = {.kind = ACTIVATION_ABOVE, .a = -1}},
                   choose = {.in = {is_class, found}, .out[0] = *weights, .p.fill.value = 0};
    CHECK(launch(t->stream, OP_GATHER_ROWS, &gather));
    CHECK(launch(t->stream, OP_ACTIVATION_FORWARD, &above));
    return launch(t->stream, OP_WHERE, &choose);
}

int tape_mean_by_weights(duet_tape *t, const struct op_args *loss, struct tensor *divisor,
                         struct tensor *dloss) {
    const struct tensor *labels = &loss->in[1];
    int rows = labels->dims[0];
    struct tensor table, weights, of_each;
    if (!rows) return OK;
    CHECK(make_table(t, loss, loss->in[0].dims[1], &table));
    CHECK(look_up(t, &table, labels, &weights));
    *divisor = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, 1, (int[]){1});
    of_each = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, 1, (int[]){1});
    *dloss = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, 1, (int[]){rows});
    CHECK(tape_error(t));
    struct op_args sum = {.in[0] = tensor_seen_as(&weights, 3, 1, rows, 1),
                          .out[0] = tensor_seen_as(divisor, 2, 1, 1, 0),
                          .p.sum.divide = 1},
                   invert = {.in[0] = *divisor,
                             .out[0] = of_each,
                             .p.activation.kind = ACTIVATION_RECIPROCAL},
                   spread = {.in[0] = tensor_seen_as(&of_each, 2, 1, 1, 0),
                             .out[0] = tensor_seen_as(dloss, 3, 1, rows, 1),
                             .p.sum.divide = 1};
    CHECK(launch(t->stream, OP_SUM, &sum));
    CHECK(launch(t->stream, OP_ACTIVATION_FORWARD, &invert));
    return launch(t->stream, OP_SPREAD, &spread);
}

/* The log has the sum over the samples of the mean over their positions; multiplied by the
 * positions, this is the sum over all rows. */
int tape_scale_to_mean(duet_tape *t, const duet_var *loss, double *sum) {
    const struct tensor *v = &loss->value;
    float divisor = 0;
    if (!sum || !loss->divisor.data) return OK;
    CHECK(copy_to_host(t->stream, &divisor, loss->divisor.data, sizeof divisor));
    CHECK(stream_sync(t->stream));
    *sum *= (double)t->segments.n * (v->rank > 1 ? v->dims[1] : 1) / (double)divisor;
    return OK;
}
