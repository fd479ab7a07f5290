/* The gradient of each op that an exported model may have, with respect to its input and to every
 * parameter, beside central differences of its own forward pass. (Losses and the oldest layers have
 * checks in double: tests/device/test_kernels_gradient.c.) */
#include <math.h>
#include <stdlib.h>

#include "duet.h"
#include "tests/harness/harness.h"

#define MUST(call) cr_assert(!(call), "%s", duet_error())

/* x is (4,32). A step of H errs by H^2 times a third derivative, and by float32's roundings over H;
 * together, on 1 + the gradient's size, below TOLERANCE. A term that is missing is a tenth. */
enum { SAMPLES = 4, NUMBERS = 32, MOST = 4096 };
static const double H = 1.0 / 128, TOLERANCE = 3e-3;

typedef duet_var *function(duet_tape *t, duet_var *x);
enum {
    VECTOR,
    BIAS,
    LAYER,
    PAIR,
    WINDOW,
    PLANES,
    TURNED,
    TABLE,
    LSTM,
    GRU = LSTM + 3,
    RNN = GRU + 3
};

static duet_var *rows(duet_tape *t, duet_var *x) { /* 4 places of 8 numbers */
    return duet_reshape(t, x, 3, (int[]){-1, 4, 8});
}
static duet_var *picture(duet_tape *t, duet_var *x) {
    return duet_reshape(t, x, 4, (int[]){-1, 2, 4, 4});
}
static duet_var *heads(duet_tape *t, duet_var *x) {
    return duet_permute(t, duet_reshape(t, x, 4, (int[]){-1, 4, 2, 4}), (int[]){0, 2, 1, 3});
}
static duet_var *positive(duet_tape *t, duet_var *x) {
    return duet_add_number(t, duet_multiply(t, x, x), 0.5);
}

#define OF_X(NAME, CALL)                               \
    static duet_var *NAME(duet_tape *t, duet_var *x) { \
        return CALL;                                   \
    }
OF_X(tanh_of, duet_tanh(t, x))
OF_X(sigmoid, duet_sigmoid(t, x))
OF_X(elu, duet_elu(t, x, 1))
OF_X(gelu, duet_gelu(t, x, DUET_GELU))
OF_X(gelu_tanh, duet_gelu(t, x, DUET_GELU_TANH))
OF_X(silu, duet_silu(t, x))
OF_X(softplus, duet_softplus(t, x))
OF_X(exp_of, duet_exp(t, x))
OF_X(erf_of, duet_erf(t, x))
OF_X(sin_of, duet_sin(t, x))
OF_X(cos_of, duet_cos(t, x))
OF_X(gated, duet_multiply(t, x, duet_above(t, duet_softplus(t, x), log(2))))
OF_X(log_of, duet_log(t, positive(t, x)))
OF_X(sqrt_of, duet_sqrt(t, positive(t, x)))
OF_X(reciprocal, duet_reciprocal(t, positive(t, x)))
OF_X(pow_of, duet_pow(t, positive(t, x), 1.5))
OF_X(hardswish, duet_hardswish(t, x))
OF_X(clamp, duet_clamp(t, duet_multiply_number(t, x, 4), -4.1, 4.1))
OF_X(masked, duet_masked_fill(t, x, duet_above(t, x, 0.5), 2))
OF_X(sorted, duet_take_along_dim(t, rows(t, x), duet_argsort(t, rows(t, x), 2, 0), 2))
OF_X(taken,
     duet_take_along_dim(t, rows(t, x), duet_narrow(t, duet_above(t, rows(t, x), 0), 2, 3, 1), 1))
OF_X(scattered, duet_scatter_add(t, duet_above(t, rows(t, x), 0), rows(t, x), 1, 3))
OF_X(softmax, duet_softmax(t, rows(t, x)))
OF_X(log_softmax, duet_log_softmax(t, rows(t, x)))
OF_X(sum, duet_sum(t, rows(t, x), (int[]){1}, 1, 0))
OF_X(mean, duet_mean(t, rows(t, x), (int[]){2}, 1, 1))
OF_X(product, duet_matmul(t, rows(t, x), duet_transpose(t, rows(t, x), 1, 2)))
OF_X(narrow, duet_narrow(t, rows(t, x), 1, 1, 2))
OF_X(joined, duet_cat(t, ((duet_var *[]){rows(t, x), duet_tanh(t, rows(t, x))}), 2, 1))
OF_X(scaled,
     duet_multiply(t, rows(t, x), duet_expand(t, duet_parameter(t, VECTOR), 3, (int[]){-1, 1, 8})))
OF_X(linear, duet_linear(t, rows(t, x), LAYER, BIAS))
OF_X(layer_norm, duet_layer_norm(t, rows(t, x), 1, (int[]){8}, VECTOR, BIAS, 1e-5))
OF_X(group_norm, duet_group_norm(t, picture(t, x), 2, PAIR, PAIR, 1e-5))
OF_X(batch_norm, duet_batch_norm(t, picture(t, x), PAIR, PAIR, DUET_NO_BUFFERS, 1e-5, 0.1, 0))
OF_X(dilated, duet_conv2d(t, picture(t, x), WINDOW, DUET_NO_BIAS,
                          &(struct duet_conv){{1, 2}, {1, 1}, {1, 2}, 1}))
OF_X(depthwise, duet_conv2d(t, picture(t, x), PLANES, PAIR,
                            &(struct duet_conv){{1}, {1, DUET_NO_PADDING}, {1}, 2}))
OF_X(turned,
     duet_conv_transpose(t, picture(t, x), TURNED, DUET_NO_BIAS,
                         &(struct duet_conv){{2}, {1, DUET_NO_PADDING}, {1}, 1}, (int[]){1, 0}))
OF_X(relu, duet_relu(t, picture(t, x)))
OF_X(abs_of, duet_abs(t, x))
OF_X(max_pool,
     duet_max_pool2d(t, picture(t, x), 3, &(struct duet_pool){{1, 2}, {1, DUET_NO_PADDING}, 0, 2}))
OF_X(avg_pool,
     duet_avg_pool2d(t, picture(t, x), 3, &(struct duet_pool){{1, 2}, {1, DUET_NO_PADDING}, 0, 2}))
OF_X(adaptive, duet_adaptive_avg_pool2d(t, picture(t, x), 3, 2))
OF_X(pad, duet_pad2d(t, picture(t, x), 1, 0, -1, 2, 0.5))
OF_X(dropout, duet_dropout(t, x, 0.4))
OF_X(attention, duet_scaled_dot_product_attention(t, heads(t, x), duet_tanh(t, heads(t, x)),
                                                  duet_silu(t, heads(t, x)), NULL))

static duet_var *causal(duet_tape *t, duet_var *x) {
    const struct duet_attention_options how = {.is_causal = 1, .dropout_p = 0.3, .scale = 0.7};
    duet_var *h = heads(t, x);
    return duet_scaled_dot_product_attention(t, h, duet_tanh(t, h), duet_silu(t, h), &how);
}

/* A token of each sample is looked up, and stands beside the numbers. */
static duet_var *embedding(duet_tape *t, duet_var *x) {
    duet_var *place = duet_above(t, duet_narrow(t, x, 1, 0, 2), 0);
    duet_var *word = duet_embedding_of(t, place, TABLE, -1);
    return duet_multiply(t, duet_flatten(t, word), duet_narrow(t, x, 1, 4, 16));
}

/* From states before the first step, which depend on x too; the last ones count as well. The
 * weights are w_ih, w_hh and one bias, which counts twice. */
static duet_var *recurrent(duet_tape *t, duet_var *x, enum duet_recurrent_kind kind, int weights,
                           int reverse) {
    const struct duet_recurrent layer = {kind,        weights,     weights + 1,
                                         weights + 2, weights + 2, reverse};
    duet_var *h = duet_tanh(t, duet_narrow(t, x, 1, 0, 2)), *c = duet_narrow(t, x, 1, 2, 2),
             *y = duet_recurrent(t, rows(t, x), &layer, &h, kind == DUET_LSTM ? &c : NULL);
    return duet_cat(t, (duet_var *[]){duet_flatten(t, y), kind == DUET_LSTM ? c : h}, 2, 1);
}
OF_X(lstm, recurrent(t, x, DUET_LSTM, LSTM, 0))
OF_X(lstm_back, recurrent(t, x, DUET_LSTM, LSTM, 1))
OF_X(gru, recurrent(t, x, DUET_GRU, GRU, 0))
OF_X(rnn_tanh, recurrent(t, x, DUET_RNN_TANH, RNN, 0))

static const struct one {
    const char *name;
    function *call;
} cases[] = {
#define CASE(NAME) \
    { #NAME, NAME }
    CASE(tanh_of),    CASE(sigmoid),    CASE(elu),         CASE(gelu),      CASE(gelu_tanh),
    CASE(silu),       CASE(softplus),   CASE(exp_of),      CASE(erf_of),    CASE(log_of),
    CASE(sqrt_of),    CASE(reciprocal), CASE(pow_of),      CASE(hardswish), CASE(clamp),
    CASE(masked),     CASE(softmax),    CASE(log_softmax), CASE(sum),       CASE(mean),
    CASE(product),    CASE(narrow),     CASE(joined),      CASE(scaled),    CASE(linear),
    CASE(layer_norm), CASE(group_norm), CASE(batch_norm),  CASE(dilated),   CASE(depthwise),
    CASE(turned),     CASE(avg_pool),   CASE(adaptive),    CASE(pad),       CASE(dropout),
    CASE(attention),  CASE(causal),     CASE(embedding),   CASE(lstm),      CASE(lstm_back),
    CASE(gru),        CASE(rnn_tanh),   CASE(relu),        CASE(abs_of),    CASE(max_pool),
    CASE(sin_of),     CASE(cos_of),     CASE(gated),       CASE(sorted),    CASE(taken),
    CASE(scattered),
};

static const struct duet_param description[] = {
    [VECTOR] = {"vector", 1, {8}, NULL},
    [BIAS] = {"bias", 1, {8}, NULL},
    [LAYER] = {"layer", 2, {8, 8}, NULL},
    [PAIR] = {"pair", 1, {2}, NULL},
    [WINDOW] = {"window", 4, {3, 2, 3, 2}, NULL},
    [PLANES] = {"planes", 4, {2, 1, 2, 3}, NULL},
    [TURNED] = {"turned", 4, {2, 3, 3, 2}, NULL},
    [TABLE] = {"table", 2, {3, 8}, NULL},
    [LSTM] = {"lstm", 2, {8, 8}, NULL},
    {"lstm_h", 2, {8, 2}, NULL},
    {"lstm_b", 1, {8}, NULL},
    [GRU] = {"gru", 2, {6, 8}, NULL},
    {"gru_h", 2, {6, 2}, NULL},
    {"gru_b", 1, {6}, NULL},
    [RNN] = {"rnn", 2, {2, 8}, NULL},
    {"rnn_h", 2, {2, 2}, NULL},
    {"rnn_b", 1, {2}, NULL},
};
enum { PARAMS = sizeof description / sizeof *description };

struct bed {
    const struct one *one;
    duet_device *device;
    duet_params *params;
    duet_tape *tape;
    duet_tensor *x, *dy;
    size_t outputs;
    float weight[MOST]; /* of each output, in the sum whose gradient is judged */
};

/* No two alike, from -1.5 to 1.5, and none nearer than two steps of H to 0, where relu-like ops
 * have a corner. */
static float number(int i, int of) {
    float x = (float)((i * 37 + of * 11 + 5) % 97) / 97 * 3 - 1.5f;
    return fabsf(x) > 3 * (float)H ? x : x < 0 ? -1.6f : 1.6f;
}

/* Each on a tape of its own, since dropout draws by the number of the pass. */
static duet_var *forward(struct bed *b, duet_var **leaf) {
    duet_tape_free(b->tape);
    MUST(duet_tape_create(&b->tape, b->device));
    MUST(duet_tape_begin(b->tape, b->params, SAMPLES, DUET_TRAIN));
    *leaf = duet_leaf(b->tape, b->x);
    duet_var *y = b->one->call(b->tape, *leaf);
    cr_assert(!duet_tape_error(b->tape), "%s: %s", b->one->name, duet_error());
    return y;
}

/* The sum of weight[i] y[i]. */
static double value(struct bed *b) {
    static float y[MOST];
    duet_tensor *out;
    duet_var *leaf;
    double sum = 0;
    MUST(duet_var_value(&out, b->tape, forward(b, &leaf)));
    MUST(duet_tensor_read(out, y));
    duet_tensor_free(out);
    for (size_t i = 0; i < b->outputs; i++)
        sum += (double)b->weight[i] * y[i];
    return sum;
}

/* Of a tensor and what backward says of it. */
static void judge(struct bed *b, duet_tensor *tensor, const char *name, const float *gradient,
                  size_t count) {
    float *at = malloc(count * sizeof *at);
    MUST(!at || duet_tensor_read(tensor, at));
    for (size_t i = 0; i < count; i++) {
        const float was = at[i];
        double side[2];
        for (int s = 0; s < 2; s++) {
            at[i] = was + (float)(s ? H : -H);
            MUST(duet_tensor_write(tensor, at));
            side[s] = value(b);
        }
        at[i] = was;
        double want = (side[1] - side[0]) / (2 * H), off = fabs(want - (double)gradient[i]);
        cr_expect(off <= TOLERANCE * (1 + fabs(want)), "%s, %s %zu: %g, differences say %g",
                  b->one->name, name, i, (double)gradient[i], want);
    }
    MUST(duet_tensor_write(tensor, at));
    free(at);
}

static size_t numbers_of(const struct duet_param *p) {
    size_t count = 1;
    for (int d = 0; d < p->rank; d++)
        count *= (size_t)p->shape[d];
    return count;
}

static void check(struct bed *b) {
    static float gradient[PARAMS + 1][MOST];
    duet_var *leaf, *y = forward(b, &leaf);
    duet_tensor *out, *dx;
    MUST(duet_var_value(&out, b->tape, y));
    b->outputs = (size_t)duet_tensor_count(out);
    cr_assert_leq(b->outputs, MOST);
    for (size_t i = 0; i < b->outputs; i++)
        b->weight[i] = number((int)i, 7);
    MUST(duet_tensor_write(out, b->weight));
    MUST(duet_backward(b->tape, y, out));
    MUST(duet_var_grad(&dx, b->tape, leaf));
    MUST(duet_tensor_read(dx, gradient[PARAMS]));
    for (int i = 0; i < PARAMS; i++)
        MUST(duet_tensor_read(duet_params_grad(b->params, i), gradient[i]));
    judge(b, b->x, "x", gradient[PARAMS], SAMPLES * NUMBERS);
    for (int i = 0; i < PARAMS; i++)
        judge(b, duet_params_value(b->params, i), description[i].name, gradient[i],
              numbers_of(&description[i]));
    duet_tensor_free(dx);
    duet_tensor_free(out);
}

Test(gradients, of_each_op_are_those_of_its_differences, .timeout = 120) {
    static float x[MOST];
    static struct bed b;
    MUST(duet_device_open(&b.device, "cpu", 0, 64 << 20));
    MUST(duet_params_create(&b.params, b.device, description, PARAMS));
    for (int i = 0; i < MOST; i++)
        x[i] = number(i, 1);
    MUST(duet_tensor_create(&b.x, b.device, DUET_F32, 2, (int[]){SAMPLES, NUMBERS}, x));
    for (int p = 0; p < PARAMS; p++) {
        for (int i = 0; i < MOST; i++)
            x[i] = number(i, p + 2) / 2;
        MUST(duet_tensor_write(duet_params_value(b.params, p), x));
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        b.one = &cases[i];
        check(&b);
    }
    duet_tape_free(b.tape);
    duet_tensor_free(b.x);
    duet_params_free(b.params);
    duet_devices_close(&b.device, 1);
}

/* The slope of the detached factor is left out. */
Test(gradients, end_at_detach, .timeout = 30) {
    const float x[3] = {0.5f, -2, 3}, ones[3] = {1, 1, 1};
    float y[3], gradient[3];
    duet_device *device;
    duet_tensor *leaf_value, *dy, *value, *dx;
    duet_tape *t;
    MUST(duet_device_open(&device, "cpu", 0, 1 << 20));
    MUST(duet_tensor_create(&leaf_value, device, DUET_F32, 2, (int[]){1, 3}, x));
    MUST(duet_tensor_create(&dy, device, DUET_F32, 2, (int[]){1, 3}, ones));
    MUST(duet_tape_create(&t, device));
    MUST(duet_tape_begin(t, NULL, 1, DUET_TRAIN));
    duet_var *leaf = duet_leaf(t, leaf_value), *square = duet_multiply(t, leaf, leaf),
             *root = duet_multiply(t, leaf, duet_detach(t, square));
    MUST(duet_var_value(&value, t, root));
    MUST(duet_backward(t, root, dy));
    MUST(duet_var_grad(&dx, t, leaf));
    MUST(duet_tensor_read(value, y));
    MUST(duet_tensor_read(dx, gradient));
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(y[i], x[i] * x[i] * x[i]);
        cr_expect_eq(gradient[i], x[i] * x[i], "%g", (double)gradient[i]);
    }
    duet_tensor_free(value);
    duet_tensor_free(dx);
    duet_tensor_free(dy);
    duet_tensor_free(leaf_value);
    duet_tape_free(t);
    duet_devices_close(&device, 1);
}
