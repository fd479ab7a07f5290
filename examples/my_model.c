/* Your own model, with the whole command `duet` around it:
 *
 *     cc my_model.c -o mynet $(pkg-config --cflags --libs duet)
 *     ./mynet compare --devices 4      trains it as single, DP and DDP; proves that they agree
 *     ./mynet profile                  where time and memory go
 *     ./mynet --help                   everything else
 *
 * You write only the layers and the forward function. */
#include <duet.h>

/* The layers, in the order in which describe registers them. */
enum { CONV1, BN1, CONV2, DROP, FC1, FC2 };

/* PyTorch's __init__. Parameters get PyTorch's names, conv1.weight, conv1.bias and so on, and its
 * initial values. */
static void describe(duet_module *m, void *context) {
    (void)context;
    const int *in = duet_module_sample(m); /* channels, height, width */
    duet_module_conv2d(m, "conv1", in[0], 8, 3, 1, 1, 1);
    duet_module_batch_norm(m, "bn1", 8, 1e-5, 0.1);
    duet_module_conv2d(m, "conv2", 8, 16, 3, 1, 1, 1);
    duet_module_dropout(m, "drop", 0.25);
    duet_module_linear(m, "fc1", 16 * (in[1] / 4) * (in[2] / 4), 32, 1);
    duet_module_linear(m, "fc2", 32, duet_module_classes(m), 1);
}

/* PyTorch's forward: x is (N,channels,height,width), the result (N,classes). */
static duet_var *forward(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    x = duet_layer_relu(t, BN1, duet_layer(t, CONV1, x)); /* (N,8,28,28) */
    x = duet_max_pool2d(t, x, 2, NULL);                   /* (N,8,14,14) */
    x = duet_relu(t, duet_layer(t, CONV2, x));            /* (N,16,14,14) */
    x = duet_flatten(t, duet_max_pool2d(t, x, 2, NULL));  /* (N,784) */
    x = duet_relu(t, duet_layer(t, FC1, duet_layer(t, DROP, x)));
    return duet_layer(t, FC2, x); /* scores; the loss is cross entropy */
}

int main(int argc, char **argv) {
    const struct duet_model model = {.name = "mynet", .describe = describe, .forward = forward};
    return duet_command(argc, argv, &model);
}
