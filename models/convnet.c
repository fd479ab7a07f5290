/* ConvNet: the small MNIST network of PyTorch's examples, in its thinner form, with dropout.
 *
 *     (N,1,28,28) cn1 3x3 -> (16,26,26) relu
 *                 cn2 3x3 -> (32,24,24) relu, max 2x2 -> (32,12,12), Dropout2d(0.10)
 *                 flatten 4608, fc1 -> 64 relu, dropout 0.25
 *                 fc2 -> 10, log-softmax; the loss is nll
 *
 * PyTorch's example has Dropout2d(0.25) after fc1. There the values form no planes, so PyTorch
 * drops single values with a warning; this model uses plain dropout.
 *
 * Parameters have PyTorch's shapes, order and default initialisation. Pixels are normalised with
 * mean 0.1302 and standard deviation 0.3069. For other samples cn1 adapts to the channels, fc1 to
 * the size of the image, fc2 to the classes. */
#include "models/models.h"

enum { CN1, CN2, DP1, FC1, DP2, FC2 };

enum { SMALLEST = 6 }; /* the input size at which pooling leaves 1x1 */

static void describe_convnet(duet_module *m, void *context) {
    (void)context;
    const int *in = duet_module_sample(m);
    module_needs_pixels(m, SMALLEST);
    duet_module_conv2d(m, "cn1", in[0], 16, 3, 1, 0, 1);
    duet_module_conv2d(m, "cn2", 16, 32, 3, 1, 0, 1);
    duet_module_dropout2d(m, "dp1", 0.10);
    duet_module_linear(m, "fc1", 32 * ((in[1] - 4) / 2) * ((in[2] - 4) / 2), 64, 1);
    duet_module_dropout(m, "dp2", 0.25);
    duet_module_linear(m, "fc2", 64, duet_module_classes(m), 1);
}

static duet_var *convnet_forward(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    duet_var *h = duet_relu(t, duet_layer(t, CN1, x));                    /* (N,16,26,26) */
    h = duet_max_pool2d(t, duet_relu(t, duet_layer(t, CN2, h)), 2, NULL); /* (N,32,12,12) */
    h = duet_flatten(t, duet_layer(t, DP1, h));                           /* (N,4608) */
    h = duet_relu(t, duet_layer(t, FC1, h));                              /* (N,64) */
    h = duet_layer(t, FC2, duet_layer(t, DP2, h));
    return duet_log_softmax(t, h); /* (N,10) */
}

const struct duet_model convnet_model = {.name = "convnet",
                                         .mean = 0.1302,
                                         .std = 0.3069,
                                         .describe = describe_convnet,
                                         .forward = convnet_forward,
                                         .loss = DUET_NLL};
