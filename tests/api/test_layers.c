/* The layers of the public library, each against its formula. The values are small whole numbers,
 * whose sums are exact in any order, so that layers can be compared to the bit. */
#include <math.h>

#include "tests/api/net.h"

/* ---- layers, by their formulas ---- */

static float pixel(const float *x, int n, int c, int h, int w) {
    return h < 0 || w < 0 || h >= H || w >= W ? 0 : x[((n * C + c) * H + h) * W + w];
}

Test(api_tape, conv2d_with_stride_and_padding, .timeout = 30) {
    for (int kind = 0; kind < API_KINDS; kind++) {
        struct net net;
        enum { P = 4, Q = 3 }; /* (7 + 2 - 3) / 2 + 1, (6 + 2 - 3) / 2 + 1 */
        float x[N * C * H * W], y[N * O * P * Q];
        net_open(&net, api_kinds[kind]);
        duet_tensor *X = picture(&net, x);
        MUST(duet_tape_begin(net.tape, net.params, N, DUET_TRAIN));
        duet_var *out = duet_conv2d(net.tape, duet_input(net.tape, X), CONV_W, CONV_B, 2, 1);
        read_var(&net, out, 4, (int[4]){N, O, P, Q}, y);
        for (int i = 0; i < N * O * P * Q; i++) {
            int n = i / (O * P * Q), o = i / (P * Q) % O, p = i / Q % P, q = i % Q;
            float want = net.value[CONV_B][o];
            for (int k = 0; k < C * 9; k++)
                want += net.value[CONV_W][o * C * 9 + k] *
                        pixel(x, n, k / 9, 2 * p - 1 + k / 3 % 3, 2 * q - 1 + k % 3);
            cr_assert_eq(y[i], want, "element %d", i);
        }
        duet_tensor_free(X);
        net_close(&net);
    }
}

Test(api_tape, linear_and_matmul_add, .timeout = 30) {
    struct net net;
    float x[N * K], y[N * M], z[N * M];
    net_open(&net, "cpu");
    duet_tensor *X = api_tensor(net.devices[0], 2, (int[2]){N, K}, x);
    MUST(duet_tape_begin(net.tape, net.params, N, DUET_TRAIN));
    duet_var *in = duet_input(net.tape, X);
    read_var(&net, duet_linear(net.tape, in, LINEAR_W, LINEAR_B), 2, (int[2]){N, M}, y);
    read_var(&net, duet_matmul_add(net.tape, in, MATMUL_W, MATMUL_B), 2, (int[2]){N, M}, z);
    for (int i = 0; i < N * M; i++) {
        int n = i / M, m = i % M;
        float linear = net.value[LINEAR_B][m], matmul = net.value[MATMUL_B][m];
        for (int k = 0; k < K; k++) {
            linear += x[n * K + k] * net.value[LINEAR_W][m * K + k];
            matmul += x[n * K + k] * net.value[MATMUL_W][k * M + m];
        }
        cr_assert(y[i] == linear && z[i] == matmul, "element %d", i);
    }
    duet_tensor_free(X);
    net_close(&net);
}

Test(api_tape, relu_pools_flatten, .timeout = 30) {
    struct net net;
    enum { P = 3, Q = 2 }; /* windows of 3, stride 2 */
    float x[N * C * H * W], relu[N * C * H * W], most[N * C * P * Q], mean[N * C * P * Q],
        flat[N * C * H * W];
    net_open(&net, "cpu");
    duet_tensor *X = picture(&net, x);
    MUST(duet_tape_begin(net.tape, net.params, N, DUET_EVALUATE));
    duet_var *in = duet_input(net.tape, X);
    read_var(&net, duet_relu(net.tape, in), 4, (int[4]){N, C, H, W}, relu);
    read_var(&net, duet_flatten(net.tape, in), 2, (int[2]){N, C * H * W}, flat);
    read_var(&net, duet_max_pool2d(net.tape, in, 3, 2, 0, 0), 4, (int[4]){N, C, P, Q}, most);
    read_var(&net, duet_avg_pool2d(net.tape, in, 3, 2, 0), 4, (int[4]){N, C, P, Q}, mean);
    cr_assert_arr_eq(flat, x, sizeof x);
    for (int i = 0; i < N * C * H * W; i++)
        cr_assert_eq(relu[i], x[i] > 0 ? x[i] : 0);
    for (int i = 0; i < N * C * P * Q; i++) {
        float largest = -100, sum = 0;
        for (int k = 0; k < 9; k++) {
            float v = pixel(x, i / (C * P * Q), i / (P * Q) % C, i / Q % P * 2 + k / 3,
                            i % Q * 2 + k % 3);
            largest = v > largest ? v : largest;
            sum += v;
        }
        cr_assert_eq(most[i], largest);
        cr_assert_float_eq(mean[i], sum / 9, 1e-6, "one division");
    }
    duet_tensor_free(X);
    net_close(&net);
}

Test(api_tape, dropout_draws_anew_each_training_pass, .timeout = 30) {
    struct net net;
    float x[N * C * H * W], first[N * C * H * W], second[N * C * H * W], again[N * C * H * W];
    const int shape[4] = {N, C, H, W};
    int dropped = 0;
    net_open(&net, "cpu");
    for (int i = 0; i < N * C * H * W; i++)
        x[i] = 1;
    duet_tensor *X;
    MUST(duet_tensor_create(&X, net.devices[0], DUET_F32, 4, shape, x));
    float *masks[3] = {first, second, again};
    for (int pass = 0; pass < 3; pass++) {
        duet_tape *tape = net.tape;
        /* Again the first pass, with the same seed. */
        if (pass == 2) MUST(duet_tape_create(&net.tape, net.devices[0]));
        duet_tape_seed(net.tape, 11);
        MUST(duet_tape_begin(net.tape, NULL, N, DUET_TRAIN));
        read_var(&net, duet_dropout(net.tape, duet_input(net.tape, X), 0.25), 4, shape,
                 masks[pass]);
        if (pass == 2) duet_tape_free(tape);
    }
    cr_assert_arr_eq(first, again, sizeof first);
    cr_assert_arr_neq(first, second, sizeof first);
    for (int i = 0; i < N * C * H * W; i++) {
        cr_assert(first[i] == 0 || fabsf(first[i] - 1 / 0.75f) < 1e-6f);
        dropped += first[i] == 0;
    }
    cr_assert(dropped > 60 && dropped < 150,
              "%d of 420 dropped: a quarter is 105, and 5 deviations are 44", dropped);
    MUST(duet_tape_begin(net.tape, NULL, N, DUET_EVALUATE));
    read_var(&net, duet_dropout(net.tape, duet_input(net.tape, X), 0.25), 4, shape, second);
    cr_assert_arr_eq(second, x, sizeof x);
    duet_tensor_free(X);
    net_close(&net);
}
