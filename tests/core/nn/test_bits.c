/* Equal bits: the gradients of V virtual devices, folded over the devices that share them, do not
 * depend on how many devices those are. (With kernels of the reference and on late devices:
 * core/nn/test_ops.c.) */
#include "tests/core/nn/net.h"

#include "base/fold.h"

static struct net_data data;

/* The devices' gradients are folded in float, as every executor does it. */
static void fold_devices(float grads[][NET_WEIGHTS], int n) {
    for (struct fold f = fold_begin(n); fold_next(&f);)
        for (int i = 0; i < NET_WEIGHTS; i++)
            grads[f.to][i] += grads[f.from][i];
}

/* One step of the job on `w` devices: its gradients, and the loss of each virtual device. */
static void run_job(int w, const struct net_pass *pass, float *grads, double *losses) {
    static float of_device[MAX_DEVICES][NET_WEIGHTS];
    for (int r = 0; r < w; r++) {
        struct net net;
        double sums[MAX_DEVICES];
        net_open(&net, DEVICE_HOST, 0, r, &data);
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

static void check_split(int w, const struct net_pass *pass) {
    float one[NET_WEIGHTS], many[NET_WEIGHTS];
    double loss_one[MAX_DEVICES], loss_many[MAX_DEVICES];
    int v = data.devices;
    run_job(1, pass, one, loss_one);
    run_job(w, pass, many, loss_many);
    cr_assert_arr_eq(one, many, sizeof one, "%d virtual devices on 1 and %d devices differ", v, w);
    cr_assert_arr_eq(loss_one, loss_many, (size_t)v * sizeof *loss_one,
                     "losses on 1 and %d devices differ", w);
}

static const struct net_pass plain_pass = {0, REDUCE_MEAN, 0.25, 0};

Test(bits, any_fold_that_fits_and_empty_segments, .timeout = 120) {
    static const int sizes[12] = {5, 5, 5, 5, 5, 5, 4, 4, 4, 0, 4, 0};
    for (int v = 1; v <= 12; v++) {
        net_data_make(&data, v, sizes, 5);
        for (int w = 2; w <= v; w++)
            if (fold_fits(v, w)) check_split(w, &plain_pass);
    }
}

/* The test can fail: where the fold does not fit, bits do differ. */
Test(bits, differ_where_the_fold_does_not_fit, .timeout = 30) {
    float one[NET_WEIGHTS], two[NET_WEIGHTS];
    double losses[MAX_DEVICES];
    net_data_make(&data, 6, (int[]){7, 7, 7, 7, 6, 6}, 6);
    cr_assert(!fold_fits(6, 2));
    run_job(1, &plain_pass, one, losses);
    run_job(2, &plain_pass, two, losses);
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
