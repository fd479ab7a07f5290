/* Equal bits: the gradients of V virtual devices, folded over the devices that share them, depend
 * neither on how many devices those are nor on whether a device runs early or late; and fast and
 * plain kernels differ by rounding alone. */
#include "tests/core/nn/net.h"

#include "base/fold.h"

/* N16 sums in float, 16 lanes at a time; the plain reference sums in double. */
static const double MATHS_TOLERANCE = 1e-5;

static struct net_data data;

/* The devices' gradients are folded in float, as every executor does it. */
static void fold_devices(float grads[][NET_WEIGHTS], int n) {
    for (struct fold f = fold_begin(n); fold_next(&f);)
        for (int i = 0; i < NET_WEIGHTS; i++)
            grads[f.to][i] += grads[f.from][i];
}

/* One step of the job on `w` devices: its gradients, and the loss of each virtual device. */
static void run_job(enum device_kind kind, int reference_math, int w, const struct net_pass *pass,
                    float *grads, double *losses) {
    static float of_device[MAX_DEVICES][NET_WEIGHTS];
    for (int r = 0; r < w; r++) {
        struct net net;
        double sums[MAX_DEVICES];
        net_open(&net, kind, reference_math, r, &data);
        net_load(&net, &data, r, w);
        net_run(&net, pass);
        net_read_grads(&net, of_device[r]);
        MUST(copy_to_host(device_compute(net.device), sums, net.losses.data, sizeof sums));
        MUST(stream_sync(device_compute(net.device)));
        for (int s = 0; s < net.segments.count; s++)
            losses[net.segments.seg[s].v] = sums[s];
        net_close(&net);
    }
    fold_devices(of_device, w);
    memcpy(grads, of_device[0], sizeof of_device[0]);
}

static void check_split(enum device_kind kind, int math, int w, const struct net_pass *pass) {
    float one[NET_WEIGHTS], many[NET_WEIGHTS];
    double loss_one[MAX_DEVICES], loss_many[MAX_DEVICES];
    int v = data.devices;
    run_job(DEVICE_HOST, math, 1, pass, one, loss_one);
    run_job(kind, math, w, pass, many, loss_many);
    cr_assert_arr_eq(one, many, sizeof one,
                     "kind %d, math %d: %d virtual devices on 1 and %d devices differ", kind, math,
                     v, w);
    cr_assert_arr_eq(loss_one, loss_many, (size_t)v * sizeof *loss_one,
                     "losses on 1 and %d devices differ", w);
}

static const struct net_pass plain_pass = {0, REDUCE_MEAN, 0.25, 0};

Test(bits, do_not_depend_on_the_number_of_devices, .timeout = 120) {
    static const int sizes[4] = {9, 17, 4, 11};
    net_data_make(&data, 4, sizes, 4);
    for (int late = 0; late < 2; late++)
        for (int math = 0; math < 2; math++)
            for (int w = 1; w <= 4; w *= 2)
                check_split(late ? DEVICE_HOST_LATE : DEVICE_HOST, math, w, &plain_pass);
}

Test(bits, any_fold_that_fits_and_empty_segments, .timeout = 120) {
    static const int sizes[12] = {5, 5, 5, 5, 5, 5, 4, 4, 4, 0, 4, 0};
    for (int v = 1; v <= 12; v++) {
        net_data_make(&data, v, sizes, 5);
        for (int w = 2; w <= v; w++)
            if (fold_fits(v, w)) check_split(DEVICE_HOST, 0, w, &plain_pass);
    }
}

/* The test can fail: where the fold does not fit, bits do differ. */
Test(bits, differ_where_the_fold_does_not_fit, .timeout = 30) {
    float one[NET_WEIGHTS], two[NET_WEIGHTS];
    double losses[MAX_DEVICES];
    net_data_make(&data, 6, (int[]){7, 7, 7, 7, 6, 6}, 6);
    cr_assert(!fold_fits(6, 2));
    run_job(DEVICE_HOST, 0, 1, &plain_pass, one, losses);
    run_job(DEVICE_HOST, 0, 2, &plain_pass, two, losses);
    cr_assert_arr_neq(one, two, sizeof one);
}

/* A batch's gradient is the same whatever other batch ran before on this tape, and however
 * often. */
Test(bits, do_not_depend_on_what_ran_before, .timeout = 30) {
    for (int math = 0; math < 2; math++) {
        struct net net;
        float first[NET_WEIGHTS], again[NET_WEIGHTS];
        net_data_make(&data, 4, (int[]){9, 17, 4, 11}, 7);
        net_open(&net, DEVICE_HOST, math, 0, &data);
        net_load(&net, &data, 0, 1);
        net_run(&net, &plain_pass);
        net_read_grads(&net, first);
        net_load(&net, &data, 1, 2);
        net_run(&net, &(struct net_pass){1, REDUCE_SUM, 0, 0});
        net_load(&net, &data, 0, 1);
        net_run(&net, &plain_pass);
        net_read_grads(&net, again);
        cr_assert_arr_eq(first, again, sizeof first);
        net_close(&net);
    }
}

Test(bits, the_two_maths_differ_by_rounding_alone, .timeout = 30) {
    float fast[NET_WEIGHTS], plain[NET_WEIGHTS];
    double want[NET_WEIGHTS], loss_fast[MAX_DEVICES], loss_plain[MAX_DEVICES];
    net_data_make(&data, 3, (int[]){33, 16, 5}, 8);
    run_job(DEVICE_HOST, 0, 1, &plain_pass, fast, loss_fast);
    run_job(DEVICE_HOST, 1, 1, &plain_pass, plain, loss_plain);
    for (int i = 0; i < NET_WEIGHTS; i++)
        want[i] = plain[i];
    for (int i = 0, at = 0; i < NET_PARAMS; at += (int)param_spec_count(&net_specs[i++])) {
        double far = distance(fast + at, want + at, param_spec_count(&net_specs[i]));
        cr_assert(far < MATHS_TOLERANCE, "gradient of %s: the maths are %g apart",
                  net_specs[i].name, far);
    }
    for (int v = 0; v < 3; v++)
        cr_assert_float_eq(loss_fast[v], loss_plain[v], MATHS_TOLERANCE * loss_plain[v]);
}

/* A rank may be left without a sample in a short last batch: its gradients are zeros. */
Test(bits, of_an_empty_batch_are_zeros, .timeout = 30) {
    for (int math = 0; math < 2; math++) {
        struct net net;
        float got[NET_WEIGHTS];
        net_data_make(&data, 2, (int[]){0, 0}, 3);
        net_open(&net, DEVICE_HOST, math, 0, &data);
        net_load(&net, &data, 0, 1);
        net_run(&net, &(struct net_pass){0});
        net_read_grads(&net, got);
        for (int i = 0; i < NET_WEIGHTS; i++)
            cr_assert(got[i] == 0);
        net_close(&net);
    }
}
