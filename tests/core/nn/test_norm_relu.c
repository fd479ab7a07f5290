/* BatchNorm with relu and a residual in one pass has the bits of the three functions: values,
 * gradients of x, the residual, weight and bias, and running statistics. This holds in training and
 * in eval, whatever else uses the residual. */
#include "tests/core/nn/step.h"

enum { C = 3, PIXELS = 4, ROWS = 41, COUNT = ROWS * C * PIXELS };

static const struct param_spec specs[2] = {{"1.weight", 1, {C}, 0}, {"1.bias", 1, {C}, 0}};

struct outcome {
    float y[COUNT], dx[COUNT], dw[C], db[C], running[2 * C];
};

/* The residual's kind. */
enum residual { NONE, LEAF, OF_X, USED_TWICE, RESIDUALS };

static duet_var *network(duet_tape *t, struct param *p, struct norm_config config, duet_var *x,
                         enum residual kind, int fused) {
    duet_var *h = duet_relu(t, x), *r = kind == OF_X ? duet_relu(t, h) : x;
    config.relu = fused;
    config.residual = fused && kind != NONE ? r : NULL;
    duet_var *y = batch_norm(t, h, &p[0], &p[1], &config);
    if (!fused) y = duet_relu(t, kind == NONE ? y : duet_add(t, y, r));
    return to_plain(t, kind == USED_TWICE ? duet_add(t, y, r) : y);
}

static void run_network(int math, int training, int synchronised, enum residual kind, int fused,
                        struct outcome *o) {
    struct net net;
    struct param_set params;
    struct rng rng;
    float x[COUNT], dy[COUNT], weight[C], bias[C];
    rng_seed(&rng, 3);
    rng_uniform(&rng, x, COUNT, -1, 2);
    rng_uniform(&rng, dy, COUNT, -1, 1);
    rng_uniform(&rng, weight, C, -1, 1);
    rng_uniform(&rng, bias, C, -1, 1);
    open_net(&net, DEVICE_HOST, math);
    struct stream *stream = net.tape->stream;
    MUST(param_set_init(&params, net.device, specs, 2));
    MUST(param_write_value(&params, 0, weight));
    MUST(param_write_value(&params, 1, bias));
    float *input = net_alloc(&net, sizeof x), *root = net_alloc(&net, sizeof dy),
          *running = net_alloc(&net, sizeof o->running);
    int64_t *batches = net_alloc(&net, sizeof *batches), none = 0;
    for (int i = 0; i < 2 * C; i++)
        o->running[i] = i < C ? 0.25f : 1.5f;
    MUST(copy_to_device(stream, input, x, sizeof x));
    MUST(copy_to_device(stream, root, dy, sizeof dy));
    MUST(copy_to_device(stream, running, o->running, sizeof o->running));
    MUST(copy_to_device(stream, batches, &none, sizeof none));
    struct norm_config config = {.epsilon = 1e-5, .momentum = 0.1, .synchronised = synchronised};
    config.running = tensor_plain(running, DTYPE_F32, 2, (int[]){2, C});
    config.batches = tensor_plain(batches, DTYPE_I64, 1, (int[]){1});
    struct tape_step step = {
        .segments = &net.segments, .params = &params, .step = net.step, .training = training};
    MUST(tape_begin(net.tape, &step));
    struct tensor in = tensor_plain(input, DTYPE_F32, 4, (int[]){ROWS, C, 2, 2}), grad = in;
    grad.data = root;
    duet_var *leaf = tape_leaf(net.tape, &in, 1);
    duet_var *y = network(net.tape, params.param, config, leaf, kind, fused);
    MUST(tape_error(net.tape));
    MUST(copy_to_host(stream, o->y, y->value.data, sizeof o->y));
    if (training) {
        MUST(tape_backward(net.tape, y, &grad));
        MUST(copy_to_host(stream, o->dx, leaf->grad.data, sizeof o->dx));
        MUST(param_read_grad(&params, 0, o->dw));
        MUST(param_read_grad(&params, 1, o->db));
    }
    MUST(copy_to_host(stream, o->running, running, sizeof o->running));
    MUST(stream_sync(stream));
    device_free(net.device, input);
    device_free(net.device, root);
    device_free(net.device, running);
    device_free(net.device, batches);
    param_set_free(&params);
    net_close(&net);
}

static int nonzero(const float *x) {
    int count = 0;
    for (int i = 0; i < COUNT; i++)
        count += x[i] != 0;
    return count;
}

Test(norm_relu, has_the_bits_of_the_separate_functions, .timeout = 60) {
    for (int math = 0; math < 2; math++)
        for (int training = 0; training < 2; training++)
            for (int shared = 0; shared < 2; shared++)
                for (int kind = 0; kind < RESIDUALS; kind++) {
                    struct outcome apart = {.y = {0}}, fused = {.y = {0}};
                    char what[80];
                    snprintf(what, sizeof what, "math %d, training %d, shared %d, residual %d",
                             math, training, shared, kind);
                    run_network(math, training, shared, (enum residual)kind, 0, &apart);
                    run_network(math, training, shared, (enum residual)kind, 1, &fused);
                    cr_assert_arr_eq(apart.y, fused.y, sizeof apart.y, "%s: y", what);
                    cr_assert_arr_eq(apart.dx, fused.dx, sizeof apart.dx, "%s: dx", what);
                    cr_assert_arr_eq(apart.dw, fused.dw, sizeof apart.dw, "%s: dw", what);
                    cr_assert_arr_eq(apart.db, fused.db, sizeof apart.db, "%s: db", what);
                    cr_assert_arr_eq(apart.running, fused.running, sizeof apart.running,
                                     "%s: running statistics", what);
                    cr_assert_gt(nonzero(apart.y), COUNT / 8);
                    cr_assert(!training || nonzero(apart.dx) > COUNT / 8, "%s: dx is 0", what);
                }
}
