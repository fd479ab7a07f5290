/* The ResNets and VGGs of torchvision, as estimates need them: layers, names and order are
 * torchvision's, so that a step has its kernels and its gradients their sizes. For dry runs alone:
 * nobody has compared what they would compute.
 *
 *     resnet  (N,3,H,W)  conv1 7x7/2, bn1, relu, maxpool 3x3/2     (N,64,H/4,W/4)
 *                        layer1 .. layer4, of n[i] blocks each     (N,512 e,H/32,W/32)
 *                        mean over each plane, fc                  (N,classes)
 *             a block is 3x3, 3x3 (e = 1), or 1x1, 3x3, 1x1 (e = 4), beside its input;
 *             in ResNeXt its 3x3 has groups
 *     vgg     (N,3,H,W)  3x3 convolutions in five groups with a pool behind each,
 *                        mean over 7x7 windows, three linear layers (N,classes) */
#include <stdio.h>

#include "models/models.h"
#include "nn/params/params.h"
#include "nn/tape/tape.h"

struct outline {
    int blocks[5]; /* resnet: of layer1 .. layer4; vgg: convolutions of each group */
    int deep;      /* resnet: three convolutions a block; vgg: with batch norm */
    int wider;     /* resnet: the 3x3 of a deep block has so many times the channels; 0: once */
    int groups;    /* resnet: of that 3x3; 0: one */
};

static const struct outline resnet18 = {.blocks = {2, 2, 2, 2}},
                            resnet34 = {.blocks = {3, 4, 6, 3}},
                            resnet50 = {.blocks = {3, 4, 6, 3}, .deep = 1},
                            resnet101 = {.blocks = {3, 4, 23, 3}, .deep = 1},
                            resnet152 = {.blocks = {3, 8, 36, 3}, .deep = 1},
                            resnext50 = {{3, 4, 6, 3}, 1, .wider = 2, .groups = 32},
                            resnext101 = {{3, 4, 23, 3}, 1, .wider = 4, .groups = 32},
                            wide_resnet50 = {.blocks = {3, 4, 6, 3}, .deep = 1, .wider = 2},
                            vgg16 = {.blocks = {2, 2, 3, 3, 3}},
                            vgg16_bn = {.blocks = {2, 2, 3, 3, 3}, .deep = 1},
                            vgg19 = {.blocks = {2, 2, 4, 4, 4}},
                            vgg19_bn = {.blocks = {2, 2, 4, 4, 4}, .deep = 1};

/* ---- resnet ---- */

static void describe_conv(duet_module *m, const char *block, int i, int in, int out, int size,
                          int stride, int groups) {
    char name[64];
    snprintf(name, sizeof name, "%s.conv%d", block, i);
    int conv =
        duet_module_conv2d(m, name, groups ? in / groups : in, out, size, stride, size / 2, 0);
    if (conv >= 0) model_of(m)->layers[conv].groups = groups;
    snprintf(name, sizeof name, "%s.bn%d", block, i);
    duet_module_batch_norm(m, name, out, 1e-5, 0.1);
}

static int halves(int layer, int block) {
    return layer > 0 && block == 0;
}

/* The input takes a 1x1 convolution where shapes differ. */
static int has_downsample(const struct outline *l, int layer, int block) {
    return block == 0 && (layer > 0 || l->deep);
}

static int describe_block(duet_module *m, const struct outline *l, int layer, int block, int in) {
    int width = 64 << layer, out = l->deep ? 4 * width : width, stride = 1 + halves(layer, block);
    char name[48], downsample[64];
    snprintf(name, sizeof name, "layer%d.%d", layer + 1, block);
    if (l->deep) {
        int inner = l->wider ? l->wider * width : width;
        describe_conv(m, name, 1, in, inner, 1, 1, 1);
        describe_conv(m, name, 2, inner, inner, 3, stride, l->groups);
        describe_conv(m, name, 3, inner, out, 1, 1, 1);
    } else {
        describe_conv(m, name, 1, in, width, 3, stride, 1);
        describe_conv(m, name, 2, width, out, 3, 1, 1);
    }
    if (!has_downsample(l, layer, block)) return out;
    snprintf(downsample, sizeof downsample, "%s.downsample.0", name);
    duet_module_conv2d(m, downsample, in, out, 1, stride, 0, 0);
    snprintf(downsample, sizeof downsample, "%s.downsample.1", name);
    duet_module_batch_norm(m, downsample, out, 1e-5, 0.1);
    return out;
}

static void describe_resnet(duet_module *m, void *context) {
    const struct outline *l = context;
    int channels = 64;
    duet_module_conv2d(m, "conv1", duet_module_sample(m)[0], 64, 7, 2, 3, 0);
    duet_module_batch_norm(m, "bn1", 64, 1e-5, 0.1);
    for (int layer = 0; layer < 4; layer++)
        for (int block = 0; block < l->blocks[layer]; block++)
            channels = describe_block(m, l, layer, block, channels);
    duet_module_linear(m, "fc", channels, duet_module_classes(m), 1);
}

/* A convolution and its batch norm are layers *at and *at + 1; moves on to the next. */
static duet_var *conv_norm_relu(duet_tape *t, int *at, duet_var *x) {
    duet_var *y = duet_layer(t, *at, x);
    *at += 2;
    return duet_layer_relu(t, *at - 1, y);
}

static duet_var *forward_block(duet_tape *t, const struct outline *l, int *at, int shortcut,
                               duet_var *x) {
    const int first = tape_var_count(t);
    duet_var *y = conv_norm_relu(t, at, x), *beside = x;
    if (l->deep) y = conv_norm_relu(t, at, y);
    y = duet_layer(t, *at, y);
    int norm = *at + 1;
    *at += 2;
    if (shortcut) {
        beside = duet_layer(t, *at + 1, duet_layer(t, *at, x));
        *at += 2;
    }
    y = duet_layer_add_relu(t, norm, y, beside);
    tape_forget(t, x);
    tape_forget_since(t, first, y); /* as a graph does, where backward reads them no more */
    return y;
}

static duet_var *forward_resnet(duet_tape *t, duet_var *x, void *context) {
    const struct outline *l = context;
    int at = 0;
    duet_var *stem = conv_norm_relu(t, &at, x), *h;
    const int first = tape_var_count(t);
    h = duet_max_pool2d(t, stem, 3, &(struct duet_pool){.stride = {2, 2}, .padding = {1, 1}});
    tape_forget(t, stem);
    tape_forget_since(t, first, h); /* with margins */
    for (int layer = 0; layer < 4; layer++)
        for (int block = 0; block < l->blocks[layer]; block++)
            h = forward_block(t, l, &at, has_downsample(l, layer, block), h);
    return duet_layer(t, at, duet_flatten(t, duet_adaptive_avg_pool2d(t, h, 1, 1)));
}

/* ---- vgg ---- */

static void describe_vgg(duet_module *m, void *context) {
    const struct outline *l = context;
    int in = duet_module_sample(m)[0], place = 0;
    char name[32];
    for (int group = 0; group < 5; group++)
        for (int i = 0; i < l->blocks[group]; i++) {
            int out = group < 4 ? 64 << group : 512;
            snprintf(name, sizeof name, "features.%d", place++);
            duet_module_conv2d(m, name, in, out, 3, 1, 1, 1);
            snprintf(name, sizeof name, "features.%d", place);
            if (l->deep) duet_module_batch_norm(m, name, out, 1e-5, 0.1);
            in = out;
            place += 1 + l->deep + (i + 1 == l->blocks[group]); /* relu, and the pool */
        }
    duet_module_linear(m, "classifier.0", 512 * 7 * 7, 4096, 1);
    duet_module_linear(m, "classifier.3", 4096, 4096, 1);
    duet_module_linear(m, "classifier.6", 4096, duet_module_classes(m), 1);
}

static duet_var *forward_vgg(duet_tape *t, duet_var *x, void *context) {
    const struct outline *l = context;
    int at = 0;
    for (int group = 0; group < 5; group++) {
        const int first = tape_var_count(t);
        for (int i = 0; i < l->blocks[group]; i++)
            if (l->deep)
                x = conv_norm_relu(t, &at, x);
            else
                x = duet_layer_relu(t, at++, x);
        x = duet_max_pool2d(t, x, 2, NULL);
        tape_forget_since(t, first, x);
    }
    const int first = tape_var_count(t);
    duet_var *planes = x;
    x = duet_flatten(t, duet_adaptive_avg_pool2d(t, planes, 7, 7));
    tape_forget(t, planes);
    tape_forget_since(t, first, x);
    for (int i = 0; i < 2; i++) {
        duet_var *h = duet_layer_relu(t, at++, x);
        x = duet_dropout(t, h, 0.5);
        tape_forget(t, h);
    }
    return duet_layer(t, at, x);
}

#define MODEL(NAME, family, spec)                                             \
    {                                                                         \
        .name = NAME, .sample = {3, 224, 224}, .describe = describe_##family, \
        .forward = forward_##family, .context = (void *)&spec                 \
    }
// clang-format off
const struct duet_model torchvision_models[TORCHVISION_MODELS] = {
    MODEL("torchvision-resnet18", resnet, resnet18),
    MODEL("resnet34", resnet, resnet34),
    MODEL("resnet50", resnet, resnet50),
    MODEL("resnet101", resnet, resnet101),
    MODEL("resnet152", resnet, resnet152),
    MODEL("resnext50_32x4d", resnet, resnext50),
    MODEL("resnext101_32x8d", resnet, resnext101),
    MODEL("wide_resnet50_2", resnet, wide_resnet50),
    MODEL("vgg16", vgg, vgg16),
    MODEL("vgg16_bn", vgg, vgg16_bn),
    MODEL("vgg19", vgg, vgg19),
    MODEL("vgg19_bn", vgg, vgg19_bn),
};
// clang-format on
