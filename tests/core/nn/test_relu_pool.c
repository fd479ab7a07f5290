/* A pool after a relu does the work of both (tape_relu_put_off of the tape). Values and gradients
 * have the bits of the two separate functions, whatever else reads the relu or its operand, and in
 * any order. The relu is computed for any other op that needs it. */
#include "tests/core/nn/step.h"

enum { N = 41, C = 3, SIDE = 5, HALF = 2, COUNT = N * C * SIDE * SIDE, LESS = N * C * HALF * HALF };

static const struct param_spec specs[1] = {{"unused", 1, {1}, 0}};

struct outcome {
    float y[LESS], dx[COUNT];
    int computed; /* 1: the relu's own value was computed */
};

/* Other uses, beside pool(relu(h)). */
enum use { ALONE, OTHER_POOL, RELU_BEFORE, RELU_BEHIND, OPERAND_BETWEEN, THREE_READERS, USES };

static duet_var *pool_of(duet_tape *t, duet_var *x, int max) {
    return max ? duet_max_pool2d(t, x, 2, NULL) : duet_avg_pool2d(t, x, 2, NULL);
}

/* A pool of anything, with its relu computed before it. */
static duet_var *plain_pool(duet_tape *t, duet_var *x, int max) {
    return pool_of(t, to_plain(t, x), max);
}

static duet_var *network(duet_tape *t, duet_var *x, int max, enum use use, int together,
                         duet_var **r) {
    duet_var *h = to_device_layout(t, duet_tanh(t, x)), *y, *other = NULL, *third = NULL;
    *r = duet_relu(t, h);
    if (!together) tape_stuck(t, *r);
    if (use == RELU_BEFORE) other = plain_pool(t, duet_tanh(t, *r), max);
    if (use == OPERAND_BETWEEN) other = plain_pool(t, duet_tanh(t, h), max);
    y = pool_of(t, *r, max);
    if (use == OTHER_POOL) other = duet_avg_pool2d(t, *r, 2, NULL);
    if (use == RELU_BEHIND || use == THREE_READERS) other = plain_pool(t, duet_tanh(t, *r), max);
    if (use == THREE_READERS) third = plain_pool(t, duet_multiply(t, *r, h), max);
    if (other) y = duet_add(t, y, other);
    return to_plain(t, third ? duet_add(t, y, third) : y);
}

/* Devices that keep activations plain, reference math and a GPU, and one that keeps them in N16. */
static void open_pool_net(struct net *net, enum device_kind kind, int plain) {
    struct device_config config = {.kind = kind,
                                   .memory_bytes = (uint64_t)(kind == DEVICE_CUDA ? 160 : 32) << 20,
                                   .check_operands = 1,
                                   .reference_math = plain,
                                   .timeout_s = 20};
    net_data_make(&data, 4, (int[]){9, 17, 4, 11}, 11);
    net_open_on(net, &config, &data);
    net_load(net, &data, 0, 1);
}

static void run_network(enum device_kind kind, int plain, int training, int max, enum use use,
                        int together, struct outcome *o) {
    struct net net;
    struct param_set params;
    struct rng rng;
    float x[COUNT], dy[LESS];
    rng_seed(&rng, 3);
    rng_uniform(&rng, x, COUNT, -1, 1);
    rng_uniform(&rng, dy, LESS, -1, 1);
    open_pool_net(&net, kind, plain);
    struct stream *stream = net.tape->stream;
    MUST(param_set_init(&params, net.device, specs, 1));
    float *input = net_alloc(&net, sizeof x), *root = net_alloc(&net, sizeof dy);
    MUST(copy_to_device(stream, input, x, sizeof x));
    MUST(copy_to_device(stream, root, dy, sizeof dy));
    struct tape_step step = {
        .segments = &net.segments, .params = &params, .step = net.step, .training = training};
    MUST(tape_begin(net.tape, &step));
    struct tensor in = tensor_plain(input, DTYPE_F32, 4, (int[]){N, C, SIDE, SIDE}),
                  grad = tensor_plain(root, DTYPE_F32, 4, (int[]){N, C, HALF, HALF});
    duet_var *leaf = tape_leaf(net.tape, &in, 1), *r;
    duet_var *y = network(net.tape, leaf, max, use, together, &r);
    MUST(tape_error(net.tape));
    o->computed = r->value.data != NULL;
    MUST(copy_to_host(stream, o->y, y->value.data, sizeof o->y));
    if (training) {
        MUST(tape_backward(net.tape, y, &grad));
        MUST(copy_to_host(stream, o->dx, leaf->grad.data, sizeof o->dx));
    }
    MUST(stream_sync(stream));
    device_free(net.device, input);
    device_free(net.device, root);
    param_set_free(&params);
    net_close(&net);
}

/* On a GPU training alone, and the first and the last use, for the sake of time. */
static void check_kind(enum device_kind kind, int plain) {
    for (int training = kind == DEVICE_CUDA; training < 2; training++)
        for (int max = 0; max < 2; max++)
            for (int use = 0; use < USES; use += kind == DEVICE_CUDA ? USES - 1 : 1) {
                struct outcome apart = {.y = {0}}, together = {.y = {0}};
                char what[80];
                snprintf(what, sizeof what, "kind %d, plain %d, training %d, max %d, use %d",
                         (int)kind, plain, training, max, use);
                run_network(kind, plain, training, max, (enum use)use, 0, &apart);
                run_network(kind, plain, training, max, (enum use)use, 1, &together);
                cr_assert_arr_eq(apart.y, together.y, sizeof apart.y, "%s: y", what);
                cr_assert_arr_eq(apart.dx, together.dx, sizeof apart.dx, "%s: dx", what);
                cr_assert(apart.computed, "%s", what);
                cr_assert_eq(together.computed, use != ALONE, "%s: relu computed: %d", what,
                             together.computed);
            }
}

Test(relu_pool, has_the_bits_of_the_separate_functions, .timeout = 60) {
    int gpus;
    check_kind(DEVICE_HOST, 1);
    check_kind(DEVICE_HOST, 0);
    if (device_probe(DEVICE_CUDA, &gpus) == OK) check_kind(DEVICE_CUDA, 0);
}

/* A relu that is itself the root, or that nobody but the caller reads. */
Test(relu_pool, a_relu_that_nothing_follows, .timeout = 60) {
    struct net net;
    open_pool_net(&net, DEVICE_HOST, 1);
    begin(&net, 1);
    float x[4] = {-1, 2, -0.0f, 4}, dy[4] = {5, 6, 7, 8}, dx[4], y[4];
    struct stream *stream = net.tape->stream;
    float *input = net_alloc(&net, sizeof x), *root = net_alloc(&net, sizeof dy);
    MUST(copy_to_device(stream, input, x, sizeof x));
    MUST(copy_to_device(stream, root, dy, sizeof dy));
    struct tensor in = tensor_plain(input, DTYPE_F32, 4, (int[]){1, 1, 2, 2}), grad = in;
    grad.data = root;
    duet_var *leaf = tape_leaf(net.tape, &in, 1), *r = duet_relu(net.tape, leaf);
    cr_assert_null(r->value.data);
    MUST(tape_backward(net.tape, r, &grad));
    cr_assert_not_null(r->value.data);
    MUST(copy_to_host(stream, y, r->value.data, sizeof y));
    MUST(copy_to_host(stream, dx, leaf->grad.data, sizeof dx));
    MUST(stream_sync(stream));
    cr_assert_arr_eq(y, ((float[]){0, 2, -0.0f, 4}), sizeof y);
    cr_assert_arr_eq(dx, ((float[]){0, 6, 0, 8}), sizeof dx);
    device_free(net.device, input);
    device_free(net.device, root);
    net_close(&net);
}
