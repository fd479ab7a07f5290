/* Complex: a convolution and a wide linear layer, 657,162 numbers, nearly all of them in one
 * parameter. Gradients that take long to move meet a backward that is short.
 *
 *     (N,3,32,32) conv 3x3, padding 1 -> (64,32,32) relu
 *                 flatten 65536, fc -> 10 scores; the loss is cross entropy
 *
 * It takes pictures of any shape: conv follows the channels, fc the size and the classes.
 * --classes 20000 makes outputs that weigh on the device which gathers them. Parameters are
 * conv.weight, conv.bias, fc.weight and fc.bias, with PyTorch's default initialisation. */
#include "models/models.h"
#include "nn/init.h"

enum { MAPS = 64, CONV_W = 0, CONV_B, FC_W, FC_B };

static int init(const struct model *model, struct rng *engine, float **values) {
    const int *fc = model->params[FC_W].dims;
    init_conv2d(engine, MAPS, model->channels, 1, 3, 3, values[CONV_W], values[CONV_B]);
    init_linear(engine, fc[0], fc[1], values[FC_W], values[FC_B]);
    return 0;
}

static struct var *forward(const struct model *model, struct tape *t, struct param *p,
                           struct buffer *b, struct var *x) {
    (void)model, (void)b;
    struct var *h = relu(t, conv2d(t, x, &p[CONV_W], &p[CONV_B], 1, 1)); /* (N,64,32,32) */
    return to_plain(t, linear(t, flatten(t, h), &p[FC_W], &p[FC_B]));    /* (N,10) */
}

int complex_describe(struct model *model, const struct model_options *options) {
    int classes = model->classes;
    const struct param_spec specs[] = {
        {"conv.weight", 4, {MAPS, model->channels, 3, 3}},
        {"conv.bias", 1, {MAPS}},
        {"fc.weight", 2, {classes, MAPS * model->height * model->width}},
        {"fc.bias", 1, {classes}},
    };
    (void)options;
    model->init = init;
    model->forward = forward;
    return model_set_params(model, specs, sizeof specs / sizeof *specs);
}
