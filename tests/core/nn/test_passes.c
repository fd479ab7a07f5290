/* Gradients accumulated over several passes, each with its own batch: the bits do not depend on how
 * many devices share the segments, and hooks fire only in the last pass. */
#include "tests/core/nn/step.h"

#include "base/fold.h"

enum { PASSES = 3, DEVICES = 4 };
static struct net_data batch[PASSES]; /* one for each pass, with the same weights */

static void make_batches(void) {
    static const int sizes[PASSES][DEVICES] = {{9, 17, 4, 11}, {5, 0, 16, 3}, {1, 2, 3, 4}};
    for (int i = 0; i < PASSES; i++) {
        net_data_make(&batch[i], DEVICES, sizes[i], 21 + (uint64_t)i);
        memcpy(batch[i].weights, batch[0].weights, sizeof batch[i].weights);
    }
}

/* The share of device r of w in the passes from `first` to `last`; returns how often hooks fired.
 */
static int run_passes(enum device_kind kind, int math, int w, int r, int first, int last,
                      float *grads) {
    static struct seen seen;
    struct net net;
    net_open(&net, kind, math, r, &batch[0]);
    MUST(param_set_keep_segments(&net.params, DEVICES / w));
    seen = (struct seen){.net = &net};
    tape_set_hook(net.tape, look, &seen);
    for (int i = first; i <= last; i++) {
        net.add_grads = i > first;
        net.more_passes = i < last;
        cr_assert_eq(seen.fired, 0, "a hook fired before the last pass");
        net_load(&net, &batch[i], r, w);
        net_run(&net, &plain_pass);
    }
    net_read_grads(&net, grads);
    net_close(&net);
    return seen.fired;
}

static void on_devices(enum device_kind kind, int math, int w, float *grads) {
    static float of_device[DEVICES][NET_WEIGHTS];
    for (int r = 0; r < w; r++)
        cr_assert_eq(run_passes(kind, math, w, r, 0, PASSES - 1, of_device[r]), NET_PARAMS);
    for (struct fold f = fold_begin(w); fold_next(&f);)
        for (int i = 0; i < NET_WEIGHTS; i++)
            of_device[f.to][i] += of_device[f.from][i];
    memcpy(grads, of_device[0], sizeof of_device[0]);
}

Test(passes, the_bits_do_not_depend_on_the_number_of_devices, .timeout = 60) {
    static float one[NET_WEIGHTS], many[NET_WEIGHTS];
    make_batches();
    for (int math = 0; math < 2; math++) {
        on_devices(DEVICE_HOST, math, 1, one);
        for (int late = 0; late < 2; late++)
            for (int w = 2; w <= DEVICES; w *= 2) {
                on_devices(late ? DEVICE_HOST_LATE : DEVICE_HOST, math, w, many);
                cr_assert_arr_eq(one, many, sizeof one, "math %d: 1 and %d devices differ", math,
                                 w);
            }
    }
}

/* On one segment the sum is that of the passes, one after another, in float. */
Test(passes, add_up_in_order, .timeout = 60) {
    static float each[NET_WEIGHTS], sum[NET_WEIGHTS], got[NET_WEIGHTS];
    make_batches();
    for (int r = 0; r < DEVICES; r++) {
        for (int i = 0; i < PASSES; i++) {
            run_passes(DEVICE_HOST, 0, DEVICES, r, i, i, each);
            for (int k = 0; k < NET_WEIGHTS; k++)
                sum[k] = i ? sum[k] + each[k] : each[k];
        }
        run_passes(DEVICE_HOST, 0, DEVICES, r, 0, PASSES - 1, got);
        cr_assert_arr_eq(got, sum, sizeof sum, "device %d", r);
    }
}

/* Pass 0 goes through fc and out, pass 1 through out alone. */
Test(passes, a_parameter_of_an_earlier_pass_is_complete_in_the_last, .timeout = 30) {
    static struct seen seen;
    float want[128], got[128], untouched[128];
    for (int passes = 1; passes <= 2; passes++) {
        struct net net;
        open_net(&net, DEVICE_HOST, 0);
        MUST(param_set_keep_segments(&net.params, DEVICES));
        seen = (struct seen){.net = &net};
        tape_set_hook(net.tape, look, &seen);
        fill_grads(&net, 7);
        for (int i = 0; i < passes; i++) {
            struct tape_step step = {.segments = &net.segments,
                                     .params = &net.params,
                                     .step = net.step,
                                     .training = 1,
                                     .add_grads = i > 0,
                                     .more_passes = i + 1 < passes};
            MUST(tape_begin(net.tape, &step));
            duet_var *h = i ? leaf(&net, 6, 0)
                            : duet_relu(net.tape, duet_linear(net.tape, leaf(&net, 16, 0), 4, 5));
            MUST(tape_backward(net.tape, loss_of(&net, duet_matmul_add(net.tape, h, 6, 7)), NULL));
        }
        cr_assert_eq(seen.fired, 4, "%d hooks fired", seen.fired);
        read_grad(&net, 4, passes == 1 ? want : got);
        read_grad(&net, 0, untouched);
        cr_assert_eq(untouched[0], 7, "a parameter that no pass used was touched");
        if (passes == 2) {
            cr_assert_eq(seen.order[2] + seen.order[3], 4 + 5, "fc comes last");
            cr_assert_arr_eq(got, want, 96 * sizeof(float));
        }
        net_close(&net);
    }
}

Test(passes, need_room_for_each_segment, .timeout = 30) {
    struct net net;
    open_net(&net, DEVICE_HOST, 0);
    struct tape_step step = {
        .segments = &net.segments, .params = &net.params, .training = 1, .more_passes = 1};
    cr_assert_eq(tape_begin(net.tape, &step), ERR_FAILED);
    cr_assert(strstr(error_message(), "4 segments: sums over several passes are kept for 0"), "%s",
              error_message());
    net_close(&net);
}
