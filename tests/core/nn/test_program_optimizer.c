/* The optimizers of the public library: defaults and the order of calls. (core/nn/test_optimizer.c
 * has PyTorch's numbers.) */
#include <limits.h>
#include <math.h>

#include "tests/duet/shared.h"

enum { COUNT = 11 };

static duet_params *params_on(duet_device *device, float *start) {
    struct duet_param one = {"w", 1, {COUNT}, start};
    duet_params *params;
    for (size_t i = 0; i < COUNT; i++)
        start[i] = 1 + api_number(i) / 4;
    MUST(duet_params_create(&params, device, &one, 1));
    return params;
}

Test(api_optimizer, defaults, .timeout = 30) {
    struct duet_optimizer_options o;
    MUST(duet_optimizer_defaults(&o, "adamw"));
    cr_expect(o.lr == 0.001 && o.weight_decay == 0.01 && o.beta1 == 0.9 && o.beta2 == 0.999 &&
              o.eps == 1e-8);
    MUST(duet_optimizer_defaults(&o, "sgd"));
    cr_expect(o.lr == 0.001 && o.weight_decay == 0 && o.momentum == 0 && !o.nesterov);
    MUST(duet_optimizer_defaults(&o, "adadelta"));
    cr_expect(o.lr == 1 && o.rho == 0.9 && o.eps == 1e-6);
}

Test(api_optimizer, wrong_arguments, .timeout = 30) {
    duet_device *device;
    duet_optimizer *out;
    struct duet_optimizer_options o, wrong;
    float start[COUNT];
    MUST(duet_devices_open(&device, 1, "cpu", API_MEMORY));
    duet_params *params = params_on(device, start);
    MUST_FAIL(duet_optimizer_defaults(&o, "lion"), DUET_USAGE, "'lion'");
    MUST(duet_optimizer_defaults(&o, "sgd"));
    wrong = o, wrong.nesterov = 1;
    MUST_FAIL(duet_optimizer_create(&out, params, &wrong), DUET_USAGE,
              "Nesterov momentum requires a momentum and zero dampening");
    wrong = o, wrong.lr = -1;
    MUST_FAIL(duet_optimizer_create(&out, params, &wrong), DUET_USAGE, "learning rate -1");
    wrong = o, wrong.name = "adam", wrong.beta1 = 1;
    MUST_FAIL(duet_optimizer_create(&out, params, &wrong), DUET_USAGE,
              "Invalid beta parameter at index 0");
    duet_optimizer_free(NULL);
    MUST(duet_optimizer_create(&out, params, &o));
    MUST_FAIL(duet_optimizer_set_lr(out, 0, NAN), DUET_USAGE, "nan");
    duet_optimizer_free(out);
    duet_params_free(params);
    duet_devices_close(&device, 1);
}

/* zero_grad before each pass, as the texts have it; after each step; and never, for a backward
 * overwrites the gradients. All give the same bits. After zero_grad gradients count as None, so a
 * step then changes nothing, momentum or not. */
Test(api_optimizer, the_order_of_calls, .timeout = 30) {
    static const float start[6] = {.5f, -1, .25f, 2, 0, -.5f};
    static const int32_t labels[4] = {0, 1, 1, 0};
    float x[12], first[6], w[6];
    enum { BEFORE, BEHIND, NEVER, ORDERS };
    for (int order = 0; order < ORDERS; order++) {
        const struct duet_param specs[] = {{"fc.weight", 2, {2, 3}, start}};
        const struct duet_optimizer_options sgd = {"sgd", .lr = 0.1, .momentum = 0.9};
        duet_device *device;
        duet_params *params;
        duet_tape *tape;
        duet_optimizer *optimizer;
        duet_tensor *y;
        MUST(duet_devices_open(&device, 1, "cpu", API_MEMORY));
        duet_tensor *X = api_tensor(device, 2, (int[]){4, 3}, x);
        MUST(duet_tensor_create(&y, device, DUET_I32, 1, (int[]){4}, labels));
        MUST(duet_params_create(&params, device, specs, 1));
        MUST(duet_tape_create(&tape, device));
        MUST(duet_optimizer_create(&optimizer, params, &sgd));
        for (int step = 0; step < 4; step++) {
            if (order == BEFORE) MUST(duet_zero_grad(params));
            MUST(duet_tape_begin(tape, params, 4, DUET_TRAIN));
            duet_var *scores = duet_linear(tape, duet_input(tape, X), 0, -1);
            MUST(duet_backward(tape, duet_cross_entropy(tape, scores, y, DUET_MEAN, NULL), NULL));
            MUST(duet_optimizer_step(optimizer));
            if (order == BEHIND) MUST(duet_zero_grad(params));
        }
        MUST(duet_tensor_read(duet_params_value(params, 0), order ? w : first));
        if (order) cr_expect_arr_eq(w, first, sizeof w, "order %d", order);
        MUST(duet_zero_grad(params));
        MUST(duet_optimizer_step(optimizer));
        MUST(duet_tensor_read(duet_params_value(params, 0), w));
        cr_expect_arr_eq(w, first, sizeof w, "a gradient of None moves nothing");
        duet_optimizer_free(optimizer), duet_tape_free(tape), duet_params_free(params);
        duet_tensor_free(X), duet_tensor_free(y), duet_devices_close(&device, 1);
    }
    cr_expect(memcmp(first, start, sizeof first) != 0);
}
