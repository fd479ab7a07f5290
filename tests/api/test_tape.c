/* The public tape: backward, gradients, and errors that are kept until they are read. (Losses and
 * the gradients of layers: tests/core/nn/test_ops.c.) */
#include <math.h>

#include "tests/api/net.h"

static const int32_t answers[N] = {0, 2, 1, 1, 0};

/* ---- backward from any var ---- */

Test(api_tape, backward_from_a_convolution, .timeout = 30) {
    struct net net;
    enum { P = H - 2, Q = W - 2 };
    float x[N * C * H * W], dy[N * O * P * Q], got[O * C * 9];
    net_open(&net, "cpu");
    duet_tensor *X = picture(&net, x),
                *grad = api_tensor(net.devices[0], 4, (int[4]){N, O, P, Q}, dy);
    MUST(duet_tape_begin(net.tape, net.params, N, DUET_TRAIN));
    duet_var *y = duet_conv2d(net.tape, duet_input(net.tape, X), CONV_W, CONV_B, NULL);
    MUST(duet_backward(net.tape, y, grad));
    MUST(duet_tensor_read(duet_params_grad(net.params, CONV_W), got));
    for (int i = 0; i < O * C * 9; i++) {
        float want = 0;
        for (int k = 0; k < N * P * Q; k++) {
            int n = k / (P * Q), p = k / Q % P, q = k % Q;
            want += x[((n * C + i / 9 % C) * H + p + i / 3 % 3) * W + q + i % 3] *
                    dy[((n * O + i / (C * 9)) * P + p) * Q + q];
        }
        cr_assert_eq(got[i], want, "weight %d", i);
    }
    duet_tensor_free(X);
    duet_tensor_free(grad);
    net_close(&net);
}

Test(api_tape, a_parameter_that_took_no_part_has_gradient_zero, .timeout = 30) {
    struct net net;
    float x[N * K], back[4], old[4] = {1, 2, 3, 4};
    duet_tensor *y;
    net_open(&net, "cpu");
    duet_tensor *X = api_tensor(net.devices[0], 2, (int[2]){N, K}, x);
    MUST(duet_tensor_create(&y, net.devices[0], DUET_I32, 1, (int[1]){N}, answers));
    MUST(duet_tensor_write(duet_params_grad(net.params, UNUSED), old));
    MUST(duet_tape_begin(net.tape, net.params, N, DUET_TRAIN));
    duet_var *loss = duet_cross_entropy(
        net.tape, duet_linear(net.tape, duet_input(net.tape, X), LINEAR_W, LINEAR_B), y, DUET_SUM,
        NULL);
    MUST(duet_backward(net.tape, loss, NULL));
    MUST(duet_tensor_read(duet_params_grad(net.params, UNUSED), back));
    for (int i = 0; i < 4; i++)
        cr_assert_eq(back[i], 0);
    MUST(duet_tensor_read(duet_params_grad(net.params, LINEAR_B), back));
    cr_assert(back[0] != 0, "the others are not wiped");
    duet_tensor_free(X);
    duet_tensor_free(y);
    net_close(&net);
}

/* A last batch with fewer samples than there are devices leaves some devices none. */
Test(api_tape, no_samples_give_gradients_of_zero, .timeout = 30) {
    struct net net;
    duet_tensor *X, *y;
    double sum = 1;
    float got[K * M];
    net_open(&net, "cpu");
    MUST(duet_tensor_create(&X, net.devices[0], DUET_F32, 2, (int[2]){0, K}, NULL));
    MUST(duet_tensor_create(&y, net.devices[0], DUET_I32, 1, (int[1]){0}, NULL));
    for (int r = DUET_MEAN; r <= DUET_SUM; r++) {
        MUST(duet_tensor_write(duet_params_grad(net.params, MATMUL_W), net.value[MATMUL_W]));
        MUST(duet_tape_begin(net.tape, net.params, 0, DUET_TRAIN));
        duet_var *scores = duet_matmul_add(net.tape, duet_input(net.tape, X), MATMUL_W, MATMUL_B);
        duet_var *loss = duet_cross_entropy(net.tape, scores, y, (enum duet_reduction)r, NULL);
        MUST(duet_backward(net.tape, loss, NULL));
        MUST(duet_loss_read(net.tape, loss, &sum, NULL));
        cr_assert_eq(sum, 0);
        MUST(duet_tensor_read(duet_params_grad(net.params, MATMUL_W), got));
        for (int i = 0; i < K * M; i++)
            cr_assert_eq(got[i], 0);
    }
    duet_tensor_free(X);
    duet_tensor_free(y);
    net_close(&net);
}

/* ---- errors ---- */

struct wrong {
    struct net net;
    duet_tensor *X, *flat, *elsewhere, *y, *short_y;
    float host[N * C * H * W];
};

static void wrong_open(struct wrong *w) {
    net_open(&w->net, "cpu");
    w->elsewhere = api_tensor(w->net.devices[1], 2, (int[2]){N, K}, w->host);
    w->flat = api_tensor(w->net.devices[0], 2, (int[2]){N, K}, w->host);
    w->X = picture(&w->net, w->host);
    MUST(duet_tensor_create(&w->y, w->net.devices[0], DUET_I32, 1, (int[1]){N}, answers));
    MUST(duet_tensor_create(&w->short_y, w->net.devices[0], DUET_I32, 1, (int[1]){N - 1}, answers));
}

static void wrong_close(struct wrong *w) {
    duet_tensor *all[] = {w->X, w->flat, w->elsewhere, w->y, w->short_y};
    for (int i = 0; i < 5; i++)
        duet_tensor_free(all[i]);
    net_close(&w->net);
}

/* Makes mistake i in a new pass; *says is what the error must contain, or NULL after the last. */
static duet_var *mistake(struct wrong *w, int i, const char **says) {
    duet_tape *t = w->net.tape;
    duet_var *x, *flat;
    MUST(duet_tape_begin(t, w->net.params, N, DUET_TRAIN));
    x = duet_input(t, w->X);
    flat = duet_input(t, w->flat);
    switch (i) {
    case 0: return *says = "parameter 7", duet_conv2d(t, x, PARAMS, CONV_B, NULL);
    case 1: return *says = "parameter -2", duet_linear(t, flat, LINEAR_W, -2);
    case 2: return *says = "conv.bias is (3): must have 4", duet_conv2d(t, x, CONV_B, CONV_B, NULL);
    case 3:
        return *says = "stride -1",
               duet_conv2d(t, x, CONV_W, CONV_B, &(struct duet_conv){.stride = {-1, 1}});
    case 4: return *says = "conv.weight", duet_conv2d(t, flat, CONV_W, CONV_B, NULL);
    case 5: return *says = "flatten first", duet_linear(t, x, LINEAR_W, LINEAR_B);
    case 6:
        return *says = "takes 4 inputs", duet_matmul_add(t, duet_flatten(t, x), MATMUL_W, MATMUL_B);
    case 7:
        return *says = "size 8", duet_avg_pool2d(t, x, 8, &(struct duet_pool){.stride = {1, 1}});
    case 8: return *says = "an input of (5, 4)", duet_max_pool2d(t, flat, 2, NULL);
    case 9: return *says = "between 0 and 1", duet_dropout(t, x, 1.5);
    case 10: return *says = "cpu(1)", duet_input(t, w->elsewhere);
    case 11: return *says = "must be float", duet_leaf(t, w->y);
    case 12: return *says = "no tensor", duet_input(t, NULL);
    case 13: return *says = "scores of (", duet_cross_entropy(t, x, w->y, DUET_SUM, NULL);
    case 14:
        return *says = "labels of (4) for scores of (5, ",
               duet_cross_entropy(t, flat, w->short_y, DUET_SUM, NULL);
    case 15: return *says = "must be int32", duet_nll_loss(t, flat, w->flat, DUET_SUM, NULL);
    case 16: return *says = "no labels", duet_nll_loss(t, flat, NULL, DUET_SUM, NULL);
    case 17:
        return *says = "reduction 3",
               duet_cross_entropy(t, flat, w->y, (enum duet_reduction)3, NULL);
    /* the bias has 4 elements, and there are 3 outputs */
    case 18: return *says = "linear", duet_linear(t, flat, LINEAR_W, UNUSED);
    default: return *says = NULL, NULL;
    }
}

Test(api_tape, a_mistake_is_kept_and_passed_on, .timeout = 60) {
    struct wrong w;
    const char *says;
    wrong_open(&w);
    for (int i = 0;; i++) {
        duet_tensor *out = w.X;
        duet_tape *t = w.net.tape;
        duet_var *x = mistake(&w, i, &says);
        if (!says) {
            cr_assert_eq(i, 19);
            break;
        }
        cr_assert_null(x, "mistake %d", i);
        duet_var *all[] = {duet_conv2d(t, x, CONV_W, CONV_B, NULL),
                           duet_linear(t, x, LINEAR_W, LINEAR_B),
                           duet_matmul_add(t, x, MATMUL_W, MATMUL_B),
                           duet_relu(t, x),
                           duet_avg_pool2d(t, x, 2, NULL),
                           duet_max_pool2d(t, x, 2, NULL),
                           duet_flatten(t, x),
                           duet_dropout(t, x, 0.5),
                           duet_log_softmax(t, x),
                           duet_cross_entropy(t, x, w.y, DUET_SUM, NULL),
                           duet_nll_loss(t, x, w.y, DUET_SUM, NULL),
                           duet_input(t, w.elsewhere),
                           duet_leaf(t, NULL)};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            cr_assert_null(all[k], "mistake %d, op %zu", i, k);
        duet_tape_begin(NULL, NULL, 0,
                        DUET_TRAIN); /* another failure, which must not hide the kept one */
        int code = duet_tape_error(t);
        cr_assert(code == DUET_USAGE || code == DUET_FAILED, "mistake %d: code %d", i, code);
        MUST_SAY(says);
        MUST_FAIL(duet_backward(t, x, NULL), code, says);
        MUST_FAIL(duet_backward(t, x, w.flat), code, says);
        MUST_FAIL(duet_loss_read(t, x, NULL, NULL), code, says);
        MUST_FAIL(duet_var_value(&out, t, x), code, says);
        MUST_FAIL(duet_var_grad(&out, t, x), code, says);
        cr_assert_null(out);
    }
    MUST(duet_tape_begin(w.net.tape, w.net.params, N, DUET_TRAIN)); /* a new pass has no error */
    cr_assert_not_null(duet_relu(w.net.tape, duet_input(w.net.tape, w.X)));
    wrong_close(&w);
}

Test(api_tape, refuses_to_begin_or_to_go_back, .timeout = 30) {
    struct wrong w;
    duet_params *elsewhere;
    duet_tape *fresh;
    duet_tensor *grad;
    wrong_open(&w);
    duet_tape *t = w.net.tape;
    MUST_FAIL(duet_tape_create(&fresh, NULL), DUET_USAGE, "no device");
    /* No pass was begun, so there are no samples and no parameters. */
    MUST(duet_tape_create(&fresh, w.net.devices[0]));
    cr_assert_null(duet_input(fresh, w.flat));
    MUST_FAIL(duet_backward(fresh, NULL, NULL), DUET_USAGE, "duet_tape_begin was given 0");
    duet_tape_free(fresh);
    duet_tape_free(NULL);

    MUST(duet_params_create(&elsewhere, w.net.devices[1], shapes, PARAMS));
    MUST_FAIL(duet_tape_begin(t, elsewhere, N, DUET_TRAIN), DUET_USAGE, "cpu(1)");
    cr_assert_null(duet_input(t, w.X), "the pass did not begin");
    MUST_FAIL(duet_tape_begin(t, w.net.params, -1, DUET_TRAIN), DUET_USAGE, "-1 samples");
    MUST_FAIL(duet_tape_begin(t, w.net.params, N, (enum duet_pass)3), DUET_USAGE, "pass 3");
    MUST_FAIL(duet_tape_begin(NULL, NULL, N, DUET_TRAIN), DUET_USAGE, "none was given");
    MUST_FAIL(duet_tape_error(NULL), DUET_USAGE, "none was given");
    MUST(duet_tape_begin(t, w.net.params, N + 1, DUET_TRAIN));
    cr_assert_null(duet_input(t, w.X));
    MUST_FAIL(duet_tape_error(t), DUET_USAGE, "duet_tape_begin was given 6");

    MUST(duet_tape_begin(t, w.net.params, N, DUET_TRAIN));
    duet_var *leaf = duet_leaf(t, w.flat), *h = duet_relu(t, leaf);
    MUST_FAIL(duet_var_grad(&grad, t, leaf), DUET_USAGE, "duet_backward"); /* not yet */
    MUST_FAIL(duet_backward(t, h, NULL), DUET_USAGE, "only for scalar outputs");
    MUST_FAIL(duet_backward(t, h, w.X), DUET_USAGE, "both must be of one shape");
    MUST_FAIL(duet_backward(t, h, w.elsewhere), DUET_USAGE, "cpu(1)");
    MUST(duet_backward(t, h, w.flat));
    MUST_FAIL(duet_var_grad(&grad, t, h), DUET_USAGE, "duet_leaf");
    MUST(duet_tape_begin(t, w.net.params, N, DUET_EVALUATE));
    h = duet_relu(t, duet_input(t, w.flat));
    MUST_FAIL(duet_loss_read(t, h, NULL, NULL), DUET_USAGE, "made by no loss");
    MUST(duet_tape_error(t)); /* to read is no part of the pass */
    MUST(duet_tape_begin(t, w.net.params, N, DUET_EVALUATE));
    MUST_FAIL(
        duet_backward(t, duet_cross_entropy(t, duet_input(t, w.flat), w.y, DUET_SUM, NULL), NULL),
        DUET_FAILED, "evaluation");
    MUST(duet_tape_begin(t, w.net.params, N, DUET_TRAIN));
    for (int i = 0; i < 16; i++)
        cr_assert_not_null(duet_leaf(t, w.flat));
    cr_assert_null(duet_leaf(t, w.flat));
    MUST_FAIL(duet_tape_error(t), DUET_USAGE, "16 of them");
    duet_params_free(elsewhere);
    wrong_close(&w);
}

Test(api_tape, a_full_device_is_named, .timeout = 30) {
    struct net net;
    duet_tensor *X;
    net_open(&net, "cpu");
    /* 4 of 8 MiB */
    MUST(duet_tensor_create(&X, net.devices[0], DUET_F32, 4, (int[4]){500, C, 32, 32}, NULL));
    MUST(duet_tape_begin(net.tape, net.params, 500, DUET_TRAIN));
    duet_var *h = duet_relu(net.tape, duet_conv2d(net.tape, duet_input(net.tape, X), CONV_W, CONV_B,
                                                  &(struct duet_conv){.padding = {1, 1}}));
    cr_assert_null(h);
    MUST_FAIL(duet_backward(net.tape, h, NULL), DUET_MEMORY, "out of memory on device 0");
    MUST_SAY("activations");
    duet_tensor_free(X);
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
