/* Models of torchvision that concatenate channels, as estimates need them: DenseNet-121, whose
 * layers see the outputs of all layers before them in their block, and SqueezeNet 1.0. For dry runs
 * alone, as those of torchvision.c.
 *
 *     densenet   (N,3,H,W)  conv0 7x7/2, norm0, relu, maxpool 3x3/2       (N,64,H/4,W/4)
 *                           four blocks of n[i] layers, each behind but the last a transition,
 *                           which halves channels and sides
 *                           a layer: norm, relu, 1x1 to 128, norm, relu, 3x3 to 32
 *                           norm5, relu, mean over each plane, classifier (N,classes)
 *     squeezenet (N,3,H,W)  conv 7x7/2, relu, eight fire modules, three pools between them
 *                           a fire module: 1x1 to s, relu, then 1x1 and 3x3 to e each
 *                           1x1 to the classes, relu, mean over each plane (N,classes) */
#include <stdio.h>

#include "models/models.h"
#include "nn/tape/tape.h"

/* ---- densenet ---- */

enum { BLOCKS = 4, GROWTH = 32, BOTTLENECK = 4 * GROWTH, MOST_LAYERS = 24, STEM = 64 };
static const int densenet121[BLOCKS] = {6, 12, 24, 16};

static void describe_norm_conv(duet_module *m, const char *at, const char *i, int in, int out,
                               int size) {
    char name[64];
    snprintf(name, sizeof name, "%s.norm%s", at, i);
    duet_module_batch_norm(m, name, in, 1e-5, 0.1);
    snprintf(name, sizeof name, "%s.conv%s", at, i);
    duet_module_conv2d(m, name, in, out, size, 1, size / 2, 0);
}

static void describe_densenet(duet_module *m, void *context) {
    const int *layers = context;
    int channels = STEM;
    char name[48];
    duet_module_conv2d(m, "features.conv0", duet_module_sample(m)[0], STEM, 7, 2, 3, 0);
    duet_module_batch_norm(m, "features.norm0", STEM, 1e-5, 0.1);
    for (int block = 0; block < BLOCKS; block++) {
        for (int i = 0; i < layers[block]; i++, channels += GROWTH) {
            snprintf(name, sizeof name, "features.denseblock%d.denselayer%d", block + 1, i + 1);
            describe_norm_conv(m, name, "1", channels, BOTTLENECK, 1);
            describe_norm_conv(m, name, "2", BOTTLENECK, GROWTH, 3);
        }
        if (block + 1 == BLOCKS) break;
        snprintf(name, sizeof name, "features.transition%d", block + 1);
        describe_norm_conv(m, name, "", channels, channels / 2, 1);
        channels /= 2;
    }
    duet_module_batch_norm(m, "features.norm5", channels, 1e-5, 0.1);
    duet_module_linear(m, "classifier", channels, duet_module_classes(m), 1);
}

/* The batch norm is layer *at, the convolution behind its relu the next one. */
static duet_var *norm_conv(duet_tape *t, int *at, duet_var *x) {
    duet_var *y = duet_layer(t, *at + 1, duet_layer_relu(t, *at, x));
    *at += 2;
    return y;
}

static duet_var *forward_densenet(duet_tape *t, duet_var *x, void *context) {
    const int *layers = context;
    int at = 2;
    duet_var *h = duet_layer_relu(t, 1, duet_layer(t, 0, x));
    h = duet_max_pool2d(t, h, 3, &(struct duet_pool){.stride = {2, 2}, .padding = {1, 1}});
    for (int block = 0; block < BLOCKS; block++) {
        duet_var *seen[MOST_LAYERS + 1] = {h};
        for (int i = 0; i < layers[block]; i++) {
            duet_var *all = duet_cat(t, seen, i + 1, 1);
            seen[i + 1] = norm_conv(t, &at, norm_conv(t, &at, all));
        }
        h = duet_cat(t, seen, layers[block] + 1, 1);
        if (block + 1 < BLOCKS) h = duet_avg_pool2d(t, norm_conv(t, &at, h), 2, NULL);
    }
    h = duet_adaptive_avg_pool2d(t, duet_layer_relu(t, at, h), 1, 1);
    return duet_layer(t, at + 1, duet_flatten(t, h));
}

/* ---- squeezenet ---- */

static const struct fire {
    int place, squeeze, expand; /* its number among torchvision's features */
    int pooled;                 /* a pool is before it */
} fires[] = {{3, 16, 64, 1},  {4, 16, 64, 0},  {5, 32, 128, 0},  {7, 32, 128, 1},
             {8, 48, 192, 0}, {9, 48, 192, 0}, {10, 64, 256, 0}, {12, 64, 256, 1}};
enum { FIRES = sizeof fires / sizeof *fires };

static void describe_squeezenet(duet_module *m, void *context) {
    int channels = 96;
    char name[48];
    (void)context;
    duet_module_conv2d(m, "features.0", duet_module_sample(m)[0], channels, 7, 2, 0, 1);
    for (int i = 0; i < FIRES; i++) {
        const struct fire *f = &fires[i];
        snprintf(name, sizeof name, "features.%d.squeeze", f->place);
        duet_module_conv2d(m, name, channels, f->squeeze, 1, 1, 0, 1);
        snprintf(name, sizeof name, "features.%d.expand1x1", f->place);
        duet_module_conv2d(m, name, f->squeeze, f->expand, 1, 1, 0, 1);
        snprintf(name, sizeof name, "features.%d.expand3x3", f->place);
        duet_module_conv2d(m, name, f->squeeze, f->expand, 3, 1, 1, 1);
        channels = 2 * f->expand;
    }
    duet_module_conv2d(m, "classifier.1", channels, duet_module_classes(m), 1, 1, 0, 1);
}

static duet_var *forward_squeezenet(duet_tape *t, duet_var *x, void *context) {
    const struct duet_pool halves = {.stride = {2, 2}, .ceil_mode = 1};
    int at = 1;
    duet_var *h = duet_layer_relu(t, 0, x);
    (void)context;
    for (int i = 0; i < FIRES; i++, at += 3) {
        if (fires[i].pooled) h = duet_max_pool2d(t, h, 3, &halves);
        duet_var *squeezed = duet_layer_relu(t, at, h);
        duet_var *both[2];
        for (int k = 0; k < 2; k++)
            both[k] = duet_layer_relu(t, at + 1 + k, squeezed);
        h = duet_cat(t, both, 2, 1);
    }
    h = duet_layer_relu(t, at, duet_dropout(t, h, 0.5));
    return duet_flatten(t, duet_adaptive_avg_pool2d(t, h, 1, 1));
}

const struct duet_model concatenated_models[CONCATENATED_MODELS] = {
    {.name = "densenet121",
     .sample = {3, 224, 224},
     .describe = describe_densenet,
     .forward = forward_densenet,
     .context = (void *)densenet121},
    {.name = "squeezenet1_0",
     .sample = {3, 224, 224},
     .describe = describe_squeezenet,
     .forward = forward_squeezenet},
};
