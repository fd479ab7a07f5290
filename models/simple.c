/* Simple: one linear layer, nn.Linear(10, 10), as in PyTorch's first examples of data parallel
 * training. It computes next to nothing, so a step costs what the strategy itself costs.
 *
 *     (N,10) linear -> 10 scores; cross entropy
 *
 * Samples of any shape are flattened, and the scores follow the classes. Parameters are
 * fc.weight (out, in) and fc.bias, with PyTorch's default initialisation. */
#include "models/models.h"

static void describe_simple(duet_module *m, void *context) {
    (void)context;
    const int *in = duet_module_sample(m);
    duet_module_linear(m, "fc", in[0] * in[1] * in[2], duet_module_classes(m), 1);
}

static duet_var *simple_forward(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    return duet_layer(t, 0, duet_flatten(t, x)); /* (N,10) */
}

const struct duet_model simple_model = {
    .name = "simple", .sample = {10, 1, 1}, .describe = describe_simple, .forward = simple_forward};
