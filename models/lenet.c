/* LeNet as "Dive into Deep Learning" 13.5 writes it from scratch: eight tensors, 129,068 numbers.
 *
 *     (N,1,28,28) conv 3x3 -> (20,26,26) relu, average 2x2 -> (20,13,13)
 *                 conv 5x5 -> (50,9,9)   relu, average 2x2 -> (50,4,4) = 800
 *                 800 @ W3 -> 128 relu @ W4 -> 10 scores; the loss is cross entropy
 *
 * W3 and W4 are (in, out), as X @ W reads them. Weights start as 0.01 * randn, biases as 0. For
 * other samples W1 follows the channels, W3 the 50 maps that are left of the picture, W4 the
 * classes. */
#include <string.h>

#include "base/error.h"
#include "models/models.h"
#include "nn/init.h"

enum { W1, B1, W2, B2, W3, B3, W4, B4 };

enum { SMALLEST = 14 }; /* the side of a picture of which the second pool leaves one pixel */

/* What the two convolutions and pools leave of a side: 28 -> 26 -> 13 -> 9 -> 4. */
static int side_left(int side) {
    return ((side - 2) / 2 - 4) / 2;
}

static int init(const struct model *model, struct rng *engine, float **values) {
    for (int i = 0; i < model->param_count; i++) {
        size_t count = param_spec_count(&model->params[i]);
        if (i % 2 == 0)
            init_scaled_normal(engine, values[i], count, 0.01f);
        else
            memset(values[i], 0, count * sizeof(float));
    }
    return 0;
}

static struct var *forward(const struct model *model, struct tape *t, struct param *p,
                           struct buffer *b, struct var *x) {
    (void)b;
    (void)model;
    /* (N,20,13,13) */
    struct var *h1 = avg_pool2d(t, relu(t, conv2d(t, x, &p[W1], &p[B1], 1, 0)), 2, 2);
    /* (N,50,4,4) */
    struct var *h2 = avg_pool2d(t, relu(t, conv2d(t, h1, &p[W2], &p[B2], 1, 0)), 2, 2);
    /* (N,128) */
    struct var *h3 = relu(t, matmul_add(t, flatten(t, h2), &p[W3], &p[B3]));
    return to_plain(t, matmul_add(t, h3, &p[W4], &p[B4])); /* (N,10) */
}

int lenet_describe(struct model *model, const struct model_options *options) {
    (void)options;
    CHECK(model_needs_pixels(model, SMALLEST));
    int left = 50 * side_left(model->height) * side_left(model->width);
    const struct param_spec specs[] = {
        {"W1", 4, {20, model->channels, 3, 3}},
        {"b1", 1, {20}},
        {"W2", 4, {50, 20, 5, 5}},
        {"b2", 1, {50}},
        {"W3", 2, {left, 128}},
        {"b3", 1, {128}},
        {"W4", 2, {128, model->classes}},
        {"b4", 1, {model->classes}},
    };
    model->init = init;
    model->forward = forward;
    return model_set_params(model, specs, sizeof specs / sizeof *specs);
}
