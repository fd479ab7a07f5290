/* Softmax, log-softmax and the losses, in plain layout. They work row by row, so the bits of a row
 * do not depend on its neighbours: each device may compute the loss of its rows, or device 0 that
 * of all gathered rows, with the same bits. */
#include "base/error.h"
#include "nn/tape_internal.h"

/* x seen as rows of its last dimension. */
static struct tensor rows_of(const struct tensor *x) {
    int width = x->dims[x->rank - 1], rest = 1;
    for (int i = 0; i < x->rank - 1; i++)
        rest *= x->dims[i];
    return tensor_plain(x->data, x->dtype, 2, (int[]){rest, width});
}

static int rows_backward(struct tape *t, struct node *n, enum op op) {
    if (!n->x->needs_grad) return OK;
    struct tensor dx = grad_target(t, n->x);
    struct op_args args = {.in = {rows_of(&n->y->value), rows_of(&n->y->grad)},
                           .out[0] = rows_of(&dx)};
    CHECK(tape_error(t));
    CHECK(launch(t->stream, op, &args));
    return grad_done(t, n->x, &dx);
}

static int softmax_backward(struct tape *t, struct node *n) {
    return rows_backward(t, n, OP_SOFTMAX_BACKWARD);
}

static int log_softmax_backward(struct tape *t, struct node *n) {
    return rows_backward(t, n, OP_LOG_SOFTMAX_BACKWARD);
}

static struct var *rows(struct tape *t, struct var *x, enum op op, node_backward *backward) {
    x = to_plain(t, x);
    if (!x) return NULL;
    if (!x->value.dims[x->value.rank - 1]) {
        tape_fail(t, fail(ERR_USAGE, "softmax: over a dimension of 0 elements: check the model"));
        return NULL;
    }
    struct node node = {.backward = backward, .x = x};
    struct tensor y = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, x->value.rank, x->value.dims);
    node.args.in[0] = rows_of(&x->value);
    node.args.out[0] = rows_of(&y);
    if (t->error || tape_fail(t, launch(t->stream, op, &node.args))) return NULL;
    node.y = tape_var(t, y, x->needs_grad);
    return tape_node(t, &node) ? NULL : node.y;
}

struct var *softmax(struct tape *t, struct var *x) {
    return rows(t, x, OP_SOFTMAX_FORWARD, softmax_backward);
}

struct var *log_softmax(struct tape *t, struct var *x) {
    return rows(t, x, OP_LOG_SOFTMAX_FORWARD, log_softmax_backward);
}

/* With MEAN and SUM the gradient of the loss itself is 1, and the weight is in the step block; with
 * NONE a gradient is given for each row, and so it is where a root's gradient was given. */
static int loss_backward(struct tape *t, struct node *n, enum op op) {
    if (!n->x->needs_grad) return OK;
    struct op_args args = n->args;
    args.in[2] = n->y->grad;
    args.out[0] = grad_target(t, n->x);
    args.out[1] = (struct tensor){0};
    CHECK(tape_error(t));
    if (args.in[2].data) args.p.loss.reduction = REDUCE_NONE;
    if (args.p.loss.reduction == REDUCE_NONE && !args.in[2].data)
        return fail(
            ERR_USAGE,
            "loss: reduction none leaves a loss a sample: give backward a gradient for each");
    CHECK(launch(t->stream, op, &args));
    return grad_done(t, n->x, &args.out[0]);
}

static int cross_entropy_backward(struct tape *t, struct node *n) {
    return loss_backward(t, n, OP_CROSS_ENTROPY_BACKWARD);
}

static int nll_backward(struct tape *t, struct node *n) {
    return loss_backward(t, n, OP_NLL_BACKWARD);
}

static int mse_backward(struct tape *t, struct node *n) {
    return loss_backward(t, n, OP_MSE_BACKWARD);
}

/* answers: labels (N or more), or of the mean squared error targets (N or more, M). */
static int check_answers(const struct tensor *x, const struct tensor *answers, int rank) {
    if (answers->rank != rank || answers->dims[0] < x->dims[0])
        return fail(ERR_FAILED, "loss: %d %s for %d samples: give one each", answers->dims[0],
                    rank == 1 ? "labels" : "rows of targets", x->dims[0]);
    if (rank == 1 || (x->rank == rank && x->dims[1] == answers->dims[1])) return OK;
    return fail(ERR_USAGE,
                "mse_loss: targets of %d numbers for outputs of rank %d with %d: give "
                "targets of the outputs' shape",
                answers->dims[1], x->rank, x->dims[1]);
}

static struct var *loss(struct tape *t, struct var *x, const struct tensor *answers,
                        enum reduction r, double smoothing, enum op op, node_backward *backward) {
    x = to_plain(t, x);
    if (x && tape_fail(t, tape_check_samples(t, &x->value))) return NULL;
    if (!x || tape_fail(t, check_answers(&x->value, answers, op == OP_MSE_FORWARD ? 2 : 1)))
        return NULL;
    int n = x->value.dims[0];
    struct node node = {.backward = backward, .x = x};
    node.args.in[0] = x->value;
    node.args.in[1] = *answers;
    node.args.in[1].dims[0] = n; /* the buffer of answers may be larger than this batch */
    node.args.out[0] = tape_tensor(t, DTYPE_F64, LAYOUT_PLAIN, 1, &n);
    node.args.out[1] = tape_tensor(t, DTYPE_I32, LAYOUT_PLAIN, 1, &n);
    node.args.step = t->step.step;
    node.args.p.loss = (struct loss_args){.reduction = r, .smoothing = smoothing};
    if (t->error || tape_fail(t, launch(t->stream, op, &node.args))) return NULL;
    node.y = tape_var(t, node.args.out[0], x->needs_grad);
    if (!node.y) return NULL;
    ((struct tape_var *)node.y)->hits = node.args.out[1];
    ((struct tape_var *)node.y)->reduction = r;
    return tape_node(t, &node) ? NULL : node.y;
}

struct var *cross_entropy(struct tape *t, struct var *scores, const struct tensor *labels,
                          enum reduction r) {
    return cross_entropy_smoothed(t, scores, labels, r, 0);
}

struct var *cross_entropy_smoothed(struct tape *t, struct var *scores, const struct tensor *labels,
                                   enum reduction r, double label_smoothing) {
    return loss(t, scores, labels, r, label_smoothing, OP_CROSS_ENTROPY_FORWARD,
                cross_entropy_backward);
}

struct var *nll_loss(struct tape *t, struct var *log_probabilities, const struct tensor *labels,
                     enum reduction r) {
    return loss(t, log_probabilities, labels, r, 0, OP_NLL_FORWARD, nll_backward);
}

struct var *mse_loss(struct tape *t, struct var *x, const struct tensor *targets,
                     enum reduction r) {
    return loss(t, x, targets, r, 0, OP_MSE_FORWARD, mse_backward);
}

int tape_loss_reduction(const struct var *loss, enum reduction *r) {
    const struct tape_var *v = (const struct tape_var *)loss;
    if (!v->hits.data)
        return fail(ERR_USAGE, "loss: the value given was made by no loss, such as "
                               "cross_entropy: give what that returned");
    *r = v->reduction;
    return OK;
}

static int log_segments(struct tape *t, const struct var *loss, const struct tensor *losses,
                        const struct tensor *hits) {
    const struct tensor *row_hits = &((const struct tape_var *)loss)->hits;
    for (int s = 0; s < t->segments.count; s++) {
        struct op_args args = {.in[0] = tensor_segment(&loss->value, &t->segments, s),
                               .in[1] = tensor_segment(row_hits, &t->segments, s),
                               .out = {*losses, *hits},
                               .step = t->step.step,
                               .p.loss = {.column = s}};
        CHECK(launch(t->stream, OP_LOSS_SUM, &args));
    }
    return OK;
}

/* Nothing in the step waits for the sums: backward reads the loss of each sample, and the host asks
 * for the log later. */
int tape_log_loss(struct tape *t, const struct var *loss, const struct tensor *losses,
                  const struct tensor *hits) {
    CHECK(tape_error(t));
    const struct tensor *row_hits = &((const struct tape_var *)loss)->hits;
    if (!row_hits->data)
        return tape_fail(t, fail(ERR_FAILED, "log loss: the value given was made by no loss"));
    int code = stream_aside_begin(t->stream);
    if (!code) code = log_segments(t, loss, losses, hits);
    CHECK_KEEP(stream_aside_end(t->stream), code);
    return tape_fail(t, code);
}
