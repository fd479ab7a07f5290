/* The model that a text describes: what each layer makes of a sample's shape, its layers in the
 * words of duet.h, and forward, which goes through the list. A size that does not fit is named with
 * its layer before anything is computed. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/error.h"
#include "models/models.h"
#include "models/sequential/sequential.h"

/* ---- shapes ---- */

/* What one sample is between two layers: a picture, or `channels` numbers. */
struct shape {
    int flat;
    int channels, height, width;
};

static const char *shape_words(const struct shape *x, char text[64]) {
    if (x->flat)
        snprintf(text, 64, "%d features", x->channels);
    else
        snprintf(text, 64, "%d x %d x %d", x->channels, x->height, x->width);
    return text;
}

static int misfit(const struct sequential *s, const struct sequential_item *item,
                  const struct shape *x, const char *takes) {
    char text[64];
    return sequential_fail(s, item->line, "layer %.60s takes %s, but is given %s", item->name,
                           takes, shape_words(x, text));
}

static int flatten_shape(struct shape *x) {
    double count = (double)x->channels * x->height * x->width;
    if (x->flat) return 1;
    if (count > MODEL_MAX_COUNT) return 0;
    *x = (struct shape){1, (int)count, 1, 1};
    return 1;
}

static int windows(int side, const struct sequential_item *item) {
    int64_t room = (int64_t)side + 2 * (int64_t)item->padding - item->kernel;
    if (item->ceil_mode) room += pool_ceil_extra(side, item->kernel, item->stride, item->padding);
    return room < 0 ? 0 : (int)(room / item->stride + 1);
}

static int through_window(const struct sequential *s, const struct sequential_item *item,
                          struct shape *x) {
    char takes[64];
    int is_conv = item->kind == SEQ_CONV2D, height = windows(x->height, item),
        width = windows(x->width, item);
    snprintf(takes, sizeof takes, "pictures of at least %d x %d", item->kernel, item->kernel);
    if (is_conv) snprintf(takes, sizeof takes, "pictures of %d channels", item->in);
    if (x->flat || (is_conv && x->channels != item->in)) return misfit(s, item, x, takes);
    snprintf(takes, sizeof takes, "pictures of at least %d x %d", item->kernel, item->kernel);
    if (!height || !width) return misfit(s, item, x, takes);
    *x = (struct shape){0, is_conv ? item->out : x->channels, height, width};
    return OK;
}

static int through_pad(const struct sequential *s, const struct sequential_item *item,
                       struct shape *x) {
    const int *p = item->sides; /* left, right, top, bottom */
    int64_t height = (int64_t)x->height + p[2] + p[3], width = (int64_t)x->width + p[0] + p[1];
    if (x->flat || p[0] <= -x->width || p[1] <= -x->width || p[2] <= -x->height ||
        p[3] <= -x->height || height < 1 || width < 1)
        return misfit(s, item, x, "pictures of which it leaves something");
    if (height * width > MODEL_MAX_COUNT) return misfit(s, item, x, "smaller pictures");
    x->height = (int)height, x->width = (int)width;
    return OK;
}

/* The last dimensions of x are normalized_shape. */
static int through_layer_norm(const struct sequential *s, const struct sequential_item *item,
                              const struct shape *x) {
    const int dims[3] = {x->flat ? 0 : x->channels, x->height, x->flat ? x->channels : x->width};
    int most = x->flat ? 1 : 3;
    if (item->rank <= most &&
        !memcmp(item->shape, dims + 3 - item->rank, (size_t)item->rank * sizeof *dims))
        return OK;
    char takes[64];
    int used = snprintf(takes, sizeof takes, "%d", item->shape[0]);
    for (int i = 1; i < item->rank; i++)
        used += snprintf(takes + used, sizeof takes - (size_t)used, " x %d", item->shape[i]);
    snprintf(takes + used, sizeof takes - (size_t)used, " at the end");
    return misfit(s, item, x, takes);
}

/* x becomes what the layer makes of it. */
static int through(const struct sequential *s, const struct sequential_item *item,
                   struct shape *x) {
    char takes[64];
    snprintf(takes, sizeof takes, "%d %s", item->in,
             item->kind == SEQ_BATCH_NORM2D || item->kind == SEQ_GROUP_NORM ? "channels"
                                                                            : "features");
    switch (item->kind) {
    case SEQ_CONV2D:
    case SEQ_MAX_POOL2D:
    case SEQ_AVG_POOL2D: return through_window(s, item, x);
    case SEQ_ZERO_PAD2D:
    case SEQ_CONSTANT_PAD2D: return through_pad(s, item, x);
    case SEQ_ADAPTIVE_AVG_POOL2D:
    case SEQ_ADAPTIVE_MAX_POOL2D:
        if (x->flat) return misfit(s, item, x, "pictures");
        if (item->height) x->height = item->height;
        if (item->width) x->width = item->width;
        return OK;
    case SEQ_UNFLATTEN:
        if (!x->flat || x->channels != item->in) return misfit(s, item, x, takes);
        *x = (struct shape){0, item->out, item->height, item->width};
        return OK;
    case SEQ_BATCH_NORM2D:
        return x->flat || x->channels != item->in ? misfit(s, item, x, takes) : OK;
    case SEQ_LAYER_NORM: return through_layer_norm(s, item, x);
    case SEQ_GROUP_NORM: return x->channels != item->in ? misfit(s, item, x, takes) : OK;
    case SEQ_LINEAR:
    case SEQ_BATCH_NORM1D:
        if (!x->flat || x->channels != item->in) return misfit(s, item, x, takes);
        x->channels = item->out;
        return OK;
    case SEQ_DROPOUT2D: return x->flat ? misfit(s, item, x, "pictures") : OK;
    case SEQ_SOFTMAX:
    case SEQ_LOG_SOFTMAX: return x->flat ? OK : misfit(s, item, x, "features: flatten first");
    case SEQ_FLATTEN: return flatten_shape(x) ? OK : misfit(s, item, x, "fewer numbers");
    default: return OK;
    }
}

/* A sample that is a vector, as those of nn.Linear are, is C x 1 x 1 here. */
static int takes_vectors(const struct sequential *s) {
    for (int i = 0; i < s->count; i++) {
        enum sequential_kind kind = s->items[i].kind;
        if (kind == SEQ_LINEAR || kind == SEQ_BATCH_NORM1D || kind == SEQ_UNFLATTEN) return 1;
        if (kind == SEQ_FLATTEN || kind == SEQ_CONV2D || kind == SEQ_BATCH_NORM2D) return 0;
    }
    return 0;
}

static int infer(const struct sequential *s, const int sample[3], int *outputs) {
    struct shape x = {0, sample[0], sample[1], sample[2]};
    const struct sequential_item *last = &s->items[s->count - 1];
    if (takes_vectors(s) && x.height == 1 && x.width == 1) x.flat = 1;
    for (int i = 0; i < s->count; i++)
        CHECK(through(s, &s->items[i], &x));
    char text[64];
    if (!x.flat)
        return sequential_fail(s, last->line,
                               "the last layer leaves %s of each sample: end with one number for "
                               "each class, as Flatten and Linear do",
                               shape_words(&x, text));
    *outputs = x.channels;
    return OK;
}

/* The samples for which all sizes fit: the text does not name them. Random data has this shape. */
static void guess_sample(const struct sequential *s, int sample[3]) {
    static const int sides[] = {28, 32, 64, 96, 224, 227, 299};
    int channels[3] = {1, 3, 0}, vector = 1, outputs;
    for (int i = s->count - 1; i >= 0; i--) {
        const struct sequential_item *item = &s->items[i];
        if (item->kind == SEQ_CONV2D || item->kind == SEQ_BATCH_NORM2D ||
            item->kind == SEQ_GROUP_NORM)
            channels[0] = item->in;
        if (item->kind == SEQ_LINEAR || item->kind == SEQ_BATCH_NORM1D ||
            item->kind == SEQ_UNFLATTEN)
            vector = item->in;
    }
    for (size_t i = 0; i < 2 * sizeof sides / sizeof *sides; i++) {
        int side = sides[i / 2], first = channels[0] == 3 && i < 4 ? sides[1 - i / 2] : side;
        const int one[3] = {channels[i % 2], first, first};
        if (infer(s, one, &outputs)) continue;
        memcpy(sample, one, sizeof one);
        return;
    }
    memcpy(sample, (int[3]){vector, 1, 1}, 3 * sizeof *sample);
    if (infer(s, sample, &outputs))
        memcpy(sample, (int[3]){channels[0], 28, 28}, 3 * sizeof *sample);
}

/* ---- the model ---- */

static int register_layer(duet_module *m, const struct sequential_item *item) {
    switch (item->kind) {
    case SEQ_CONV2D:
        return duet_module_conv2d(m, item->name, item->in, item->out, item->kernel, item->stride,
                                  item->padding, item->bias);
    case SEQ_LINEAR: return duet_module_linear(m, item->name, item->in, item->out, item->bias);
    case SEQ_BATCH_NORM1D:
    case SEQ_BATCH_NORM2D:
        return duet_module_batch_norm(m, item->name, item->out, item->eps, item->momentum);
    case SEQ_LAYER_NORM:
        return duet_module_layer_norm(m, item->name, item->rank, item->shape, item->eps,
                                      item->affine, item->bias);
    case SEQ_GROUP_NORM:
        return duet_module_group_norm(m, item->name, item->groups, item->in, item->eps,
                                      item->affine, item->bias);
    case SEQ_DROPOUT: return duet_module_dropout(m, item->name, item->p);
    case SEQ_DROPOUT2D: return duet_module_dropout2d(m, item->name, item->p);
    default: return -1;
    }
}

static int has_layer(enum sequential_kind kind) {
    return kind == SEQ_CONV2D || kind == SEQ_LINEAR || kind == SEQ_BATCH_NORM1D ||
           kind == SEQ_BATCH_NORM2D || kind == SEQ_LAYER_NORM || kind == SEQ_GROUP_NORM ||
           kind == SEQ_DROPOUT || kind == SEQ_DROPOUT2D;
}

/* The data set must not have more classes than the model has outputs. */
static int check_classes(const struct sequential *s, int classes, int outputs) {
    if (classes <= outputs) return OK;
    return sequential_fail(s, s->items[s->count - 1].line,
                           "%d outputs for data of %d classes: give --classes %d, or a model with "
                           "more outputs",
                           outputs, classes, outputs);
}

static void describe(duet_module *m, void *context) {
    const struct sequential *s = context;
    int outputs = 0;
    int code = infer(s, duet_module_sample(m), &outputs);
    if (!code) code = check_classes(s, duet_module_classes(m), outputs);
    module_fail(m, code);
    if (code) return;
    model_of(m)->classes = outputs;
    for (int i = 0; i < s->count; i++)
        register_layer(m, &s->items[i]);
}

/* A side of 0 stays as it is. */
static duet_var *adaptive(duet_tape *t, const struct sequential_item *item, duet_var *x) {
    int height = item->height, width = item->width;
    if (x && !height) height = x->value.dims[2];
    if (x && !width) width = x->value.dims[3];
    return item->kind == SEQ_ADAPTIVE_AVG_POOL2D ? duet_adaptive_avg_pool2d(t, x, height, width)
                                                 : duet_adaptive_max_pool2d(t, x, height, width);
}

static duet_var *pool(duet_tape *t, const struct sequential_item *item, duet_var *x) {
    const struct duet_pool how = {.stride = {item->stride, item->stride},
                                  .padding = {item->padding, item->padding},
                                  .ceil_mode = item->ceil_mode};
    return item->kind == SEQ_MAX_POOL2D ? duet_max_pool2d(t, x, item->kernel, &how)
                                        : duet_avg_pool2d(t, x, item->kernel, &how);
}

static duet_var *apply(duet_tape *t, const struct sequential_item *item, duet_var *x) {
    switch (item->kind) {
    case SEQ_RELU: return duet_relu(t, x);
    case SEQ_TANH: return duet_tanh(t, x);
    case SEQ_SIGMOID: return duet_sigmoid(t, x);
    case SEQ_SILU: return duet_multiply(t, x, duet_sigmoid(t, x));
    case SEQ_LEAKY_RELU: return duet_leaky_relu(t, x, item->a);
    case SEQ_ELU: return duet_elu(t, x, item->a);
    case SEQ_SOFTPLUS: return duet_softplus(t, x);
    case SEQ_HARDTANH: return duet_clamp(t, x, item->a, item->b);
    case SEQ_RELU6: return duet_clamp(t, x, 0, 6);
    case SEQ_GELU: return duet_gelu(t, x, item->tanh ? DUET_GELU_TANH : DUET_GELU);
    case SEQ_MAX_POOL2D:
    case SEQ_AVG_POOL2D: return pool(t, item, x);
    case SEQ_ZERO_PAD2D:
    case SEQ_CONSTANT_PAD2D:
        return duet_pad2d(t, x, item->sides[0], item->sides[1], item->sides[2], item->sides[3],
                          item->value);
    case SEQ_ADAPTIVE_AVG_POOL2D:
    case SEQ_ADAPTIVE_MAX_POOL2D: return adaptive(t, item, x);
    case SEQ_UNFLATTEN:
        return duet_reshape(t, x, 4, (int[]){-1, item->out, item->height, item->width});
    case SEQ_FLATTEN: return duet_flatten(t, x);
    case SEQ_SOFTMAX: return duet_softmax(t, x);
    case SEQ_LOG_SOFTMAX: return duet_log_softmax(t, x);
    default: return item->layer >= 0 ? duet_layer(t, item->layer, x) : x;
    }
}

static duet_var *forward(duet_tape *t, duet_var *x, void *context) {
    const struct sequential *s = context;
    if (takes_vectors(s)) x = duet_flatten(t, x);
    for (int i = 0; i < s->count; i++) {
        const struct sequential_item *item = &s->items[i];
        const int first = x ? x->place : 0;
        int norm = item->kind == SEQ_BATCH_NORM1D || item->kind == SEQ_BATCH_NORM2D;
        if (norm && i + 1 < s->count && item[1].kind == SEQ_RELU) {
            x = duet_layer_relu(t, item->layer, x); /* both in one pass */
            i++;
        } else {
            x = apply(t, item, x);
        }
        if (x) tape_forget_since(t, first, x);
    }
    return x;
}

void sequential_make_model(struct sequential *s) {
    int layers = 0;
    for (int i = 0; i < s->count; i++)
        if (has_layer(s->items[i].kind)) s->items[i].layer = layers++;
    s->model = (struct duet_model){
        .name = s->name,
        .describe = describe,
        .forward = forward,
        .loss = s->items[s->count - 1].kind == SEQ_LOG_SOFTMAX ? DUET_NLL : DUET_CROSS_ENTROPY,
        .context = s};
    guess_sample(s, s->model.sample);
}

const struct sequential *sequential_of(const struct duet_model *model) {
    return model && model->forward == forward ? model->context : NULL;
}
