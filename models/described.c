/* A model described only by numbers: how many parameters and buffers it has, and how many bytes a
 * sample keeps on the device until backward. It computes nothing, so it serves only for dry runs
 * (device_is_dry), which count what such a model would hold and move.
 *
 *     (N, input) -> activations: N times these bytes -> (N, outputs); cross entropy or mse
 *
 * The sizes of its parameters are unknown. They count as tensors of at most DESCRIBED_PIECE
 * elements, in pairs of equal size. This choice affects little more than how DDP's buckets are
 * filled and where DP's ranges end. */
#include <stdio.h>

#include "base/error.h"
#include "models/models.h"
#include "nn/tape/tape_internal.h"

enum { DESCRIBED_PIECE = 1 << 20 }; /* in elements: 4 MiB */

/* There is nothing to compute. */
static int no_gradients(duet_tape *t, const struct node *node, int s, const struct tensor *dw,
                        const struct tensor *db) {
    (void)t, (void)node, (void)s, (void)dw, (void)db;
    return OK;
}

static int described_backward(duet_tape *t, struct node *n) {
    return tape_weight_grads(t, OP_LINEAR_BACKWARD_WEIGHT, n);
}

/* The samples' activations, as one piece. It is a var, so that backward reaches all nodes. */
static duet_var *activations(const struct model *model, duet_tape *t, duet_var *x) {
    const int one = 1;
    size_t bytes = (size_t)x->value.dims[0] * (size_t)model->activation_bytes;
    if (!bytes) return tape_var(t, x->value, 1);
    return tape_var(t, tensor_plain(tape_alloc(t, bytes), DTYPE_F32, 1, &one), 1);
}

/* It bypasses the public tape, whose functions compute. */
static duet_var *described_forward(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    const struct model *model = t->model;
    struct param *p = t->step.params->param;
    if (!device_is_dry(t->device))
        return tape_refuse(t, "model described: it works only with estimate: duet estimate");
    const int shape[2] = {x->value.dims[0], model->classes};
    duet_var *h = activations(model, t, x);
    for (int i = 0; i < model->param_count && !t->error; i += 2) {
        int last = i + 2 == model->param_count;
        struct tensor y = last ? tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, 2, shape) : h->value;
        struct node n = {.backward = described_backward,
                         .x = h,
                         .y = tape_var(t, y, 1),
                         .w = &p[i],
                         .b = &p[i + 1],
                         .segment_grads = no_gradients};
        tape_node(t, &n);
        h = n.y;
    }
    return t->error ? NULL : h;
}

static void describe_pieces(duet_module *m, void *context) {
    (void)context;
    const struct model_options *options = module_options(m);
    int64_t count = options->params, done = 0;
    int tensors = (int)(2 * ((count + 2 * DESCRIBED_PIECE - 1) / (2 * DESCRIBED_PIECE)));
    if (count < 2)
        module_fail(m, fail(ERR_USAGE, "model described: it is described by numbers: give "
                                       "--params N"));
    model_of(m)->activation_bytes = options->activation_bytes;
    for (int i = 0; i < tensors; i++) {
        int64_t end = count * (i + 1) / tensors;
        char name[24];
        snprintf(name, sizeof name, "piece%d", i);
        duet_module_parameter(m, name, 1, (int[]){(int)(end - done)},
                              (struct duet_init){DUET_CONSTANT, 0, 0});
        done = end;
    }
    const struct buffer_spec all = {.dtype = DTYPE_F32, .rank = 1, .dims = {(int)options->buffers}};
    if (options->buffers) module_buffer(m, "buffers", &all);
}

const struct duet_model described_model = {
    .name = "described", .describe = describe_pieces, .forward = described_forward};
