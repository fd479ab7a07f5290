/* ResNet-18 as "Dive into Deep Learning" 13.6 has it: a stem of one 3x3 convolution without
 * pooling, for small pictures, then four pairs of residual blocks.
 *
 *     (N,C,H,W)  0, 1            conv 3x3 -> 64, norm, relu                    (N,64,H,W)
 *                resnet_block1   2 residual blocks of 64 channels              (N,64,H,W)
 *                resnet_block2   2 of 128; the first halves the picture        (N,128,H/2,W/2)
 *                resnet_block3   2 of 256, likewise                            (N,256,H/4,W/4)
 *                resnet_block4   2 of 512, likewise                            (N,512,H/8,W/8)
 *                mean over each plane, fc.1                                    (N,classes)
 *
 * A residual block adds its input to what two convolutions make of it. Where it halves the picture,
 * the input goes through a 1x1 convolution so that the shapes agree:
 *
 *     x ---- conv1 3x3 - bn1 - relu - conv2 3x3 - bn2 ---- + - relu -->
 *      \---- conv3 1x1, only where the block halves ------/
 *
 * Names, order and initial values are PyTorch's: the layers below stand in the order in which the
 * chapter registers them. --init d2l then draws all weights of convolutions and of fc.1 anew, from
 * a normal distribution with deviation 0.01. */
#include "base/error.h"
#include "models/models.h"
#include "nn/init.h"

enum kind { CONVOLUTION, NORM, FULL };

/* Each layer has a weight and a bias, so layer i owns the parameters 2 i and 2 i + 1. */
struct layer {
    enum kind kind;
    const char *weight, *bias;
    const char *mean, *variance, *batches; /* NORM */
    int in, out;                           /* channels; in 0: the data set's, out 0: its classes */
    int size, stride, padding;             /* CONVOLUTION */
};

#define CONV(NAME, in, out, size, stride, padding) \
    { CONVOLUTION, NAME ".weight", NAME ".bias", 0, 0, 0, in, out, size, stride, padding }
#define BATCH_NORM(NAME, channels)                                                     \
    {                                                                                  \
        NORM, NAME ".weight", NAME ".bias", NAME ".running_mean", NAME ".running_var", \
            NAME ".num_batches_tracked", channels, channels, 0, 0, 0                   \
    }
#define LINEAR(NAME, in, out) \
    { FULL, NAME ".weight", NAME ".bias", 0, 0, 0, in, out, 0, 0, 0 }
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
enum { LAYERS = sizeof layers / sizeof *layers, BUFFERS_OF_NORM = 3 };

static int inputs(const struct model *model, const struct layer *l) {
    return l->in ? l->in : model->channels;
}

static int outputs(const struct model *model, const struct layer *l) {
    return l->out ? l->out : model->classes;
}

/* ---- initial values ---- */

static void init_norm(float *weight, float *bias, int channels) {
    for (int c = 0; c < channels; c++) {
        weight[c] = 1;
        bias[c] = 0;
    }
}

static int init(const struct model *model, struct rng *engine, float **values) {
    for (int i = 0; i < LAYERS; i++) {
        const struct layer *l = &layers[i];
        int in = inputs(model, l), out = outputs(model, l);
        float *weight = values[2 * i], *bias = values[2 * i + 1];
        if (l->kind == CONVOLUTION) init_conv2d(engine, out, in, 1, l->size, l->size, weight, bias);
        if (l->kind == FULL) init_linear(engine, out, in, weight, bias);
        if (l->kind == NORM) init_norm(weight, bias, out);
    }
    for (int i = 0; model->init_d2l && i < LAYERS; i++)
        if (layers[i].kind != NORM)
            rng_normal(engine, values[2 * i], param_spec_count(&model->params[2 * i]), 0, 0.01);
    return 0;
}

/* ---- forward ---- */

struct net {
    const struct model *model;
    struct tape *tape;
    struct param *p;
    struct buffer *b;
};

static struct var *convolve(struct net *n, int layer, struct var *x) {
    const struct layer *l = &layers[layer];
    return conv2d(n->tape, x, &n->p[2 * layer], &n->p[2 * layer + 1], l->stride, l->padding);
}

/* relu(norm(x) + residual); residual NULL: relu(norm(x)). */
static struct var *norm_relu(struct net *n, int layer, struct var *x, struct var *residual) {
    int norms_before = 0;
    for (int i = 0; i < layer; i++)
        norms_before += layers[i].kind == NORM;
    struct norm_config config = norm_config_default(&n->b[BUFFERS_OF_NORM * norms_before]);
    config.synchronised = n->model->sync_bn;
    struct param *w = &n->p[2 * layer], *b = w + 1;
    return residual ? batch_norm_add_relu(n->tape, x, w, b, &config, residual)
                    : batch_norm_relu(n->tape, x, w, b, &config);
}

/* The block whose conv1 is layer *at, which moves on to the next block. */
static struct var *residual(struct net *n, int *at, struct var *x) {
    int conv1 = *at, conv2 = conv1 + 1, conv3 = conv1 + 2;
    int halves = layers[conv3].kind == CONVOLUTION, bn1 = conv3 + halves, bn2 = bn1 + 1;
    *at = bn2 + 1;
    struct var *y = norm_relu(n, bn1, convolve(n, conv1, x), NULL);
    y = convolve(n, conv2, y);
    return norm_relu(n, bn2, y, halves ? convolve(n, conv3, x) : x);
}

static struct var *forward(const struct model *model, struct tape *t, struct param *p,
                           struct buffer *b, struct var *x) {
    struct net n = {model, t, p, b};
    int at = 2, fc = LAYERS - 1;
    struct var *h = norm_relu(&n, 1, convolve(&n, 0, x), NULL);
    while (at < fc)
        h = residual(&n, &at, h);
    h = flatten(t, adaptive_avg_pool2d(t, h, 1, 1));
    return to_plain(t, linear(t, h, &p[2 * fc], &p[2 * fc + 1]));
}

/* ---- the model ---- */

static void describe_params(const struct model *model, struct param_spec *specs) {
    for (int i = 0; i < LAYERS; i++) {
        const struct layer *l = &layers[i];
        int in = inputs(model, l), out = outputs(model, l), k = l->size;
        specs[2 * i] = (struct param_spec){l->weight, 1, {out}};
        specs[2 * i + 1] = (struct param_spec){l->bias, 1, {out}};
        if (l->kind == CONVOLUTION)
            specs[2 * i] = (struct param_spec){l->weight, 4, {out, in, k, k}};
        if (l->kind == FULL) specs[2 * i] = (struct param_spec){l->weight, 2, {out, in}};
    }
}

static int describe_buffers(struct buffer_spec *specs) {
    int count = 0;
    for (int i = 0; i < LAYERS; i++) {
        const struct layer *l = &layers[i];
        if (l->kind != NORM) continue;
        specs[count++] = (struct buffer_spec){l->mean, DTYPE_F32, 1, {l->out}, 0};
        specs[count++] = (struct buffer_spec){l->variance, DTYPE_F32, 1, {l->out}, 1};
        specs[count++] = (struct buffer_spec){l->batches, DTYPE_I64, 0, {0}, 0};
    }
    return count;
}

int resnet18_describe(struct model *model, const struct model_options *options) {
    struct param_spec params[2 * LAYERS];
    struct buffer_spec buffers[BUFFERS_OF_NORM * LAYERS];
    (void)options;
    model->init = init;
    model->forward = forward;
    describe_params(model, params);
    CHECK(model_set_params(model, params, 2 * LAYERS));
    return model_set_buffers(model, buffers, describe_buffers(buffers));
}
