/* The layers: each looks its parameters up by index and calls the internal op. */
#include <math.h>

#include "api/api.h"
#include "nn/tape_internal.h"

struct param *api_param_at(duet_tape *t, const char *layer, int i, int rank) {
    struct param_set *set = t->params;
    int count = set ? set->count : 0;
    if (i < 0 || i >= count) {
        api_tape_fail(t, fail(ERR_USAGE, "%s: parameter %d: the pass was begun with %d of them",
                              layer, i, count));
        return NULL;
    }
    if (!rank || set->param[i].value.rank == rank) return &set->param[i];
    api_tape_fail(t, fail(ERR_USAGE, "%s: %s is of rank %d: must be %d", layer,
                          set->param[i].spec->name, set->param[i].value.rank, rank));
    return NULL;
}

/* The same of a bias, where DUET_NO_BIAS stands for none. *wrong: the tape has an error. */
static struct param *bias_at(duet_tape *t, const char *layer, int i, int *wrong) {
    struct param *bias = i == DUET_NO_BIAS ? NULL : api_param_at(t, layer, i, 1);
    *wrong = i != DUET_NO_BIAS && !bias;
    return bias;
}

/* 1 if a size, stride or padding is no number for a layer; the tape then has the error. */
static int beyond(duet_tape *t, const char *layer, const char *what, int value, int least) {
    if (value >= least && value <= API_WINDOW) return 0;
    api_tape_fail(
        t, fail(ERR_USAGE, "%s: %s %d: give %d to %d", layer, what, value, least, API_WINDOW));
    return 1;
}

/* 1 if a result of rows x columns for each of `outputs` would be too large for a tensor. */
static int too_large(duet_tape *t, const char *layer, const struct var *x, int64_t outputs,
                     int64_t rows, int64_t columns) {
    int64_t samples = x->value.dims[0] ? x->value.dims[0] : 1;
    if (rows <= INT32_MAX && columns <= INT32_MAX && rows * columns <= INT32_MAX / outputs &&
        rows * columns * outputs <= INT32_MAX / samples)
        return 0;
    api_tape_fail(t, fail(ERR_USAGE,
                          "%s: %lld x %lld x %lld outputs for %lld samples: a tensor has at most "
                          "2^31 - 1 elements",
                          layer, (long long)outputs, (long long)rows, (long long)columns,
                          (long long)samples));
    return 1;
}

/* The result of conv2d; its padding makes the picture larger before the kernel makes it smaller. */
static int conv2d_too_large(duet_tape *t, const struct var *x, const struct param *w, int stride,
                            int padding) {
    int64_t side[2];
    if (x->value.rank != 4) return 0; /* conv2d itself refuses it */
    for (int i = 0; i < 2; i++) {
        int64_t padded = (int64_t)x->value.dims[2 + i] + 2 * padding, k = w->value.dims[2 + i];
        side[i] = padded < k ? 1 : (padded - k) / stride + 1;
        if (padded > INT32_MAX) side[i] = padded;
    }
    return too_large(t, "conv2d", x, w->value.dims[0], side[0], side[1]);
}

duet_var *duet_conv2d(duet_tape *t, duet_var *x, int w, int b, int stride, int padding) {
    if (api_stuck(t, x) || beyond(t, "conv2d", "stride", stride, 1) ||
        beyond(t, "conv2d", "padding", padding, 0))
        return NULL;
    int wrong;
    struct param *weight = api_param_at(t, "conv2d", w, 4), *bias = bias_at(t, "conv2d", b, &wrong);
    if (!weight || wrong || conv2d_too_large(t, var_of(x), weight, stride, padding)) return NULL;
    return public_var(conv2d(t->tape, var_of(x), weight, bias, stride, padding));
}

/* The rows that a linear layer sees in each sample of x (N,..,K). */
static int64_t rows_of_sample(duet_var *x) {
    const struct tensor *v = &var_of(x)->value;
    return v->rank > 2 ? (int64_t)tensor_sample_count(v) / v->dims[v->rank - 1] : 1;
}

duet_var *duet_linear(duet_tape *t, duet_var *x, int w, int b) {
    if (api_stuck(t, x)) return NULL;
    int wrong;
    struct param *weight = api_param_at(t, "linear", w, 2), *bias = bias_at(t, "linear", b, &wrong);
    if (!weight || wrong ||
        too_large(t, "linear", var_of(x), weight->value.dims[0], rows_of_sample(x), 1))
        return NULL;
    return public_var(linear(t->tape, var_of(x), weight, bias));
}

duet_var *duet_matmul_add(duet_tape *t, duet_var *x, int w, int b) {
    if (api_stuck(t, x)) return NULL;
    int wrong;
    struct param *weight = api_param_at(t, "matmul_add", w, 2),
                 *bias = bias_at(t, "matmul_add", b, &wrong);
    if (!weight || wrong ||
        too_large(t, "matmul_add", var_of(x), weight->value.dims[1], rows_of_sample(x), 1))
        return NULL;
    return public_var(matmul_add(t->tape, var_of(x), weight, bias));
}

duet_var *duet_avg_pool2d(duet_tape *t, duet_var *x, int size, int stride) {
    if (api_stuck(t, x) || beyond(t, "pooling", "size", size, 1) ||
        beyond(t, "pooling", "stride", stride, 1))
        return NULL;
    return public_var(avg_pool2d(t->tape, var_of(x), size, stride));
}

duet_var *duet_max_pool2d(duet_tape *t, duet_var *x, int size, int stride) {
    if (api_stuck(t, x) || beyond(t, "pooling", "size", size, 1) ||
        beyond(t, "pooling", "stride", stride, 1))
        return NULL;
    return public_var(max_pool2d(t->tape, var_of(x), size, stride));
}

/* 1: a picture with these margins would be too large for a tensor. */
static int pad_too_large(duet_tape *t, duet_var *x, int64_t rows, int64_t columns) {
    const struct tensor *of = &var_of(x)->value;
    return of->rank == 4 && too_large(t, "padding", var_of(x), of->dims[1], of->dims[2] + rows,
                                      of->dims[3] + columns);
}

duet_var *duet_pad2d(duet_tape *t, duet_var *x, int left, int right, int top, int bottom,
                     double value) {
    if (api_stuck(t, x) || beyond(t, "pad", "left", left, -API_WINDOW) ||
        beyond(t, "pad", "right", right, -API_WINDOW) ||
        beyond(t, "pad", "top", top, -API_WINDOW) ||
        beyond(t, "pad", "bottom", bottom, -API_WINDOW) ||
        pad_too_large(t, x, (int64_t)top + bottom, (int64_t)left + right))
        return NULL;
    if (!isfinite((float)value)) {
        api_tape_fail(t, fail(ERR_USAGE, "pad: value %g: give a finite float", value));
        return NULL;
    }
    return public_var(
        pad2d(t->tape, var_of(x), (struct pad_sides){left, right, top, bottom}, (float)value));
}

/* With ceil_mode there are up to `size` pixels more behind the padding. */
static int refuse_padded(duet_tape *t, duet_var *x, int size, int stride, int padding) {
    return api_stuck(t, x) || beyond(t, "pooling", "size", size, 1) ||
           beyond(t, "pooling", "stride", stride, 1) ||
           beyond(t, "pooling", "padding", padding, 0) ||
           pad_too_large(t, x, 2 * (int64_t)padding + size, 2 * (int64_t)padding + size);
}

duet_var *duet_avg_pool2d_padded(duet_tape *t, duet_var *x, int size, int stride, int padding) {
    if (refuse_padded(t, x, size, stride, padding)) return NULL;
    return public_var(avg_pool2d_padded(t->tape, var_of(x), size, stride, padding));
}

duet_var *duet_max_pool2d_padded(duet_tape *t, duet_var *x, int size, int stride, int padding,
                                 int ceil_mode) {
    if (refuse_padded(t, x, size, stride, padding)) return NULL;
    return public_var(max_pool2d_padded(t->tape, var_of(x), size, stride, padding, ceil_mode));
}

/* 1: an adaptive pool cannot make such an output. */
static int refuse_adaptive(duet_tape *t, const char *layer, duet_var *x, int height, int width) {
    if (api_stuck(t, x) || beyond(t, layer, "height", height, 1) ||
        beyond(t, layer, "width", width, 1))
        return 1;
    return var_of(x)->value.rank == 4 &&
           too_large(t, layer, var_of(x), var_of(x)->value.dims[1], height, width);
}

duet_var *duet_adaptive_avg_pool2d(duet_tape *t, duet_var *x, int height, int width) {
    if (refuse_adaptive(t, "adaptive_avg_pool2d", x, height, width)) return NULL;
    return public_var(adaptive_avg_pool2d(t->tape, var_of(x), height, width));
}

duet_var *duet_adaptive_max_pool2d(duet_tape *t, duet_var *x, int height, int width) {
    if (refuse_adaptive(t, "adaptive_max_pool2d", x, height, width)) return NULL;
    return public_var(adaptive_max_pool2d(t->tape, var_of(x), height, width));
}

/* The running statistics lie side by side, as buffers of one shape do. */
static int find_running(duet_tape *t, int i, int channels, struct tensor *running) {
    struct buffer_set *set = t->buffers;
    const int dims[2] = {2, channels};
    *running = (struct tensor){0};
    if (i == DUET_NO_BUFFERS) return OK;
    if (!set || i < 0 || i >= set->count - 1)
        return fail(ERR_USAGE, "batch_norm: buffers %d and %lld: there are %d of them", i, i + 1LL,
                    set ? set->count : 0);
    for (int k = i; k <= i + 1; k++) {
        const struct buffer_spec *spec = set->buffer[k].spec;
        if (spec->dtype != DTYPE_F32 || spec->rank != 1 || spec->dims[0] != channels)
            return fail(ERR_USAGE, "batch_norm: buffer %s: must be %d numbers", spec->name,
                        channels);
    }
    *running = tensor_plain(set->buffer[i].value.data, DTYPE_F32, 2, dims);
    return OK;
}

/* The kernel counts batches in num_batches_tracked, the buffer behind the running variance. Where
 * there is none, it counts into memory of the step, which nobody reads: the count matters only
 * where momentum is None. */
static int find_batches(duet_tape *t, int i, struct norm_config *config) {
    const int one = 1, words = 2;
    if (!config->running.data) return OK;
    if (i + 2 < t->buffers->count) {
        const struct buffer *b = &t->buffers->buffer[i + 2];
        config->batches = b->value;
        if (b->spec->dtype == DTYPE_I64 && !b->spec->rank) return OK;
    }
    if (!(config->momentum >= 0))
        return fail(ERR_USAGE,
                    "batch_norm: momentum %g: the mean of all batches needs their number: "
                    "register num_batches_tracked, an int64 of rank 0, behind the running variance",
                    config->momentum);
    config->batches = tape_tensor(t->tape, DTYPE_I64, LAYOUT_PLAIN, 1, &one);
    CHECK(tape_error(t->tape));
    struct tensor bits = tensor_plain(config->batches.data, DTYPE_F32, 1, &words);
    return api_zero(t->device, &bits);
}

duet_var *duet_batch_norm(duet_tape *t, duet_var *x, int w, int b, int running, double eps,
                          double momentum) {
    if (api_stuck(t, x)) return NULL;
    struct param *weight = api_param_at(t, "batch_norm", w, 1),
                 *bias = api_param_at(t, "batch_norm", b, 1);
    struct norm_config config = {.epsilon = eps, .momentum = momentum, .synchronised = t->sync_bn};
    if (!(eps >= 0)) api_tape_fail(t, fail(ERR_USAGE, "batch_norm: eps %g: give at least 0", eps));
    if (!weight || !bias || t->error ||
        api_tape_fail(t, find_running(t, running, weight->value.dims[0], &config.running)) ||
        api_tape_fail(t, find_batches(t, running, &config)))
        return NULL;
    return public_var(batch_norm(t->tape, var_of(x), weight, bias, &config));
}

duet_var *duet_flatten(duet_tape *t, duet_var *x) {
    return api_stuck(t, x) ? NULL : public_var(flatten(t->tape, var_of(x)));
}

duet_var *duet_dropout(duet_tape *t, duet_var *x, double p) {
    return api_stuck(t, x) ? NULL : public_var(dropout(t->tape, var_of(x), p));
}

duet_var *duet_dropout2d(duet_tape *t, duet_var *x, double p) {
    return api_stuck(t, x) ? NULL : public_var(dropout2d(t->tape, var_of(x), p));
}

duet_var *duet_softmax(duet_tape *t, duet_var *x) {
    return api_stuck(t, x) ? NULL : public_var(softmax(t->tape, var_of(x)));
}

duet_var *duet_log_softmax(duet_tape *t, duet_var *x) {
    return api_stuck(t, x) ? NULL : public_var(log_softmax(t->tape, var_of(x)));
}
