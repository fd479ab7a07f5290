/* Complex: a convolution and a wide linear layer. Nearly all of its 657,162 numbers are in one
 * parameter, so the gradients take long to move, and backward is short.
 *
 *     (N,3,32,32) conv 3x3, padding 1 -> (64,32,32) relu
 *                 flatten 65536, fc -> 10 scores; the loss is cross entropy
 *
 * Images may have any shape: conv1 adapts to the channels, fc to the size and the classes.
 * --classes 20000 makes the outputs large on the device that gathers them. Parameters are
 * conv1.weight, conv1.bias, fc.weight and fc.bias, with PyTorch's default initialisation. */
#include "models/models.h"

enum { MAPS = 64 };
enum { CONV, FC };

static void describe_complex(duet_module *m, void *context) {
    (void)context;
    const int *in = duet_module_sample(m);
    duet_module_conv2d(m, "conv1", in[0], MAPS, 3, 1, 1, 1);
    duet_module_linear(m, "fc", MAPS * in[1] * in[2], duet_module_classes(m), 1);
}

static duet_var *complex_forward(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    duet_var *h = duet_relu(t, duet_layer(t, CONV, x)); /* (N,64,32,32) */
    return duet_layer(t, FC, duet_flatten(t, h));       /* (N,10) */
}

const struct duet_model complex_model = {.name = "complex",
                                         .sample = {3, 32, 32},
                                         .describe = describe_complex,
                                         .forward = complex_forward};
