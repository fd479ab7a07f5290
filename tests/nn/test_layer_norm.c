/* layer_norm, a GRU, a linear layer on rows, transpose and group_norm on the tape, one behind the
 * other: equal bits however many devices share the virtual ones, and what is refused. (PyTorch's
 * numbers and gradients: tests/api/test_functions.c and test_recurrent.c.) */
#include "base/fold.h"
#include "tests/nn/step.h"

static const double EPSILON = 1e-5;

enum { V = 4, SAMPLES = 13, WORDS = 4, WIDTH = 6, CHANNELS = 8, GROUPS = 2 };
enum { SAMPLE = WORDS * WIDTH, RESULT = CHANNELS * WORDS, WEIGHTS = 2 * WIDTH + CHANNELS * WIDTH };
enum { GATES = 3 * WIDTH, OF_GRU = 2 * GATES * (WIDTH + 1) };
enum { PARAMS = 10, NUMBERS = WEIGHTS + 3 * CHANNELS + OF_GRU };
static const struct param_spec specs[PARAMS] = {{"0.weight", 1, {WIDTH}, 0},
                                                {"0.bias", 1, {WIDTH}, 0},
                                                {"1.weight", 2, {CHANNELS, WIDTH}, 0},
                                                {"1.bias", 1, {CHANNELS}, 0},
                                                {"2.weight", 1, {CHANNELS}, 0},
                                                {"2.bias", 1, {CHANNELS}, 0},
                                                {"3.w_ih", 2, {GATES, WIDTH}, 0},
                                                {"3.w_hh", 2, {GATES, WIDTH}, 0},
                                                {"3.b_ih", 1, {GATES}, 0},
                                                {"3.b_hh", 1, {GATES}, 0}};
static const struct duet_recurrent gru = {DUET_GRU, 6, 7, 8, 9, 1};
static const int counts[V] = {3, 5, 0, 5}, first[V] = {0, 3, 8, 8};

static float x_at(int i) {
    return (float)(i * 37 % 101 - 50) / 40;
}
static float root_at(int i) {
    return (float)(i * 11 % 19 - 9) / 7;
}
static float number_at(int i) {
    return (float)(i * 53 % 97 - 45) / 60;
}

struct result {
    float y[SAMPLES * RESULT], dx[SAMPLES * SAMPLE], grads[NUMBERS];
};

/* Rows of the samples of these segments; to_device 0: back to where they stand in `all`. */
static void move_rows(struct stream *s, const struct segments *segments, void *there, float *all,
                      size_t width, int to_device) {
    for (int i = 0, at = 0; i < segments->count; at += segments->seg[i++].n) {
        size_t bytes = (size_t)segments->seg[i].n * width * sizeof(float);
        char *device = (char *)there + (size_t)at * width * sizeof(float);
        float *host = all + (size_t)first[segments->seg[i].v] * width;
        if (bytes && to_device) MUST(copy_to_device(s, device, host, bytes));
        if (bytes && !to_device) MUST(copy_to_host(s, host, device, bytes));
    }
    MUST(stream_sync(s));
}

static void run(struct device *device, const struct segments *segments, struct result *r) {
    static float x[SAMPLES * SAMPLE], root[SAMPLES * RESULT], numbers[NUMBERS];
    struct stream *s = device_compute(device);
    struct param_set params = {0};
    struct param *p;
    duet_tape *tape;
    void *memory[3];
    for (int i = 0; i < SAMPLES * SAMPLE; i++)
        x[i] = x_at(i);
    for (int i = 0; i < SAMPLES * RESULT; i++)
        root[i] = root_at(i);
    for (int i = 0; i < NUMBERS; i++)
        numbers[i] = number_at(i);
    const size_t bytes[3] = {sizeof x, sizeof root, sizeof(struct step_block)};
    for (int i = 0; i < 3; i++)
        MUST(device_alloc(device, &memory[i], bytes[i], MEM_WORKSPACE));
    MUST(param_set_init(&params, device, specs, PARAMS));
    p = params.param;
    for (int i = 0, at = 0; i < PARAMS; at += (int)p[i++].count)
        MUST(param_write_value(&params, i, numbers + at));
    MUST(tape_init(&tape, device));
    move_rows(s, segments, memory[0], x, SAMPLE, 1);
    move_rows(s, segments, memory[1], root, RESULT, 1);
    struct tensor input = tensor_plain(memory[0], DTYPE_F32, 3, (int[]){segments->n, WORDS, WIDTH});
    struct tensor grad =
        tensor_plain(memory[1], DTYPE_F32, 3, (int[]){segments->n, CHANNELS, WORDS});
    struct tape_step step = {
        .segments = segments, .params = &params, .step = memory[2], .training = 1};
    MUST(tape_begin(tape, &step));
    duet_var *leaf = tape_leaf(tape, &input, 1),
             *h = layer_norm(tape, leaf, 1, &p[0], &p[1], EPSILON);
    h = duet_recurrent(tape, h, &gru, NULL, NULL);
    duet_var *z = duet_transpose(tape, duet_linear(tape, h, 2, 3), 1, -1),
             *y = group_norm(tape, z, GROUPS, &p[4], &p[5], EPSILON);
    MUST(tape_error(tape));
    MUST(tape_backward(tape, y, &grad));
    for (int i = 0, at = 0; i < PARAMS; at += (int)p[i++].count)
        MUST(param_read_grad(&params, i, r->grads + at));
    move_rows(s, segments, y->value.data, r->y, RESULT, 0);
    move_rows(s, segments, leaf->grad.data, r->dx, SAMPLE, 0);
    duet_tape_free(tape);
    param_set_free(&params);
    for (int i = 0; i < 3; i++)
        device_free(device, memory[i]);
}

/* The gradients of W devices are folded as DP folds them. */
static void train_on(int world, enum device_kind kind, struct result *all) {
    static float part[V][NUMBERS];
    for (int r = 0; r < world; r++) {
        struct device_config config = {
            .kind = kind, .index = r, .memory_bytes = 8 << 20, .check_operands = 1};
        struct segments segments = segments_of(counts, V, r, world);
        struct device *device;
        MUST(device_open(&device, &config));
        run(device, &segments, all);
        device_close(device);
        memcpy(part[r], all->grads, sizeof all->grads);
    }
    for (struct fold f = fold_begin(world); fold_next(&f);)
        for (int i = 0; i < NUMBERS; i++)
            part[f.to][i] += part[f.from][i];
    memcpy(all->grads, part[0], sizeof all->grads);
}

Test(layer_norm, bits_do_not_depend_on_the_number_of_devices, .timeout = 60) {
    static struct result single, other;
    train_on(1, DEVICE_HOST, &single);
    for (int world = 1; world <= V; world *= 2) {
        memset(&other, 0, sizeof other);
        train_on(world, DEVICE_HOST_LATE, &other);
        cr_assert(!memcmp(&other, &single, sizeof single), "%d devices", world);
    }
}

/* What would mix the samples of several virtual devices, and what does not suit. */
Test(layer_norm, what_is_refused, .timeout = 30) {
    struct net net;
    open_net(&net, DEVICE_HOST, 0); /* four segments */
    for (int i = 0; i < 5; i++) {
        static const int both[2] = {0, 1}, twice[2] = {1, 1};
        begin(&net, 1);
        duet_var *x = leaf(&net, 6, 1);
        duet_var *y = i == 0   ? duet_transpose(net.tape, x, 0, 1)
                      : i == 1 ? duet_permute(net.tape, x, twice)
                      : i == 2 ? duet_sum(net.tape, x, both, 2, 1)
                      : i == 3 ? layer_norm(net.tape, x, 2, NULL, NULL, EPSILON)
                               : group_norm(net.tape, x, 4, NULL, NULL, EPSILON);
        static const char *const says[5] = {"mix samples", "appears multiple times", "mix samples",
                                            "the first dimension stays", "divisible by num_groups"};
        cr_assert_null(y);
        cr_assert_eq(tape_error(net.tape), ERR_USAGE);
        cr_assert(strstr(error_message(), says[i]), "%s", error_message());
    }
    net_close(&net);
}
