/* ConvNet: the small MNIST network of PyTorch's examples, in its thinner form, with dropout.
 *
 *     (N,1,28,28) cn1 3x3 -> (16,26,26) relu
 *                 cn2 3x3 -> (32,24,24) relu, max 2x2 -> (32,12,12), dropout 0.10
 *                 flatten 4608, fc1 -> 64 relu, dropout 0.25
 *                 fc2 -> 10, log-softmax; the loss is nll
 *
 * Parameters have PyTorch's shapes, order and default initialisation. Pixels are normalised with
 * mean 0.1302 and standard deviation 0.3069. For other samples cn1 follows the channels, fc1 the
 * size of the picture, fc2 the classes. */
#include "base/error.h"
#include "models/models.h"
#include "nn/init.h"

enum { CN1_W, CN1_B, CN2_W, CN2_B, FC1_W, FC1_B, FC2_W, FC2_B };

enum { SMALLEST = 6 }; /* the side of a picture of which the pool leaves one pixel */

static int init(const struct model *model, struct rng *engine, float **values) {
    init_conv2d(engine, 16, model->channels, 1, 3, 3, values[CN1_W], values[CN1_B]);
    init_conv2d(engine, 32, 16, 1, 3, 3, values[CN2_W], values[CN2_B]);
    init_linear(engine, 64, model->params[FC1_W].dims[1], values[FC1_W], values[FC1_B]);
    init_linear(engine, model->classes, 64, values[FC2_W], values[FC2_B]);
    return 0;
}

static struct var *forward(const struct model *model, struct tape *t, struct param *p,
                           struct buffer *b, struct var *x) {
    (void)b;
    double p1 = model->dropout < 0 ? 0.10 : model->dropout,
           p2 = model->dropout < 0 ? 0.25 : model->dropout;
    /* (N,16,26,26) */
    struct var *h = relu(t, conv2d(t, x, &p[CN1_W], &p[CN1_B], 1, 0));
    /* (N,32,12,12) */
    h = max_pool2d(t, relu(t, conv2d(t, h, &p[CN2_W], &p[CN2_B], 1, 0)), 2, 2);
    /* (N,64) */
    h = relu(t, linear(t, flatten(t, dropout(t, h, p1)), &p[FC1_W], &p[FC1_B]));
    /* (N,10) */
    return log_softmax(t, linear(t, dropout(t, h, p2), &p[FC2_W], &p[FC2_B]));
}

int convnet_describe(struct model *model, const struct model_options *options) {
    CHECK(model_needs_pixels(model, SMALLEST));
    int classes = model->classes, left = 32 * ((model->height - 4) / 2) * ((model->width - 4) / 2);
    const struct param_spec specs[] = {
        {"cn1.weight", 4, {16, model->channels, 3, 3}},
        {"cn1.bias", 1, {16}},
        {"cn2.weight", 4, {32, 16, 3, 3}},
        {"cn2.bias", 1, {32}},
        {"fc1.weight", 2, {64, left}},
        {"fc1.bias", 1, {64}},
        {"fc2.weight", 2, {classes, 64}},
        {"fc2.bias", 1, {classes}},
    };
    model->init = init;
    model->forward = forward;
    model->dropout = options->dropout;
    model->normalised = 1;
    model->mean = 0.1302f;
    model->std = 0.3069f;
    model->log_probabilities = 1;
    return model_set_params(model, specs, sizeof specs / sizeof *specs);
}
