/* The layers: each looks its parameters up by index and calls the internal op. */
#include "api/api.h"

/* Parameter i of this pass. If there is none, or its rank is not the one that the layer needs, the
 * tape keeps the error and the result is NULL. */
static struct param *param_at(duet_tape *t, const char *layer, int i, int rank) {
    struct param_set *set = t->params ? &t->params->set : NULL;
    int count = set ? set->count : 0;
    if (i < 0 || i >= count) {
        api_tape_fail(t, fail(ERR_USAGE, "%s: parameter %d: the pass was begun with %d of them",
                              layer, i, count));
        return NULL;
    }
    if (set->param[i].value.rank == rank) return &set->param[i];
    api_tape_fail(t, fail(ERR_USAGE, "%s: %s is of rank %d: must be %d", layer,
                          set->param[i].spec->name, set->param[i].value.rank, rank));
    return NULL;
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
    struct param *weight = param_at(t, "conv2d", w, 4), *bias = param_at(t, "conv2d", b, 1);
    if (!weight || !bias || conv2d_too_large(t, var_of(x), weight, stride, padding)) return NULL;
    return public_var(conv2d(t->tape, var_of(x), weight, bias, stride, padding));
}

duet_var *duet_linear(duet_tape *t, duet_var *x, int w, int b) {
    if (api_stuck(t, x)) return NULL;
    struct param *weight = param_at(t, "linear", w, 2), *bias = param_at(t, "linear", b, 1);
    if (!weight || !bias || too_large(t, "linear", var_of(x), weight->value.dims[0], 1, 1))
        return NULL;
    return public_var(linear(t->tape, var_of(x), weight, bias));
}

duet_var *duet_matmul_add(duet_tape *t, duet_var *x, int w, int b) {
    if (api_stuck(t, x)) return NULL;
    struct param *weight = param_at(t, "matmul_add", w, 2), *bias = param_at(t, "matmul_add", b, 1);
    if (!weight || !bias || too_large(t, "matmul_add", var_of(x), weight->value.dims[1], 1, 1))
        return NULL;
    return public_var(matmul_add(t->tape, var_of(x), weight, bias));
}

duet_var *duet_relu(duet_tape *t, duet_var *x) {
    return api_stuck(t, x) ? NULL : public_var(relu(t->tape, var_of(x)));
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

duet_var *duet_flatten(duet_tape *t, duet_var *x) {
    return api_stuck(t, x) ? NULL : public_var(flatten(t->tape, var_of(x)));
}

duet_var *duet_dropout(duet_tape *t, duet_var *x, double p) {
    return api_stuck(t, x) ? NULL : public_var(dropout(t->tape, var_of(x), p));
}

duet_var *duet_log_softmax(duet_tape *t, duet_var *x) {
    return api_stuck(t, x) ? NULL : public_var(log_softmax(t->tape, var_of(x)));
}

/* ---- losses ---- */

_Static_assert(DUET_MEAN == (int)REDUCE_MEAN && DUET_SUM == (int)REDUCE_SUM &&
                   DUET_NONE == (int)REDUCE_NONE,
               "duet.h repeats the reductions of device/op.h");

static int check_loss(const duet_tape *t, const char *op, const struct var *x,
                      const duet_tensor *labels, enum duet_reduction r) {
    CHECK(api_operand(t, op, "labels", labels, DTYPE_I32));
    if ((unsigned)r > DUET_NONE)
        return fail(ERR_USAGE, "%s: reduction %d: there are DUET_MEAN, DUET_SUM and DUET_NONE", op,
                    (int)r);
    if (x->value.dtype != DTYPE_F32 || x->value.rank != 2)
        return fail(ERR_USAGE, "%s: scores of rank %d: must be (samples, classes)", op,
                    x->value.rank);
    if (labels->t.rank == 1 && labels->t.dims[0] == x->value.dims[0]) return OK;
    return fail(ERR_USAGE, "%s: labels of rank %d, %d of them, for %d samples: give one each", op,
                labels->t.rank, labels->t.dims[0], x->value.dims[0]);
}

duet_var *duet_cross_entropy(duet_tape *t, duet_var *scores, const duet_tensor *labels,
                             enum duet_reduction r) {
    if (api_stuck(t, scores) ||
        api_tape_fail(t, check_loss(t, "cross entropy", var_of(scores), labels, r)))
        return NULL;
    return public_var(cross_entropy(t->tape, var_of(scores), &labels->t, (enum reduction)r));
}

duet_var *duet_cross_entropy_smoothed(duet_tape *t, duet_var *scores, const duet_tensor *labels,
                                      double label_smoothing, enum duet_reduction r) {
    if (api_stuck(t, scores) ||
        api_tape_fail(t, check_loss(t, "cross entropy", var_of(scores), labels, r)))
        return NULL;
    if (!(label_smoothing >= 0 && label_smoothing <= 1)) {
        api_tape_fail(t, fail(ERR_USAGE,
                              "cross entropy: label_smoothing must be between 0.0 and 1.0. Got: %g",
                              label_smoothing));
        return NULL;
    }
    return public_var(cross_entropy_smoothed(t->tape, var_of(scores), &labels->t, (enum reduction)r,
                                             label_smoothing));
}

duet_var *duet_nll_loss(duet_tape *t, duet_var *log_probabilities, const duet_tensor *labels,
                        enum duet_reduction r) {
    if (api_stuck(t, log_probabilities) ||
        api_tape_fail(t, check_loss(t, "nll loss", var_of(log_probabilities), labels, r)))
        return NULL;
    return public_var(nll_loss(t->tape, var_of(log_probabilities), &labels->t, (enum reduction)r));
}
