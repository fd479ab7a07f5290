/* BatchNorm on the tape, and SyncBatchNorm. reference_norm.c has the formulas, and syncbn/ supplies
 * the segments of other ranks.
 *
 *     training   forward    each segment: moments | merged over all segments, if synchronised |
 *                           running statistics | factors, y
 *                backward   each segment: sums | dw, db | added up over all segments, if
 *                           synchronised | factors, dx
 *     eval       one set of moments, made from the running statistics, serves every segment. Such
 *                a layer may be in a training pass; dx is then dy, scaled, since no sum depends
 *                on x
 *
 * A segment is a virtual device (base/segment.h), so unsynchronised BatchNorm normalises the same
 * samples as one replica of DataParallel or one rank of DDP. Running statistics come from a
 * device's first segment, and the saved ones from device 0, as in PyTorch. With SyncBatchNorm they
 * cover all ranks. */
#include "base/error.h"
#include "base/text/text.h"
#include "nn/tape/tape_internal.h"

/* Matrix s of a (S, rows, C) tensor: a view. */
static struct tensor matrix(const struct tensor *t, int s) {
    struct tensor m = tensor_plain(NULL, t->dtype, 2, t->dims + 1);
    m.data = (char *)t->data + (size_t)s * tensor_bytes(&m);
    return m;
}

static struct tensor matrices(duet_tape *t, enum dtype dtype, int count, int rows, int channels) {
    return tape_tensor(t, dtype, LAYOUT_PLAIN, 3, (int[]){count, rows, channels});
}

/* 1 if all segments are normalised by the same moments. */
static int is_shared(const struct node *n) {
    return n->moments.dims[0] == 1;
}

/* The moments that normalise segment s: its own, or those of all. */
static struct tensor moments_of(const struct node *n, int s) {
    return matrix(&n->moments, is_shared(n) ? 0 : s);
}

/* ---- the matrices of the segments ---- */

/* 1 if the running statistics normalise and do not change. */
static int is_eval(const duet_tape *t, const struct norm_config *config) {
    return !t->step.training || config->eval;
}

/* 1 if the segments of other ranks count, too. */
static int is_exchanged(const duet_tape *t, const struct norm_config *config) {
    return t->exchange.segments && config->synchronised && !config->eval;
}

/* Takes memory for a matrix per segment: the tape's own segments, or those of all ranks. */
static int take_parts(duet_tape *t, int exchanged, int rows, int channels, struct tensor *parts) {
    if (exchanged) return t->exchange.parts(t->exchange.context, rows, channels, parts);
    *parts = matrices(t, DTYPE_F64, t->segments.count, rows, channels);
    return t->error;
}

/* The matrix of segment s among those parts. */
static struct tensor part(const duet_tape *t, const struct tensor *parts, int s) {
    if (parts->dims[0] == t->segments.count) return matrix(parts, s);
    return matrix(parts, t->exchange.segment >= 0 ? t->exchange.segment : t->segments.seg[s].v);
}

static int make_moments(duet_tape *t, struct node *n, struct tensor *parts) {
    for (int s = 0; s < t->segments.count; s++) {
        struct op_args args = {.in[0] = tensor_segment(&n->x->value, &t->segments, s),
                               .out[0] = part(t, parts, s)};
        CHECK(launch(t->stream, OP_BATCH_NORM_MOMENTS, &args));
    }
    return OK;
}

static int merge(duet_tape *t, struct node *n, const struct tensor *parts) {
    struct op_args args = {.in[0] = *parts, .out[0] = matrix(&n->moments, 0)};
    return launch(t->stream, OP_BATCH_NORM_MERGE, &args);
}

/* A device tracks the statistics of its first segment, unless that is empty. Device 0's, which are
 * those of virtual device 0, are the ones that DataParallel keeps and DDP broadcasts. */
static int track(duet_tape *t, const struct node *n, const struct norm_config *config) {
    int none = !config->synchronised && !t->segments.seg[0].n;
    if (none || !config->running.data) return OK;
    struct op_args args = {.in[0] = moments_of(n, 0),
                           .out = {config->running, config->batches},
                           .p.norm = n->args.p.norm};
    scheduled_additions(t->stream, 1); /* num_batches_tracked += 1 */
    return launch(t->stream, OP_BATCH_NORM_TRACK, &args);
}

static int normalise(duet_tape *t, struct node *n) {
    scheduled_more_operations(t->stream, (n->x2 != NULL) + n->args.p.norm.relu);
    for (int s = 0; s < t->segments.count; s++) {
        int first = t->arena.number;
        struct tensor factors =
            tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, 2, (int[]){2, n->x->value.dims[1]});
        struct op_args make = {.in = {moments_of(n, s), n->w->value, n->b->value},
                               .out[0] = factors,
                               .p.norm = n->args.p.norm};
        struct op_args apply = {.in = {tensor_segment(&n->x->value, &t->segments, s), factors},
                                .out[0] = tensor_segment(&n->args.out[0], &t->segments, s),
                                .p.norm = n->args.p.norm};
        if (n->x2) apply.in[2] = tensor_segment(&n->x2->value, &t->segments, s);
        CHECK(t->error);
        CHECK(launch(t->stream, OP_BATCH_NORM_FACTORS, &make));
        CHECK(launch(t->stream, OP_BATCH_NORM_FORWARD, &apply));
        CHECK(step_arena_release(&t->arena, first, t->arena.number));
    }
    return OK;
}

/* ---- backward ---- */

static int segment_grads(duet_tape *t, const struct node *n, int s, const struct tensor *dw,
                         const struct tensor *db) {
    struct op_args args = {.in = {part(t, &n->sums, s), moments_of(n, s)},
                           .out = {*dw, *db},
                           .p.norm = n->args.p.norm};
    return launch(t->stream, OP_BATCH_NORM_BACKWARD_WEIGHT, &args);
}

static int make_sums(duet_tape *t, struct node *n) {
    for (int s = 0; s < t->segments.count; s++) {
        struct op_args args = {.in = {tensor_segment(&n->x->value, &t->segments, s),
                                      tensor_segment(&n->y->grad, &t->segments, s),
                                      moments_of(n, s)},
                               .out[0] = part(t, &n->sums, s)};
        CHECK(launch(t->stream, OP_BATCH_NORM_SUMS, &args));
    }
    return OK;
}

/* The sums of all segments, into fresh memory. */
static int add_up(duet_tape *t, struct node *n, struct tensor *total) {
    *total = tape_tensor(t, DTYPE_F64, LAYOUT_PLAIN, 2, (int[]){2, n->x->value.dims[1]});
    CHECK(t->error);
    struct op_args args = {.in[0] = n->sums, .out[0] = *total};
    return launch(t->stream, OP_BATCH_NORM_TOTAL, &args);
}

/* In place of sums: dx of a layer in eval mode depends on none. */
static int no_sums(duet_tape *t, const struct node *n, struct tensor *sums) {
    *sums = tape_tensor(t, DTYPE_F64, LAYOUT_PLAIN, 2, (int[]){2, n->x->value.dims[1]});
    struct tensor as_floats =
        tensor_plain(sums->data, DTYPE_F32, 2, (int[]){4, n->x->value.dims[1]});
    CHECK(t->error);
    return tensor_zero(t->device, &as_floats);
}

/* dx of one segment from the sums that it depends on. */
static int segment_dx(duet_tape *t, struct node *n, int s, const struct tensor *sums,
                      const struct tensor *dx) {
    int first = t->arena.number;
    struct tensor factors =
        tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, 2, (int[]){4, n->x->value.dims[1]});
    struct op_args make = {
        .in = {*sums, moments_of(n, s), n->w->value}, .out[0] = factors, .p.norm = n->args.p.norm};
    struct op_args apply = {.in = {tensor_segment(&n->x->value, &t->segments, s),
                                   tensor_segment(&n->y->grad, &t->segments, s), factors},
                            .out[0] = tensor_segment(dx, &t->segments, s)};
    CHECK(t->error);
    CHECK(launch(t->stream, OP_BATCH_NORM_BACKWARD_FACTORS, &make));
    CHECK(launch(t->stream, OP_BATCH_NORM_BACKWARD_DATA, &apply));
    return step_arena_release(&t->arena, first, t->arena.number);
}

/* The gradient before the relu, in place of y's if allowed; the residual shares it. */
static int through_relu(duet_tape *t, struct node *n) {
    struct tensor dy = n->y->grad, masked = grad_may_reuse(t, n->y) ? dy : grad_target(t, n->y);
    struct op_args args = {
        .in = {n->y->value, dy}, .out[0] = masked, .p.activation.kind = ACTIVATION_RELU};
    int shared = n->x2 && n->x2->needs_grad;
    CHECK(t->error);
    CHECK(launch(t->stream, OP_ACTIVATION_BACKWARD, &args));
    scheduled_more_operations(t->stream, n->x2 ? 2 : 1); /* the sum's and the norm's own */
    CHECK(grad_set(t, n->y, &masked));
    return shared ? grad_share(t, n->x2, &masked) : OK;
}

static int batch_norm_backward(duet_tape *t, struct node *n) {
    if (n->args.p.norm.relu) CHECK(through_relu(t, n));
    int segments = t->segments.count, channels = n->x->value.dims[1];
    CHECK(take_parts(t, n->exchanged, 2, channels, &n->sums));
    CHECK(make_sums(t, n));
    if (n->exchanged) CHECK(t->exchange.gather(t->exchange.context, &n->sums));
    CHECK(tape_weight_grads(t, OP_BATCH_NORM_BACKWARD_WEIGHT, n));
    if (!n->x->needs_grad) return OK;
    struct tensor dx = grad_may_reuse(t, n->y) ? n->y->grad : grad_target(t, n->x);
    CHECK(tape_error(t));
    struct tensor total = matrix(&n->sums, 0);
    if (n->eval)
        CHECK(no_sums(t, n, &total));
    else if (is_shared(n))
        CHECK(add_up(t, n, &total));
    for (int s = 0; s < segments; s++) {
        struct tensor sums = is_shared(n) ? total : matrix(&n->sums, s);
        CHECK(segment_dx(t, n, s, &sums, &dx));
    }
    return grad_done(t, n->x, &dx);
}

/* ---- the layer ---- */

static int check_batch_norm(const duet_tape *t, const duet_var *x, const struct param *w,
                            const struct norm_config *config) {
    const struct tensor *v = &x->value;
    if ((v->rank != 2 && v->rank != 4) || w->value.dims[0] != v->dims[1])
        return fail(ERR_USAGE,
                    "batch_norm %s: %d channels do not suit an input of %s: check the model",
                    w->spec->name, w->value.dims[0], SHAPE(v));
    if (is_eval(t, config) && !config->running.data)
        return fail(ERR_USAGE, "batch_norm %s: eval needs running statistics: give them",
                    w->spec->name);
    return OK;
}

/* PyTorch's error if a segment has one value per channel; synchronised: if the batch of all ranks
 * has. Then one rank has all of it, and that rank fails. */
static int check_count(const duet_tape *t, const duet_var *x, const struct norm_config *config) {
    const int *d = x->value.dims;
    size_t spatial = tensor_sample_count(&x->value) / (size_t)d[1];
    int others = is_exchanged(t, config) ? t->step.global_n - t->segments.n : 0;
    int one = config->synchronised && !others && (size_t)d[0] * spatial == 1;
    for (int s = 0; s < t->segments.count && !config->synchronised; s++)
        one |= (size_t)tensor_segment(&x->value, &t->segments, s).dims[0] * spatial == 1;
    if (!one) return OK;
    char size[64];
    text_sizes(size, sizeof size, x->value.rank, (const int[4]){1, d[1], d[2], d[3]});
    return fail(ERR_FAILED,
                "Expected more than 1 value per channel when training, got input size "
                "torch.Size([%s]): %s has one sample: use a larger batch, or drop the last batch "
                "of an epoch if it is smaller",
                size, config->synchronised ? "the batch of all devices" : "a device's batch");
}

static int batch_norm_forward(duet_tape *t, struct node *n, const struct norm_config *config) {
    int segments = t->segments.count, channels = n->x->value.dims[1];
    int one = is_eval(t, config) || config->synchronised;
    n->moments = matrices(t, DTYPE_F64, one ? 1 : segments, 3, channels);
    CHECK(t->error);
    if (is_eval(t, config)) {
        struct op_args args = {.in[0] = config->running, .out[0] = matrix(&n->moments, 0)};
        CHECK(launch(t->stream, OP_BATCH_NORM_OF_RUNNING, &args));
    } else if (config->synchronised) {
        struct tensor parts;
        CHECK(take_parts(t, n->exchanged, 3, channels, &parts));
        CHECK(make_moments(t, n, &parts));
        if (n->exchanged) CHECK(t->exchange.gather(t->exchange.context, &parts));
        CHECK(merge(t, n, &parts));
    } else {
        CHECK(make_moments(t, n, &n->moments));
    }
    if (!is_eval(t, config)) CHECK(track(t, n, config));
    return normalise(t, n);
}

struct norm_config norm_config_default(const struct buffer *b) {
    struct norm_config config = {.epsilon = 1e-5, .momentum = 0.1, .batches = b[2].value};
    int dims[2] = {2, b[0].value.dims[0]};
    config.running = tensor_plain(b[0].value.data, DTYPE_F32, 2, dims);
    return config;
}

/* The residual in the device's layout; x is converted after it. */
static duet_var *residual_of(duet_tape *t, duet_var *x, duet_var *residual) {
    residual = to_device_layout(t, residual);
    if (tape_stuck(t, x) || !residual || tensor_same_shape(&x->value, &residual->value))
        return residual;
    return tape_refuse(t, "add: a tensor of %s and one of %s: check the model", SHAPE(&x->value),
                       SHAPE(&residual->value));
}

duet_var *batch_norm(duet_tape *t, duet_var *x, struct param *w, struct param *b,
                     const struct norm_config *config) {
    duet_var *residual = config->residual ? residual_of(t, x, config->residual) : NULL;
    x = t->error ? NULL : to_device_layout(t, x);
    if (!x || tape_check_params(t, "batch_norm", w, b) ||
        tape_fail(t, check_batch_norm(t, x, w, config)))
        return NULL;
    if (!is_eval(t, config) && tape_fail(t, check_count(t, x, config))) return NULL;
    struct node node = {.backward = batch_norm_backward,
                        .op = OP_BATCH_NORM_FORWARD,
                        .spares = config->relu ? SPARES_X2 : SPARES_X2 | SPARES_Y,
                        .segment_grads = segment_grads,
                        .x = x,
                        .x2 = residual,
                        .w = w,
                        .b = b,
                        .exchanged = is_exchanged(t, config),
                        .eval = is_eval(t, config)};
    node.args.p.norm = (struct norm_args){config->epsilon, config->momentum, config->relu};
    node.args.out[0] = tape_tensor(t, DTYPE_F32, x->value.layout, x->value.rank, x->value.dims);
    if (t->error || tape_fail(t, batch_norm_forward(t, &node, config))) return NULL;
    return tape_append(t, &node, node.args.out[0],
                       tape_needs_grad(x, w, b) || (residual && residual->needs_grad));
}

/* ---- the function of duet.h ---- */

/* The running statistics are adjacent, like buffers of one shape. */
static int find_running(duet_tape *t, int i, int channels, struct tensor *running) {
    struct buffer_set *set = t->buffers;
    const int dims[2] = {2, channels};
    *running = (struct tensor){0};
    if (i == DUET_NO_BUFFERS) return OK;
    if (!set || i < 0 || i >= set->count - 1)
        return fail(ERR_USAGE, "batch_norm: buffers %d and %lld: the module has %d", i, i + 1LL,
                    set ? set->count : 0);
    for (int k = i; k <= i + 1; k++) {
        const struct buffer_spec *spec = set->buffer[k].spec;
        if (spec->dtype != DTYPE_F32 || spec->rank != 1 || spec->dims[0] != channels)
            return fail(ERR_USAGE, "batch_norm: buffer %s: must be %d numbers", spec->name,
                        channels);
    }
    *running = tensor_plain(set->buffer[i].value.data, DTYPE_F32, 2, dims);
    return OK;
}

/* The kernel counts batches in num_batches_tracked, the buffer after the running variance. If there
 * is none, it counts into memory of the step, which nobody reads: the count matters only if
 * momentum is None. */
static int find_batches(duet_tape *t, int i, struct norm_config *config) {
    const int one = 1, words = 2;
    if (!config->running.data) return OK;
    if (i + 2 < t->buffers->count) {
        const struct buffer *b = &t->buffers->buffer[i + 2];
        config->batches = b->value;
        if (b->spec->dtype == DTYPE_I64 && !b->spec->rank) return OK;
    }
    if (!(config->momentum >= 0))
        return fail(ERR_USAGE,
                    "batch_norm: momentum %g: the mean of all batches needs their number: "
                    "register num_batches_tracked, an int64 of rank 0, behind the running variance",
                    config->momentum);
    config->batches = tape_tensor(t, DTYPE_I64, LAYOUT_PLAIN, 1, &one);
    CHECK(tape_error(t));
    struct tensor bits = tensor_plain(config->batches.data, DTYPE_F32, 1, &words);
    return tensor_zero(t->device, &bits);
}

duet_var *duet_batch_norm(duet_tape *t, duet_var *x, int w, int b, int running, double eps,
                          double momentum, int eval) {
    if (tape_failed(t, x)) return NULL;
    struct param *weight = tape_param_at(t, "batch_norm", w, 1),
                 *bias = tape_param_at(t, "batch_norm", b, 1);
    struct norm_config config = {
        .epsilon = eps, .momentum = momentum, .synchronised = t->sync_bn, .eval = eval};
    if (!(eps >= 0)) tape_fail(t, fail(ERR_USAGE, "batch_norm: eps %g: give at least 0", eps));
    if (!weight || !bias || t->error ||
        tape_fail(t, find_running(t, running, weight->value.dims[0], &config.running)) ||
        tape_fail(t, find_batches(t, running, &config)))
        return NULL;
    return batch_norm(t, x, weight, bias, &config);
}
