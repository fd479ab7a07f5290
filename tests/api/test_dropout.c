/* Dropout of the public library. (Its gradient and bits: tests/core/nn/test_ops.c.) */
#include <math.h>

#include "tests/api/net.h"

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
