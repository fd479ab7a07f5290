/* A pass is forward and backward on the tape, for programs and for the command's replicas. This
 * file keeps the first error, tells the reducer of the parameters (DDP) when a pass begins and when
 * its gradients are complete, and reads results back.
 *
 * A program's pass is one segment. Its virtual device is the number of the device, so dropout draws
 * different masks on different devices. A replica supplies the segments of its virtual devices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "nn/tape/tape_internal.h"

int pass_note_ready(void *context, int index) {
    const struct duet_tape *t = context;
    return t->owner ? params_gradient_ready(t->owner, index) : OK;
}

static int build(duet_tape *t) {
    const int one[2] = {1, 1};
    t->losses = tensor_plain(NULL, DTYPE_F64, 2, one);
    t->hits = tensor_plain(NULL, DTYPE_I64, 2, one);
    tape_set_hook(t, pass_note_ready, t);
    CHECK(device_alloc(t->device, (void **)&t->block, sizeof *t->block, MEM_WORKSPACE));
    CHECK(device_alloc(t->device, &t->losses.data, tensor_bytes(&t->losses), MEM_WORKSPACE));
    CHECK(device_alloc(t->device, &t->hits.data, tensor_bytes(&t->hits), MEM_WORKSPACE));
    /* An empty pass, so that a forgotten duet_tape_begin is an error and not a crash. */
    return duet_tape_begin(t, NULL, 0, DUET_EVALUATE);
}

int duet_tape_create(duet_tape **out, duet_device *device) {
    duet_tape *t;
    CHECK_OUT(out);
    if (!device) return fail(ERR_USAGE, "tape: no device was given");
    CHECK(tape_init(&t, device_of(device)));
    int code = build(t);
    if (code)
        duet_tape_free(t);
    else
        *out = t;
    return code;
}

/* ---- errors ---- */

int duet_tape_error(duet_tape *t) {
    if (!t) return fail(ERR_USAGE, "tape is NULL");
    return tape_error(t);
}

/* A forward function runs inside a pass that its caller began and will continue. */
static int belongs_to_others(const duet_tape *t) {
    return t->inside_model || t->inside_forward;
}

static int refuse_remote(const duet_tape *t, const char *function) {
    return t->remote
               ? fail(ERR_USAGE,
                      "%s: this tape belongs to a duet_autograd_context: its pass has begun, and "
                      "it ends with duet_autograd_backward",
                      function)
               : OK;
}

void duet_tape_seed(duet_tape *t, uint64_t seed) {
    if (t && !tape_fail(t, refuse_remote(t, "duet_tape_seed"))) t->seed = seed;
}

int pass_refuse_inside(duet_tape *t, const char *function) {
    return tape_fail(t, fail(ERR_USAGE,
                             "%s: the forward function of a model has called it: return the "
                             "scores, the rest is done by %s",
                             function, t->inside_model ? "the command" : "duet_data_parallel"));
}

/* ---- a pass ---- */

static int check_begin(struct duet_tape *t, const duet_params *params, int samples,
                       enum duet_pass pass) {
    if (samples < 0 || samples > MOST_SAMPLES)
        return fail(ERR_USAGE, "tape: %d samples: give 0 to %d", samples, MOST_SAMPLES);
    if (pass != DUET_TRAIN && pass != DUET_EVALUATE && pass != DUET_EVALUATE_MODULE)
        return fail(ERR_USAGE,
                    "tape: pass %d: expected DUET_EVALUATE, DUET_TRAIN or DUET_EVALUATE_MODULE",
                    (int)pass);
    if (params && params->set.device != t->device)
        return fail(ERR_USAGE,
                    "tape: the parameters are on %s, the tape on %s: give both one device",
                    device_name(params->set.device), device_name(t->device));
    return OK;
}

/* A new update begins after the last pass of another, or if their number changes. */
static void begin_update(duet_tape *t) {
    if (t->pass_of_update == t->passes_of_update || t->passes_of_next) t->pass_of_update = 0;
    if (!t->pass_of_update) t->update = now_ns();
    if (t->passes_of_next) t->passes_of_update = t->passes_of_next;
    t->passes_of_next = 0;
}

int pass_enter(duet_params *params, const struct tape_step *step, int32_t number) {
    const struct grad_reducer *reducer = params ? params->reducer : NULL;
    if (!reducer) return OK;
    return reducer->enter(reducer->context, number, step->training && !step->add_grads,
                          step->training && !step->more_passes);
}

int pass_begin(duet_tape *t, duet_params *params, const struct tape_step *step) {
    struct tape_step with = *step;
    t->owner = params;
    t->buffers = params ? &params->buffers : NULL;
    t->layers = params ? params->layers : NULL;
    t->layer_count = params ? params->layer_count : 0;
    t->dropout = -1;
    t->sync_bn = params && params->sync;
    tape_set_exchange(t, t->sync_bn ? params->sync->exchange : NULL);
    t->went_back = 0;
    if (params) params->in_use |= step->training;
    with.params = params ? &params->set : NULL;
    return tape_begin(t, &with) ? tape_error(t) : OK;
}

int duet_tape_begin(duet_tape *t, duet_params *params, int samples, enum duet_pass pass) {
    if (!t) return fail(ERR_USAGE, "tape is NULL");
    if (belongs_to_others(t)) return pass_refuse_inside(t, "duet_tape_begin");
    CHECK(refuse_remote(t, "duet_tape_begin"));
    int code = check_begin(t, params, samples, pass);
    if (code) { /* leaves the pass empty, so nothing of the previous pass can be used */
        params = NULL;
        samples = 0;
        pass = DUET_EVALUATE;
    }
    begin_update(t);
    int trains = pass == DUET_TRAIN;
    const struct segments segments = {
        .count = 1, .n = samples, .seg = {{device_index(t->device), samples}}};
    struct step_block block = {
        .seed = t->seed, .step = t->passes, .weight = samples ? 1.0f / (float)samples : 0};
    struct tape_step step = {.segments = &segments,
                             .step = t->block,
                             .training = trains,
                             .add_grads = trains && t->pass_of_update > 0,
                             .more_passes = trains && t->pass_of_update + 1 < t->passes_of_update};
    if (!code && pass != DUET_EVALUATE_MODULE) code = pass_enter(params, &step, NO_STEP);
    t->passes += trains;
    CHECK(pass_begin(t, params, &step));
    tape_fail(t, code);
    tape_fail(t, stream_write(device_compute(t->device), t->block, &block, sizeof block));
    return duet_tape_error(t);
}

static duet_var *enter(duet_tape *t, const char *op, const duet_tensor *x, int needs_grad) {
    if (!t || t->error || tape_fail(t, tape_operand(t, op, "tensor", x, DTYPE_F32))) return NULL;
    return tape_leaf(t, &x->t, needs_grad);
}

duet_var *duet_input(duet_tape *t, const duet_tensor *x) {
    if (t && !t->error && x && x->t.dims[0] != t->segments.n)
        return tape_refuse(t, "input: %d samples: duet_tape_begin was given %d: give as many",
                           x->t.dims[0], t->segments.n);
    return enter(t, "input", x, 0);
}

duet_var *duet_leaf(duet_tape *t, const duet_tensor *x) {
    if (t && t->leaf_count == MOST_LEAVES)
        return tape_refuse(t, "leaf: a pass has at most %d leaves: use duet_input", MOST_LEAVES);
    duet_var *leaf = enter(t, "leaf", x, 1);
    if (leaf) t->leaves[t->leaf_count++] = leaf;
    return leaf;
}

/* ---- backward ---- */

/* A gradient that no backward of this update wrote is still that of an earlier one. An optimizer
 * leaves its parameter alone. */
static int zero_unused(duet_tape *t) {
    struct param_set *set = t->step.params;
    if (t->owner) memcpy(t->owner->has_grad, t->has_grad, (size_t)set->count);
    return param_set_zero_unused(set, t->has_grad);
}

int duet_tape_accumulate(duet_tape *t, int passes) {
    enum { MOST = 1 << 20 };
    if (!t) return fail(ERR_USAGE, "tape is NULL");
    if (belongs_to_others(t)) return pass_refuse_inside(t, "duet_tape_accumulate");
    CHECK(refuse_remote(t, "duet_tape_accumulate"));
    if (passes < 1 || passes > MOST)
        return fail(ERR_USAGE, "accumulate: %d passes: give 1 to %d", passes, (int)MOST);
    t->passes_of_next = passes; /* the current pass, if any, keeps its settings */
    return OK;
}

static int is_last_pass(const duet_tape *t) {
    return !t->step.more_passes;
}

/* The object that sums the gradients over ranks after this pass; NULL: none. */
static const struct grad_reducer *reducer_of(const duet_tape *t) {
    return is_last_pass(t) && t->owner ? t->owner->reducer : NULL;
}

static int check_backward(const duet_tape *t) {
    if (!t->went_back || (t->passes_of_update == 1 && !(t->owner && t->owner->reducer))) return OK;
    return fail(ERR_USAGE, "Trying to backward through the graph a second time: with DDP or added "
                           "gradients a pass has one backward: begin a pass and forward again");
}

static int begin_backward(duet_tape *t, duet_var *root) {
    const struct grad_reducer *reducer = reducer_of(t);
    return reducer && reducer->finds_unused ? params_leave_out_unused(t->owner, t, root) : OK;
}

/* The gradients of an update are complete after its last pass; with a ddp they are then summed. */
static int end_backward(duet_tape *t) {
    const struct grad_reducer *reducer = reducer_of(t);
    int last = is_last_pass(t);
    t->went_back = 1;
    if (t->pass_of_update < t->passes_of_update) t->pass_of_update++;
    if (!last || !t->step.params) return OK;
    if (!reducer || !reducer->finds_unused) CHECK(zero_unused(t));
    return reducer ? reducer->finish(reducer->context) : OK;
}

/* Covers all tapes between which values have moved. The links come first: begin_backward may walk,
 * and could reach the memory of a freed tape. */
static int backward_from(duet_tape *t, duet_var *root, const struct tensor *grad) {
    duet_tape *at = t;
    CHECK(tape_check_links(t));
    do
        CHECK(check_backward(at));
    while ((at = at->next) != t);
    do
        CHECK(begin_backward(at, root));
    while ((at = at->next) != t);
    CHECK(tape_backward(t, root, grad));
    do
        CHECK(end_backward(at));
    while ((at = at->next) != t);
    return OK;
}

/* Checks a root and its given gradient before anything is walked. */
static int check_start(const duet_tape *t, duet_var *root, const duet_tensor *given) {
    enum reduction r;
    if (root->terms[0] && !given) return OK;
    if (root->terms[0])
        return fail(ERR_USAGE, "backward: a sum of losses takes no gradient: give NULL");
    if (given) return tape_operand(t, "backward", "gradient", given, DTYPE_F32);
    if (root->value.dtype != DTYPE_F32 || !tape_loss_reduction(root, &r) ||
        tensor_count(&root->value) == 1)
        return OK;
    return fail(ERR_USAGE,
                "backward: grad can be implicitly created only for scalar outputs, and this var "
                "is not a loss: use duet_mean, duet_sum or give a gradient");
}

int tape_ones(duet_tape *t, const struct tensor *like, struct tensor *ones) {
    *ones = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, like->rank, like->dims);
    struct op_args fill = {.out[0] = *ones, .p.fill.value = 1};
    CHECK(tape_error(t));
    return launch(t->stream, OP_FILL, &fill);
}

/* The gradient of a root: the given one, or 1 if the root is a single number, such as a mean. A
 * loss has its own: then *grad is of rank 0. *root becomes the plain one. */
static int start_of(duet_tape *t, duet_var **root, const duet_tensor *given, struct tensor *grad) {
    enum reduction r;
    *grad = (struct tensor){0};
    CHECK(check_start(t, *root, given));
    if (!given &&
        ((*root)->terms[0] || (*root)->value.dtype != DTYPE_F32 || !tape_loss_reduction(*root, &r)))
        return OK;
    *root = to_plain(t, *root);
    CHECK(tape_error(t));
    if (given) {
        *grad = given->t;
        const struct tensor *value = &(*root)->value;
        if (tensor_same_shape(grad, value)) return OK;
        return fail(
            ERR_USAGE,
            "backward: the gradient given is %s, and the var %s: both must have the same shape",
            SHAPE(grad), SHAPE(value));
    }
    return tape_ones(t, &(*root)->value, grad);
}

int duet_backward(duet_tape *t, duet_var *root, const duet_tensor *given) {
    struct tensor grad;
    CHECK(duet_tape_error(t));
    if (belongs_to_others(t)) return pass_refuse_inside(t, "duet_backward");
    CHECK(refuse_remote(t, "duet_backward"));
    if (!root) return fail(ERR_USAGE, "backward: no loss was given");
    CHECK(start_of(t, &root, given, &grad));
    return backward_from(t, root, grad.rank ? &grad : NULL);
}

int duet_backward_all(duet_tape *t, duet_var *const *roots, const duet_tensor *const *grads,
                      int count) {
    CHECK(duet_tape_error(t));
    CHECK(refuse_remote(t, "duet_backward_all"));
    return pass_backward(t, roots, grads, count);
}

int pass_check_roots(const duet_tape *t, duet_var *const *roots, const duet_tensor *const *grads,
                     int count) {
    if (count < 1 || count > MOST_ROOTS || !roots || !grads)
        return fail(ERR_USAGE, "backward: %d vars: give 1 to %d, and the gradient of each, or NULL",
                    count, MOST_ROOTS);
    for (int i = 0; i < count; i++) {
        if (!roots[i]) return fail(ERR_USAGE, "backward: var %d is NULL", i);
        for (int k = 0; k < i; k++)
            if (roots[k] == roots[i])
                return fail(ERR_USAGE, "backward: vars %d and %d are the same: give it once", k, i);
        CHECK(check_start(t, roots[i], grads[i]));
    }
    return OK;
}

int pass_backward(duet_tape *t, duet_var *const *roots, const duet_tensor *const *grads,
                  int count) {
    duet_var *root[MOST_ROOTS];
    struct tensor grad[MOST_ROOTS];
    CHECK(duet_tape_error(t));
    if (belongs_to_others(t)) return pass_refuse_inside(t, "duet_backward_all");
    CHECK(pass_check_roots(t, roots, grads, count));
    for (int i = 0; i < count; i++) {
        root[i] = roots[i];
        CHECK(start_of(t, &root[i], grads[i], &grad[i]));
    }
    return count == 1 ? backward_from(t, root[0], grad[0].rank ? &grad[0] : NULL)
                      : backward_from(t, tape_join(t, root, grad, count), NULL);
}
