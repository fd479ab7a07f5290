/* Which arguments each layer has, and what they may be: the kinds of layers that a text can
 * name. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/error.h"
#include "models/sequential/sequential_args.h"

/* A size, or the words for none and for as much as leaves the picture its size. PyTorch refuses
 * "same" with a stride. An even kernel would need more on one side than on the other. */
static int take_padding(struct args *a, const struct sequential_item *item) {
    for (int i = 0; i < a->count; i++) {
        if (strcmp(a->key[i], "padding")) continue;
        int same = !strcmp(a->value[i], "same");
        if (!same && strcmp(a->value[i], "valid")) break;
        *a->key[i] = 0;
        if (same && (item->kernel % 2 == 0 || item->stride != 1))
            arg_refuse(a, "padding", "same", "needs an odd kernel_size and a stride of 1 here");
        return same ? (item->kernel - 1) / 2 : 0;
    }
    return arg_square(a, "padding", 0, 0);
}

static void read_conv(struct args *a, struct sequential_item *item) {
    item->in = arg_int(a, "0");
    item->out = arg_int(a, "1");
    item->kernel = arg_square(a, "kernel_size", 1, -1);
    item->stride = arg_square(a, "stride", 1, 1);
    item->padding = take_padding(a, item);
    item->bias = arg_bool(a, "bias", 1);
    arg_expect(a, "dilation", "(1, 1)", "1");
    arg_expect(a, "groups", "1", "1");
    arg_expect(a, "padding_mode", "zeros", "zeros");
}

static void read_norm(struct args *a, struct sequential_item *item) {
    item->out = item->in = arg_int(a, "0");
    item->eps = arg_number(a, "eps", 1e-5);
    for (int i = 0; i < a->count; i++) /* None: the mean of all batches */
        if (!strcmp(a->key[i], "momentum") && !strcmp(a->value[i], "None"))
            strcpy(a->key[i], ""), item->momentum = -1;
    if (item->momentum == 0) item->momentum = arg_number(a, "momentum", 0.1);
    arg_expect(a, "affine", "True", "True");
    arg_expect(a, "bias", "True", "True");
    arg_expect(a, "track_running_stats", "True", "True");
}

/* "(10,)" or "(3, 4)": one to three sizes. */
static void read_layer_norm(struct args *a, struct sequential_item *item) {
    const char *text = arg_needed(a, "0"), *at = text;
    if (!text) return;
    int good = *at++ == '(';
    while (good && item->rank < 3) {
        int *size = &item->shape[item->rank++];
        good = arg_whole(at, &at, size) && *size >= 1;
        if (strncmp(at, ", ", 2)) break;
        at += 2;
    }
    if (good && item->rank == 1 && *at == ',') at++;
    if (!good || strcmp(at, ")"))
        arg_refuse(a, "normalized_shape", text,
                   "must be one to three sizes, as (10,) or (3, 4, 4)");
    item->eps = arg_number(a, "eps", 1e-5);
    item->affine = arg_bool(a, "elementwise_affine", 1);
    item->bias = arg_bool(a, "bias", 1);
}

static void read_group_norm(struct args *a, struct sequential_item *item) {
    item->groups = arg_int(a, "0");
    item->out = item->in = arg_int(a, "1");
    item->eps = arg_number(a, "eps", 1e-5);
    item->affine = arg_bool(a, "affine", 1);
    item->bias = arg_bool(a, "bias", 1);
    if (!a->code && item->in % item->groups)
        a->code = sequential_fail(a->s, a->line, "num_channels must be divisible by num_groups");
}

/* PyTorch's defaults; what is not printed is one. */
static void read_activation(struct args *a, struct sequential_item *item) {
    const char *text;
    switch (item->kind) {
    case SEQ_LEAKY_RELU: item->a = arg_from(a, "negative_slope", -1e6, 0.01); break;
    case SEQ_ELU: item->a = arg_from(a, "alpha", -1e6, 1); break;
    case SEQ_HARDTANH:
        item->a = arg_from(a, "min_val", -1e6, -1), item->b = arg_from(a, "max_val", -1e6, 1);
        if (item->a > item->b)
            arg_refuse(a, "min_val", "more than max_val", "must not be above it");
        break;
    case SEQ_GELU:
        text = arg_take(a, "approximate");
        item->tanh = text && !strcmp(text, "'tanh'");
        if (text && !item->tanh && strcmp(text, "'none'"))
            arg_refuse(a, "approximate", text, "must be 'none' or 'tanh'");
        return;
    case SEQ_SOFTPLUS:
        arg_expect(a, "beta", "1.0", "1");
        arg_expect(a, "threshold", "20.0", "20");
        return;
    default: break;
    }
    arg_bool(a, "inplace", 0);
}

static void read_pool(struct args *a, struct sequential_item *item) {
    item->kernel = arg_square(a, "kernel_size", 1, -1);
    item->stride = arg_square(a, "stride", 1, item->kernel);
    item->padding = arg_square(a, "padding", 0, 0);
    if (item->padding > item->kernel / 2)
        arg_refuse(a, "padding", "more", "pad should be at most half of the kernel_size");
    arg_expect(a, "dilation", "1", "(1, 1)");
    item->ceil_mode = arg_bool(a, "ceil_mode", 0);
    if (item->ceil_mode && item->kind == SEQ_AVG_POOL2D)
        arg_refuse(a, "ceil_mode", "True", "Duet's averages have ceil_mode=False alone");
    if (item->kind == SEQ_AVG_POOL2D) {
        arg_expect(a, "count_include_pad", "True", "True");
        arg_expect(a, "divisor_override", "None", "None");
    }
}

/* ZeroPad2d((1, 1, 0, 2)), ConstantPad2d(padding=(1, 1, 1, 1), value=0.5) */
static void read_pad(struct args *a, struct sequential_item *item) {
    int constant = item->kind == SEQ_CONSTANT_PAD2D, *p = item->sides, end = 0;
    const char *key = constant ? "padding" : "0", *text = arg_needed(a, key);
    if (text &&
        (sscanf(text, "(%d, %d, %d, %d)%n", &p[0], &p[1], &p[2], &p[3], &end) != 4 || text[end]))
        arg_refuse(a, key, text, "must be left, right, top, bottom, as (1, 1, 0, 2)");
    for (int i = 0; text && i < 4; i++)
        if (p[i] > MOST_WINDOW || p[i] < -MOST_WINDOW) arg_refuse(a, key, text, "is too large");
    if (!constant) return;
    char *stop = NULL;
    text = arg_needed(a, "value");
    if (text) item->value = strtod(text, &stop);
    if (text && (stop == text || *stop || !isfinite((float)item->value)))
        arg_refuse(a, "value", text, "must be a finite number");
}

/* One side of an adaptive pool's output; None leaves it as it is, which 0 stands for. */
static int side(const char **at, int *value) {
    if (strncmp(*at, "None", 4)) return arg_whole(*at, at, value) && *value >= 1;
    *at += 4;
    *value = 0;
    return 1;
}

static void read_adaptive(struct args *a, struct sequential_item *item) {
    const char *text = arg_needed(a, "output_size"), *at = text;
    if (!text) return;
    int two = *at == '(', good;
    at += two;
    good = side(&at, &item->height);
    item->width = item->height;
    if (two && good) good = !strncmp(at, ", ", 2);
    if (two && good) at += 2, good = side(&at, &item->width) && *at++ == ')';
    if (!good || *at)
        arg_refuse(a, "output_size", text, "must be a size, as 1, (2, 3) or (None, 3)");
}

/* Features become pictures. */
static void read_unflatten(struct args *a, struct sequential_item *item) {
    arg_expect(a, "dim", "1", "-1");
    const char *text = arg_needed(a, "unflattened_size");
    int sides[3] = {1, 1, 1};
    if (text && (!arg_tuple(text, 3, sides) || sides[0] < 1 || sides[1] < 1 || sides[2] < 1 ||
                 (double)sides[0] * sides[1] * sides[2] > INT32_MAX))
        arg_refuse(a, "unflattened_size", text, "must be channels, height and width, as (8, 4, 4)");
    item->out = sides[0], item->height = sides[1], item->width = sides[2];
    item->in = a->code ? 0 : sides[0] * sides[1] * sides[2];
}

static const char *const kinds[SEQ_KINDS] = {
    [SEQ_CONV2D] = "Conv2d",
    [SEQ_LINEAR] = "Linear",
    [SEQ_BATCH_NORM1D] = "BatchNorm1d",
    [SEQ_BATCH_NORM2D] = "BatchNorm2d",
    [SEQ_LAYER_NORM] = "LayerNorm",
    [SEQ_GROUP_NORM] = "GroupNorm",
    [SEQ_RELU] = "ReLU",
    [SEQ_TANH] = "Tanh",
    [SEQ_SIGMOID] = "Sigmoid",
    [SEQ_SILU] = "SiLU",
    [SEQ_LEAKY_RELU] = "LeakyReLU",
    [SEQ_ELU] = "ELU",
    [SEQ_HARDTANH] = "Hardtanh",
    [SEQ_RELU6] = "ReLU6",
    [SEQ_GELU] = "GELU",
    [SEQ_SOFTPLUS] = "Softplus",
    [SEQ_IDENTITY] = "Identity",
    [SEQ_MAX_POOL2D] = "MaxPool2d",
    [SEQ_AVG_POOL2D] = "AvgPool2d",
    [SEQ_ZERO_PAD2D] = "ZeroPad2d",
    [SEQ_CONSTANT_PAD2D] = "ConstantPad2d",
    [SEQ_ADAPTIVE_AVG_POOL2D] = "AdaptiveAvgPool2d",
    [SEQ_ADAPTIVE_MAX_POOL2D] = "AdaptiveMaxPool2d",
    [SEQ_DROPOUT] = "Dropout",
    [SEQ_DROPOUT2D] = "Dropout2d",
    [SEQ_FLATTEN] = "Flatten",
    [SEQ_UNFLATTEN] = "Unflatten",
    [SEQ_SOFTMAX] = "Softmax",
    [SEQ_LOG_SOFTMAX] = "LogSoftmax",
};

static void read_args(struct args *a, struct sequential_item *item) {
    switch (item->kind) {
    case SEQ_CONV2D: read_conv(a, item); break;
    case SEQ_LINEAR:
        item->in = arg_int(a, "in_features");
        item->out = arg_int(a, "out_features");
        item->bias = arg_bool(a, "bias", 1);
        break;
    case SEQ_BATCH_NORM1D:
    case SEQ_BATCH_NORM2D: read_norm(a, item); break;
    case SEQ_LAYER_NORM: read_layer_norm(a, item); break;
    case SEQ_GROUP_NORM: read_group_norm(a, item); break;
    case SEQ_MAX_POOL2D:
    case SEQ_AVG_POOL2D: read_pool(a, item); break;
    case SEQ_ZERO_PAD2D:
    case SEQ_CONSTANT_PAD2D: read_pad(a, item); break;
    case SEQ_ADAPTIVE_AVG_POOL2D:
    case SEQ_ADAPTIVE_MAX_POOL2D: read_adaptive(a, item); break;
    case SEQ_DROPOUT:
    case SEQ_DROPOUT2D:
        item->p = arg_number(a, "p", 0.5);
        if (item->p > 1) arg_refuse(a, "p", "more than 1", "must be 0 to 1");
        arg_bool(a, "inplace", 0);
        break;
    case SEQ_RELU:
    case SEQ_SILU:
    case SEQ_LEAKY_RELU:
    case SEQ_ELU:
    case SEQ_HARDTANH:
    case SEQ_RELU6:
    case SEQ_GELU:
    case SEQ_SOFTPLUS: read_activation(a, item); break;
    case SEQ_FLATTEN:
        arg_expect(a, "start_dim", "1", "1");
        arg_expect(a, "end_dim", "-1", "3");
        break;
    case SEQ_UNFLATTEN: read_unflatten(a, item); break;
    case SEQ_SOFTMAX:
    case SEQ_LOG_SOFTMAX: arg_expect(a, "dim", "1", "-1"); break;
    default: break;
    }
}

static int unknown_kind(const struct sequential *s, int line, const char *text) {
    if (!strncmp(text, "Embedding(", 10))
        return sequential_fail(s, line,
                               "an Embedding takes integers, and the samples of a data set "
                               "are floats: in a program of your own there is "
                               "duet_embedding");
    if (!strncmp(text, "SyncBatchNorm(", 14))
        return sequential_fail(s, line,
                               "give BatchNorm1d or BatchNorm2d, and --sync-bn, which "
                               "converts every one of them");
    char known[SEQ_KINDS * 20] = "";
    for (int i = 0, used = 0; i < SEQ_KINDS; i++)
        used += snprintf(known + used, sizeof known - (size_t)used, i ? ", %s" : "%s", kinds[i]);
    return sequential_fail(s, line, "there are Sequential, %s", known);
}

int sequential_read_layer(const struct sequential *s, const char *text, size_t length,
                          struct sequential_item *item) {
    struct args a = {.s = s, .line = item->line};
    const char *open = memchr(text, '(', length);
    size_t word = open ? (size_t)(open - text) : 0;
    int kind = 0;
    while (kind < SEQ_KINDS && (strlen(kinds[kind]) != word || memcmp(kinds[kind], text, word)))
        kind++;
    if (kind == SEQ_KINDS) return unknown_kind(s, item->line, text);
    if (text[length - 1] != ')')
        return sequential_fail(s, item->line, "its parentheses do not close in this line");
    item->kind = (enum sequential_kind)kind;
    if (kind != SEQ_IDENTITY) CHECK(arg_split(&a, open + 1, length - word - 2));
    read_args(&a, item);
    for (int i = 0; !a.code && i < a.count; i++)
        if (*a.key[i]) arg_refuse(&a, a.key[i], a.value[i], "Duet's layer has no such argument");
    return a.code;
}
