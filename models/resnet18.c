/* ResNet-18 as in "Dive into Deep Learning" 13.6: a stem of one 3x3 convolution without pooling,
 * for small images, then four pairs of residual blocks.
 *
 *     (N,C,H,W)  0, 1            conv 3x3 -> 64, norm, relu                    (N,64,H,W)
 *                resnet_block1   2 residual blocks of 64 channels              (N,64,H,W)
 *                resnet_block2   2 of 128; the first halves the image        (N,128,H/2,W/2)
 *                resnet_block3   2 of 256, likewise                            (N,256,H/4,W/4)
 *                resnet_block4   2 of 512, likewise                            (N,512,H/8,W/8)
 *                mean over each plane, fc.1                                    (N,classes)
 *
 * A residual block adds its input to the result of two convolutions. If the block halves the image,
 * the input goes through a 1x1 convolution so that the shapes agree:
 *
 *     x ---- conv1 3x3 - bn1 - relu - conv2 3x3 - bn2 ---- + - relu -->
 *      \---- conv3 1x1, only where the block halves ------/
 *
 * Names, order and initial values are PyTorch's: the layers below are in the order in which the
 * chapter registers them. --init d2l then draws the weights of all convolutions and of fc.1 again,
 * from a normal distribution with deviation 0.01. */
#include "models/models.h"

enum kind { CONVOLUTION, NORM, FULL };

struct layer {
    enum kind kind;
    const char *name;
    int in, out;               /* channels; in 0: the data set's, out 0: its classes */
    int size, stride, padding; /* CONVOLUTION */
};

#define CONV(NAME, in, out, size, stride, padding) \
    { CONVOLUTION, NAME, in, out, size, stride, padding }
#define BATCH_NORM(NAME, channels) \
    { NORM, NAME, channels, channels, 0, 0, 0 }
#define LINEAR(NAME, in, out) \
    { FULL, NAME, in, out, 0, 0, 0 }
#define RESIDUAL(NAME, c)                                                   \
    CONV(NAME ".conv1", c, c, 3, 1, 1), CONV(NAME ".conv2", c, c, 3, 1, 1), \
        BATCH_NORM(NAME ".bn1", c), BATCH_NORM(NAME ".bn2", c)
#define HALVING(NAME, in, c)                                                 \
    CONV(NAME ".conv1", in, c, 3, 2, 1), CONV(NAME ".conv2", c, c, 3, 1, 1), \
        CONV(NAME ".conv3", in, c, 1, 2, 0), BATCH_NORM(NAME ".bn1", c),     \
        BATCH_NORM(NAME ".bn2", c)

static const struct layer layers[] = {
    CONV("0", 0, 64, 3, 1, 1),
    BATCH_NORM("1", 64),
    RESIDUAL("resnet_block1.0", 64),
    RESIDUAL("resnet_block1.1", 64),
    HALVING("resnet_block2.0", 64, 128),
    RESIDUAL("resnet_block2.1", 128),
    HALVING("resnet_block3.0", 128, 256),
    RESIDUAL("resnet_block3.1", 256),
    HALVING("resnet_block4.0", 256, 512),
    RESIDUAL("resnet_block4.1", 512),
    LINEAR("fc.1", 512, 0),
};
enum { LAYERS = sizeof layers / sizeof *layers };

static void describe_resnet18(duet_module *m, void *context) {
    (void)context;
    for (int i = 0; i < LAYERS; i++) {
        const struct layer *l = &layers[i];
        int in = l->in ? l->in : duet_module_sample(m)[0],
            out = l->out ? l->out : duet_module_classes(m);
        if (l->kind == CONVOLUTION)
            duet_module_conv2d(m, l->name, in, out, l->size, l->stride, l->padding, 1);
        if (l->kind == NORM) duet_module_batch_norm(m, l->name, out, 1e-5, 0.1);
        if (l->kind == FULL) duet_module_linear(m, l->name, in, out, 1);
    }
}

/* Each layer has a weight and a bias, so the weight of layer i is parameter 2 i. */
static void init(const duet_module *m, duet_rng *rng, float *const *values, void *context) {
    (void)context;
    for (int i = 0; const_model_of(m)->init_d2l && i < LAYERS; i++)
        if (layers[i].kind != NORM)
            duet_rng_normal(rng, values[2 * i], duet_module_count(m, 2 * i), 0, 0.01);
}

/* ---- forward ---- */

/* The block whose conv1 is layer *at, which moves on to the next block. */
static duet_var *residual(duet_tape *t, int *at, duet_var *x) {
    int conv1 = *at, conv2 = conv1 + 1, conv3 = conv1 + 2;
    int halves = layers[conv3].kind == CONVOLUTION, bn1 = conv3 + halves, bn2 = bn1 + 1;
    *at = bn2 + 1;
    duet_var *y = duet_layer_relu(t, bn1, duet_layer(t, conv1, x));
    y = duet_layer(t, conv2, y);
    return duet_layer_add_relu(t, bn2, y, halves ? duet_layer(t, conv3, x) : x);
}

static duet_var *resnet18_forward(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    int at = 2, fc = LAYERS - 1;
    duet_var *h = duet_layer_relu(t, 1, duet_layer(t, 0, x));
    while (at < fc)
        h = residual(t, &at, h);
    h = duet_flatten(t, duet_adaptive_avg_pool2d(t, h, 1, 1));
    return duet_layer(t, fc, h);
}

const struct duet_model resnet18_model = {
    .name = "resnet18", .describe = describe_resnet18, .init = init, .forward = resnet18_forward};
