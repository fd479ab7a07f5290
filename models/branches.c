/* Branches: a network whose steps do not all use the same layers. It serves the lessons on
 * --find-unused-parameters: DDP must know which gradients a step will not produce, or it waits for
 * them.
 *
 *     flatten -> fc1 relu -+-> left relu ----------------+-> head -> scores; cross entropy
 *                          |                             |
 *                          +-> right relu ---------------+
 *                          |                             |
 *                          +-> left relu -> right relu --+
 *
 *     batch k of the run:   k mod 3 = 0: left    1: right    2: both, and so in evaluation
 *
 * Parameters are fc1.weight (64, in), left.weight (64, 64), right.weight, head.weight (classes, 64)
 * and their biases, with PyTorch's default initialisation. Samples may have any shape. */
#include "models/models.h"

enum { WIDTH = 64, WAYS = 3 };
enum { FC1, LEFT, RIGHT, HEAD };

static void describe_branches(duet_module *m, void *context) {
    (void)context;
    const int *in = duet_module_sample(m);
    duet_module_linear(m, "fc1", in[0] * in[1] * in[2], WIDTH, 1);
    duet_module_linear(m, "left", WIDTH, WIDTH, 1);
    duet_module_linear(m, "right", WIDTH, WIDTH, 1);
    duet_module_linear(m, "head", WIDTH, duet_module_classes(m), 1);
}

static duet_var *branches_forward(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    int64_t step = duet_tape_training(t);
    int way = step ? (int)((step - 1) % WAYS) : WAYS - 1;
    duet_var *h = duet_relu(t, duet_layer(t, FC1, duet_flatten(t, x))); /* (N,64) */
    if (way != 1) h = duet_relu(t, duet_layer(t, LEFT, h));
    if (way != 0) h = duet_relu(t, duet_layer(t, RIGHT, h));
    return duet_layer(t, HEAD, h); /* (N,classes) */
}

const struct duet_model branches_model = {
    .name = "branches", .describe = describe_branches, .forward = branches_forward};
