/* Softmax, log-softmax and the losses, in layout PLAIN. They work row by row, so the bits of a row
 * do not depend on its neighbours. They are the same whether each device computes the loss of its
 * rows, or device 0 computes it for all gathered rows. */
#include "base/error.h"
#include "nn/tape/tape_internal.h"

static int softmax_backward(duet_tape *t, struct node *n) {
    struct op_args args = {.in = {tensor_rows(&n->y->value), tensor_rows(&n->y->grad)},
                           .out[0] = tensor_rows(&n->x->value),
                           .p = n->args.p};
    return tape_give(t, n->x, OP_SOFTMAX_BACKWARD, &args);
}

static duet_var *softmax(duet_tape *t, duet_var *x, int log) {
    x = to_plain(t, x);
    if (!x) return NULL;
    if (!x->value.dims[x->value.rank - 1])
        return tape_refuse(t, "softmax: over a dimension of 0 elements: check the model");
    struct node node = {
        .backward = softmax_backward, .op = OP_SOFTMAX_FORWARD, .x = x, .spares = SPARES_X};
    struct tensor y = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, x->value.rank, x->value.dims);
    node.args.in[0] = tensor_rows(&x->value);
    node.args.out[0] = tensor_rows(&y);
    node.args.p.softmax.log = log;
    if (t->error || tape_fail(t, launch(t->stream, OP_SOFTMAX_FORWARD, &node.args))) return NULL;
    return tape_append(t, &node, y, x->needs_grad);
}

duet_var *duet_softmax(duet_tape *t, duet_var *x) {
    return softmax(t, x, 0);
}

duet_var *duet_log_softmax(duet_tape *t, duet_var *x) {
    return softmax(t, x, 1);
}

/* dL/dy belongs to the phase `loss` in every mode, as in DP, where device 0 computes both. */
static int launch_as_loss(duet_tape *t, enum op op, const struct op_args *args) {
    enum phase before = stream_swap_phase(t->stream, PHASE_LOSS);
    int code = launch(t->stream, op, args);
    stream_swap_phase(t->stream, before);
    return code;
}

/* With MEAN and SUM the gradient of the loss itself is 1, and the weight is in the step block; with
 * NONE a gradient is given for each row, and likewise if the root's gradient was given. A weighted
 * mean has its gradient from the forward pass. */
static int loss_backward(duet_tape *t, struct node *n) {
    const enum op op = n->op == OP_MSE_FORWARD ? OP_MSE_BACKWARD : OP_CROSS_ENTROPY_BACKWARD;
    if (!n->x->needs_grad) return OK;
    struct op_args args = n->args;
    struct tensor dx = grad_target(t, n->x);
    args.out[0] = tensor_rows(&dx);
    args.out[1] = (struct tensor){0};
    CHECK(tape_error(t));
    if (n->y->grad.data || !args.in[2].data) args.in[2] = n->y->grad;
    if (args.in[2].data) args.p.loss.reduction = REDUCE_NONE;
    if (args.p.loss.reduction == REDUCE_NONE && !args.in[2].data)
        return fail(
            ERR_USAGE,
            "loss: with reduction none each sample has a loss: give backward a gradient for each");
    CHECK(launch_as_loss(t, op, &args));
    return grad_done(t, n->x, &dx);
}

/* In PyTorch's words, which users search for. Only if the kernel has already run and its results
 * are in host memory: it does not wait for an asynchronous device, whose loss is then NaN. */
static int check_labels(const duet_tape *t, enum op op, const struct tensor *labels, int classes,
                        const struct loss_args *p) {
    const struct device_config *config = device_config(t->device);
    const int32_t *label = labels->data;
    if (op == OP_MSE_FORWARD || config->kind != DEVICE_HOST || config->async) return OK;
    for (int i = 0; i < labels->dims[0]; i++)
        if ((label[i] < 0 || label[i] >= classes) && !(p->ignores && label[i] == p->ignore_index))
            return fail(ERR_USAGE,
                        "%s: Target %d is out of bounds: give labels 0 to %d, or set "
                        "ignore_index",
                        p->log_probabilities ? "nll loss" : "cross entropy", label[i], classes - 1);
    return OK;
}

static struct tensor in_a_row(const struct tensor *x) {
    return tensor_seen_as(x, 1, (int)tensor_count(x), 0, 0);
}

struct wanted_loss {
    struct loss_args p;
    const duet_tensor *weight; /* one weight per class; NULL: none */
    int divides;               /* 1: MEAN divides by the weights of this pass's labels */
};

/* A sample has one row, or one per position of x, (N,P,C). */
static duet_var *loss(duet_tape *t, duet_var *x, const duet_tensor *answers,
                      const struct wanted_loss *wanted, enum op op) {
    x = to_plain(t, x);
    if (!x || tape_fail(t, tape_check_samples(t, &x->value))) return NULL;
    int rank = x->value.rank - 1, positions = rank > 1 ? x->value.dims[1] : 1;
    struct tensor losses = tape_tensor(t, DTYPE_F64, LAYOUT_PLAIN, rank, x->value.dims),
                  hits = tape_tensor(t, DTYPE_I32, LAYOUT_PLAIN, rank, x->value.dims);
    struct tensor divisor = {0};
    struct node node = {.backward = loss_backward, .op = op, .x = x, .args.p.loss = wanted->p};
    node.args.in[0] = tensor_rows(&x->value);
    if (wanted->weight) node.args.in[3] = wanted->weight->t;
    node.args.in[1] = op == OP_MSE_FORWARD ? answers->t : in_a_row(&answers->t);
    node.args.out[0] = in_a_row(&losses);
    node.args.out[1] = in_a_row(&hits);
    node.args.step = t->step.step;
    node.args.p.loss.positions = positions;
    if (t->error || tape_fail(t, launch(t->stream, op, &node.args)) ||
        tape_fail(t, check_labels(t, op, &node.args.in[1], node.args.in[0].dims[1], &wanted->p)))
        return NULL;
    if (wanted->divides &&
        tape_fail(t, tape_mean_by_weights(t, &node.args, &divisor, &node.args.in[2])))
        return NULL;
    node.y = tape_var(t, losses, x->needs_grad);
    if (!node.y) return NULL;
    node.y->hits = hits;
    step_arena_hold(&t->arena, hits.data);
    node.y->divisor = divisor;
    node.y->reduction = (enum reduction)wanted->p.reduction;
    return tape_node(t, &node) ? NULL : node.y;
}

_Static_assert(DUET_MEAN == (int)REDUCE_MEAN && DUET_SUM == (int)REDUCE_SUM &&
                   DUET_NONE == (int)REDUCE_NONE,
               "duet.h repeats the reductions of device/op.h");

static int check_reduction(const char *op, enum duet_reduction r) {
    return (unsigned)r <= DUET_NONE
               ? OK
               : fail(ERR_USAGE, "%s: reduction %d: expected DUET_MEAN, DUET_SUM or DUET_NONE", op,
                      (int)r);
}

static int check_loss(const duet_tape *t, const char *op, const duet_var *x,
                      const duet_tensor *labels, enum duet_reduction r) {
    CHECK(tape_operand(t, op, "labels", labels, DTYPE_I32));
    CHECK(check_reduction(op, r));
    const struct tensor *v = &x->value, *l = &labels->t;
    if (v->dtype != DTYPE_F32 || v->rank < 2)
        return fail(ERR_USAGE, "%s: scores of %s, of %s: must be (samples, classes), of float32",
                    op, SHAPE(v), dtype_name(v->dtype));
    int same = l->rank == v->rank - 1 && l->dims[0] == v->dims[0];
    for (int i = 1; same && i < l->rank; i++)
        same = l->dims[i] == v->dims[i + 1];
    if (same) return OK;
    return fail(ERR_USAGE, "%s: labels of %s for scores of %s: give one for each sample%s", op,
                SHAPE(l), SHAPE(v), v->rank > 2 ? " and position" : "");
}

static int check_options(const duet_tape *t, const char *op, const struct tensor *x,
                         const struct duet_loss_options *o, int log_probabilities) {
    if (log_probabilities && o->label_smoothing != 0)
        return fail(ERR_USAGE, "%s: label_smoothing %g: only cross_entropy has it: give 0", op,
                    o->label_smoothing);
    if (!(o->label_smoothing >= 0 && o->label_smoothing <= 1))
        return fail(ERR_USAGE, "%s: label_smoothing must be between 0.0 and 1.0. Got: %g", op,
                    o->label_smoothing);
    if (!o->weight) return OK;
    CHECK(tape_operand(t, op, "weight", o->weight, DTYPE_F32));
    if (o->weight->t.rank == 1 && o->weight->t.dims[0] == x->dims[1]) return OK;
    return fail(ERR_USAGE, "%s: weight of %s for scores of %s: give one for each of %d classes", op,
                SHAPE(&o->weight->t), SHAPE(x), x->dims[1]);
}

static int check_targets(const duet_tape *t, const duet_var *x, const duet_tensor *targets,
                         enum duet_reduction r, const char *name) {
    CHECK(tape_operand(t, name, "targets", targets, DTYPE_F32));
    CHECK(check_reduction(name, r));
    if (x->value.rank == 2 && targets->t.rank == 2 && targets->t.dims[0] == x->value.dims[0] &&
        targets->t.dims[1] == x->value.dims[1])
        return OK;
    return fail(ERR_USAGE, "%s: targets of %s for outputs of %s: both must be (samples, numbers)",
                name, SHAPE(&targets->t), SHAPE(&x->value));
}

/* (N,C,d1,...) as (N,P,C), in which the scores of a position are a row. */
static duet_var *positions_of(duet_tape *t, duet_var *x) {
    int order[MAX_RANK] = {0}, rank = x->value.rank, classes = x->value.dims[1];
    if (rank == 2) return x;
    for (int i = 1; i < rank; i++)
        order[i] = i < rank - 1 ? i + 1 : 1;
    int dims[3] = {x->value.dims[0], (int)tensor_sample_count(&x->value) / classes, classes};
    x = duet_permute(t, x, order);
    return x ? tape_view(t, x, 3, dims) : NULL;
}

static struct wanted_loss wanted(const struct duet_loss_options *o, enum duet_reduction r,
                                 int log_probabilities) {
    return (struct wanted_loss){.p = {.reduction = (enum reduction)r,
                                      .log_probabilities = log_probabilities,
                                      .smoothing = o->label_smoothing,
                                      .ignores = o->ignores,
                                      .ignore_index = o->ignore_index},
                                .weight = o->weight};
}

/* A model that ends in log-probabilities has no label smoothing: models/forward.c gives none. */
duet_var *tape_loss_of_step(duet_tape *t, duet_var *x, const duet_tensor *labels,
                            const struct duet_loss_options *o, int log_probabilities) {
    const struct wanted_loss w = wanted(o, DUET_MEAN, log_probabilities);
    return tape_failed(t, x) ? NULL : loss(t, x, labels, &w, OP_CROSS_ENTROPY_FORWARD);
}

/* Labels of DUET_IGNORED do not count by default. Then a mean divides by fewer, which the host
 * counts if it can see them; on an asynchronous device the mean is NaN. */
static void ignore_by_default(const duet_tape *t, struct wanted_loss *w, const duet_tensor *labels,
                              int mean) {
    const struct device_config *config = device_config(t->device);
    const int32_t *label = labels->t.data;
    size_t count = tensor_count(&labels->t), i = 0;
    int seen = config->kind == DEVICE_HOST && !config->async;
    while (seen && i < count && label[i] != DUET_IGNORED)
        i++;
    if (mean && !w->divides && (!seen || i == count)) return;
    w->p.ignores = 1, w->p.ignore_index = DUET_IGNORED;
    w->divides = mean;
}

/* The options of a program. A weighted mean is over the labels of this pass. */
static duet_var *loss_of_program(duet_tape *t, const char *op, duet_var *x,
                                 const duet_tensor *labels, enum duet_reduction r,
                                 const struct duet_loss_options *given, int log_probabilities) {
    static const struct duet_loss_options none = {.weight = NULL};
    const struct duet_loss_options *o = given ? given : &none;
    if (tape_failed(t, x) || tape_fail(t, check_loss(t, op, x, labels, r)) ||
        tape_fail(t, check_options(t, op, &x->value, o, log_probabilities)))
        return NULL;
    struct wanted_loss w = wanted(o, r, log_probabilities);
    w.divides = r == DUET_MEAN && (o->weight || o->ignores);
    if (!o->ignores) ignore_by_default(t, &w, labels, r == DUET_MEAN);
    return loss(t, positions_of(t, x), labels, &w, OP_CROSS_ENTROPY_FORWARD);
}

duet_var *duet_cross_entropy(duet_tape *t, duet_var *scores, const duet_tensor *labels,
                             enum duet_reduction r, const struct duet_loss_options *options) {
    return loss_of_program(t, "cross entropy", scores, labels, r, options, 0);
}

duet_var *duet_nll_loss(duet_tape *t, duet_var *log_probabilities, const duet_tensor *labels,
                        enum duet_reduction r, const struct duet_loss_options *options) {
    return loss_of_program(t, "nll loss", log_probabilities, labels, r, options, 1);
}

static duet_var *loss_of_targets(duet_tape *t, duet_var *x, const duet_tensor *targets,
                                 enum duet_reduction r, enum distance distance, const char *name) {
    if (tape_failed(t, x) || tape_fail(t, check_targets(t, x, targets, r, name))) return NULL;
    const struct wanted_loss w = {.p = {.reduction = (enum reduction)r, .distance = distance}};
    return loss(t, x, targets, &w, OP_MSE_FORWARD);
}

duet_var *duet_mse_loss(duet_tape *t, duet_var *x, const duet_tensor *targets,
                        enum duet_reduction r) {
    return loss_of_targets(t, x, targets, r, DISTANCE_SQUARED, "mse loss");
}

duet_var *duet_smooth_l1_loss(duet_tape *t, duet_var *x, const duet_tensor *targets,
                              enum duet_reduction r) {
    return loss_of_targets(t, x, targets, r, DISTANCE_SMOOTH_L1, "smooth l1 loss");
}

duet_var *duet_binary_cross_entropy_with_logits(duet_tape *t, duet_var *x,
                                                const duet_tensor *targets, enum duet_reduction r) {
    return loss_of_targets(t, x, targets, r, DISTANCE_LOGISTIC, "binary cross entropy");
}

int tape_loss_reduction(const duet_var *loss, enum reduction *r) {
    if (!loss->hits.data)
        return fail(ERR_USAGE, "loss: the value is not from a loss function: give the "
                               "result of one, such as duet_cross_entropy");
    *r = loss->reduction;
    return OK;
}

static int log_segments(duet_tape *t, const duet_var *loss, const struct tensor *losses,
                        const struct tensor *hits) {
    const struct tensor *row_hits = &loss->hits;
    for (int s = 0; s < t->segments.count; s++) {
        const struct tensor part = tensor_segment(&loss->value, &t->segments, s),
                            part_hits = tensor_segment(row_hits, &t->segments, s);
        struct op_args args = {
            .in = {in_a_row(&part), in_a_row(&part_hits)},
            .out = {*losses, *hits},
            .step = t->step.step,
            .p.loss = {.column = s, .positions = part.rank > 1 ? part.dims[1] : 1}};
        CHECK(launch(t->stream, OP_LOSS_SUM, &args));
    }
    return OK;
}

int tape_log_loss(duet_tape *t, const duet_var *loss, const struct tensor *losses,
                  const struct tensor *hits) {
    CHECK(tape_error(t));
    const struct tensor *row_hits = &loss->hits;
    if (!row_hits->data)
        return tape_fail(t, fail(ERR_FAILED, "log loss: the value is not from a loss function"));
    return tape_fail(t, log_segments(t, loss, losses, hits));
}
