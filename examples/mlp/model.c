/* The model has two linear layers. All four programs train it. */
#include "mlp.h"

enum { FC1, FC2 };

static void describe(duet_module *m, void *context) {
    (void)context;
    duet_module_linear(m, "fc1", FEATURES, HIDDEN, 1);
    duet_module_linear(m, "fc2", HIDDEN, CLASSES, 1);
}

static duet_var *forward(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    return duet_layer(t, FC2, duet_relu(t, duet_layer(t, FC1, x)));
}

const struct duet_model mlp = {"mlp", .describe = describe, .forward = forward};
