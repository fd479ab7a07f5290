/* The public tape: what is refused, sums of losses, views as batches, dropout.
 * (tests/core/nn/test_ops.c tests losses and the gradients of layers.) */
#include <math.h>

#include "tests/duet/shared.h"

/* Odd sizes: neither a group of 16 samples nor a multiple of a vector. */
enum { N = 5, C = 2, H = 7, W = 6, O = 3, K = 4, M = 3 };
enum { CONV_W, CONV_B, LINEAR_W, LINEAR_B, PARAMS };
static const struct duet_param shapes[PARAMS] = {{"conv.weight", 4, {O, C, 3, 3}, NULL},
                                                 {"conv.bias", 1, {O}, NULL},
                                                 {"linear.weight", 2, {M, K}, NULL},
                                                 {"linear.bias", 1, {M}, NULL}};

struct net {
    duet_device *devices[2];
    duet_params *params;
    duet_tape *tape;
};

static void net_open(struct net *net, const char *kind) {
    float value[O * C * 9];
    MUST(duet_devices_open(net->devices, 2, kind, api_memory(kind)));
    MUST(duet_params_create(&net->params, net->devices[0], shapes, PARAMS));
    MUST(duet_tape_create(&net->tape, net->devices[0]));
    for (int i = 0; i < PARAMS; i++) {
        for (size_t k = 0; k < O * C * 9; k++)
            value[k] = api_number(k + (size_t)i);
        MUST(duet_tensor_write(duet_params_value(net->params, i), value));
    }
}

static void net_close(struct net *net) {
    duet_tape_free(net->tape);
    duet_params_free(net->params);
    duet_devices_close(net->devices, 2);
}

/* What the tables of misuse (test_misuse.c) and of refused layers (tests/core/nn/test_refused.c) do
 * not have: arguments that are good by themselves and do not fit each other. */
Test(api_tape, what_does_not_fit_is_refused, .timeout = 30) {
    struct net net;
    float host[N * C * H * W];
    duet_params *elsewhere;
    net_open(&net, "cpu");
    duet_tape *t = net.tape;
    duet_tensor *flat = api_tensor(net.devices[0], 2, (int[2]){N, K}, host),
                *far = api_tensor(net.devices[1], 2, (int[2]){N, K}, host),
                *X = api_tensor(net.devices[0], 4, (int[4]){N, C, H, W}, host);
    MUST(duet_params_create(&elsewhere, net.devices[1], shapes, PARAMS));
    MUST_FAIL(duet_tape_begin(t, elsewhere, N, DUET_TRAIN), DUET_USAGE, "cpu(1)");
    cr_assert_null(duet_input(t, X), "the pass did not begin");
    MUST(duet_tape_begin(t, net.params, N + 1, DUET_TRAIN));
    cr_assert_null(duet_input(t, X));
    MUST_FAIL(duet_tape_error(t), DUET_USAGE, "duet_tape_begin was given 6");
    MUST(duet_tape_begin(t, net.params, N, DUET_TRAIN)); /* a new pass has no error */
    duet_var *h = duet_relu(t, duet_leaf(t, flat));
    MUST_FAIL(duet_backward(t, h, X), DUET_USAGE, "both must have the same shape");
    MUST_FAIL(duet_backward(t, h, far), DUET_USAGE, "cpu(1)");
    MUST(duet_backward(t, h, flat));
    MUST(duet_tape_begin(t, net.params, N, DUET_TRAIN));
    for (int i = 0; i < 16; i++)
        cr_assert_not_null(duet_leaf(t, flat));
    cr_assert_null(duet_leaf(t, flat));
    MUST_FAIL(duet_tape_error(t), DUET_USAGE, "at most 16 leaves");
    duet_tensor_free(flat), duet_tensor_free(far), duet_tensor_free(X);
    duet_params_free(elsewhere);
    net_close(&net);
}

/* loss_a + loss_b + mean(w w): value and gradients are those of PyTorch's sum, each loss with its
 * own reduction. */
Test(tape, losses_are_added_up, .timeout = 30) {
    struct net net;
    float host[N * C * H * W], apart[3][M * K], sum[M * K];
    int32_t y[N] = {0, 1, 2, 0, 1};
    net_open(&net, "cpu");
    duet_tape *t = net.tape;
    duet_tensor *x = api_tensor(net.devices[0], 2, (int[2]){N, K}, host), *labels, *targets;
    MUST(duet_tensor_create(&labels, net.devices[0], DUET_I32, 1, (int[]){N}, y));
    MUST(duet_tensor_create(&targets, net.devices[0], DUET_F32, 2, (int[]){N, M}, host));
    double read[4];
    for (int which = 0; which < 4; which++) {
        MUST(duet_tape_begin(t, net.params, N, DUET_TRAIN));
        duet_var *scores = duet_linear(t, duet_input(t, x), LINEAR_W, LINEAR_B),
                 *w = duet_expand(t, duet_parameter(t, LINEAR_W), 3, (int[]){-1, M, K}),
                 *a = duet_cross_entropy(t, scores, labels, DUET_MEAN, NULL),
                 *b = duet_mse_loss(t, scores, targets, DUET_SUM),
                 *c = duet_mean(t, duet_multiply(t, w, w), NULL, 0, 0),
                 *all = duet_add(t, duet_add(t, a, b), c), *roots[] = {a, b, c, all};
        int64_t right = -1, of_a = -1;
        MUST(duet_backward(t, roots[which], NULL));
        MUST(duet_tensor_read(duet_params_grad(net.params, LINEAR_W),
                              which < 3 ? apart[which] : sum));
        if (which < 2) MUST(duet_loss_read(t, roots[which], &read[which], NULL));
        if (which < 3) continue;
        MUST(duet_loss_read(t, all, &read[3], &right));
        MUST(duet_loss_read(t, a, NULL, &of_a));
        cr_assert_eq(right, of_a);
        duet_tensor *value;
        MUST(duet_var_value(&value, t, c));
        MUST(duet_tensor_read(value, host));
        duet_tensor_free(value);
        cr_assert_float_eq(read[3], read[0] + read[1] + (double)host[0] * N, 1e-12);
        MUST_FAIL(duet_var_value(&value, t, all), DUET_USAGE, "duet_loss_read");
        MUST_FAIL(duet_backward(t, all, x), DUET_USAGE, "a sum of losses");
    }
    for (int i = 0; i < M * K; i++) /* three floats in another order */
        cr_assert_float_eq(sum[i], apart[0][i] + apart[1][i] + apart[2][i], 1e-5);
    MUST(duet_tape_begin(t, net.params, N, DUET_TRAIN));
    duet_var *scores = duet_linear(t, duet_input(t, x), LINEAR_W, LINEAR_B);
    cr_assert_null(duet_add(t, scores, duet_mse_loss(t, scores, targets, DUET_MEAN)));
    MUST_FAIL(duet_tape_error(t), DUET_USAGE, "neither a loss nor one number");
    duet_tensor_free(x), duet_tensor_free(labels), duet_tensor_free(targets);
    net_close(&net);
}

/* A pass through a convolution; the gradient of its weight goes to `got`. */
static double pass(struct net *net, const duet_tensor *x, const duet_tensor *labels, float *got) {
    double loss;
    duet_tape *t = net->tape;
    MUST(duet_tape_begin(t, net->params, N, DUET_TRAIN));
    duet_var *h = duet_relu(t, duet_conv2d(t, duet_input(t, x), CONV_W, CONV_B, NULL));
    h = duet_tanh(t, duet_flatten(t, duet_adaptive_avg_pool2d(t, h, 1, 1)));
    duet_var *y = duet_cross_entropy(t, h, labels, DUET_MEAN, NULL);
    MUST(duet_backward(t, y, NULL));
    MUST(duet_loss_read(t, y, &loss, NULL));
    MUST(duet_tensor_read(duet_params_grad(net->params, CONV_W), got));
    return loss;
}

/* A batch that is a view gives the bits of a copy of it. Its first element is at no multiple of 16
 * bytes, so no kernel may count on that. */
Test(api_parts, a_view_enters_the_tape, .timeout = 60) {
    for (int kind = 0; kind < API_KINDS; kind++) {
        struct net net;
        static float host[3 * N * C * H * W], of_view[O * C * 9], of_copy[O * C * 9];
        int32_t answers[3 * N];
        duet_tensor *x, *y, *x_rows, *y_rows, *x_copy, *y_copy;
        net_open(&net, api_kinds[kind]);
        for (int i = 0; i < 3 * N; i++)
            answers[i] = i % O;
        for (int i = 0; i < (int)(sizeof host / sizeof *host); i++)
            host[i] = sinf((float)i);
        MUST(
            duet_tensor_create(&x, net.devices[0], DUET_F32, 4, (int[]){3 * N, C, H, W - 1}, host));
        MUST(duet_tensor_create(&y, net.devices[0], DUET_I32, 1, (int[]){3 * N}, answers));
        MUST(duet_tensor_rows(&x_rows, x, 7, N));
        MUST(duet_tensor_rows(&y_rows, y, 7, N));
        MUST(duet_tensor_to(&x_copy, x_rows, net.devices[0]));
        MUST(duet_tensor_to(&y_copy, y_rows, net.devices[0]));
        double loss = pass(&net, x_copy, y_copy, of_copy);
        cr_assert_eq(pass(&net, x_rows, y_rows, of_view), loss);
        cr_assert(loss > 0 && of_copy[0] != 0);
        cr_assert_arr_eq(of_view, of_copy, sizeof of_copy);
        duet_tensor *const all[] = {x_rows, y_rows, x_copy, y_copy, x, y};
        for (int i = 0; i < 6; i++)
            duet_tensor_free(all[i]);
        net_close(&net);
    }
}

/* (Its gradient and bits: tests/core/nn/test_ops.c.) */
Test(api_tape, dropout_draws_anew_each_training_pass, .timeout = 30) {
    enum { COUNT = N * 100 };
    struct net net;
    float x[COUNT], masks[4][COUNT];
    int dropped = 0;
    duet_tensor *X, *value;
    net_open(&net, "cpu");
    for (int i = 0; i < COUNT; i++)
        x[i] = 1;
    MUST(duet_tensor_create(&X, net.devices[0], DUET_F32, 2, (int[]){N, 100}, x));
    for (int pass = 0; pass < 4; pass++) { /* 2: the first again; 3: an evaluation */
        if (pass == 2) {
            duet_tape_free(net.tape);
            MUST(duet_tape_create(&net.tape, net.devices[0]));
        }
        duet_tape_seed(net.tape, 11);
        MUST(duet_tape_begin(net.tape, NULL, N, pass == 3 ? DUET_EVALUATE : DUET_TRAIN));
        duet_var *y = duet_dropout(net.tape, duet_input(net.tape, X), 0.25);
        MUST(duet_var_value(&value, net.tape, y));
        MUST(duet_tensor_read(value, masks[pass]));
        duet_tensor_free(value);
    }
    cr_assert_arr_eq(masks[0], masks[2], sizeof x);
    cr_assert_arr_neq(masks[0], masks[1], sizeof x);
    cr_assert_arr_eq(masks[3], x, sizeof x);
    for (int i = 0; i < COUNT; i++) {
        cr_assert(masks[0][i] == 0 || fabsf(masks[0][i] - 1 / 0.75f) < 1e-6f);
        dropped += masks[0][i] == 0;
    }
    cr_assert(dropped > 75 && dropped < 175,
              "%d of 500 dropped: a quarter is 125, and 5 deviations are 48", dropped);
    duet_tensor_free(X);
    net_close(&net);
}
