/* Errors on a tape: the first error is kept, later ops pass NULL on, backward returns the code, and
 * the next step begins without error. */
#include "tests/core/nn/net.h"

#include "nn/optimizer/optimizer.h"
#include "nn/tape/tape_internal.h"

static struct net_data data;
static struct net net;
static struct param *p; /* the net's */

static void open_net(void) {
    net_data_make(&data, 2, (int[]){9, 7}, 21);
    net_open(&net, DEVICE_HOST, 0, 0, &data);
    net_load(&net, &data, 0, 1);
    p = net.params.param;
}

static duet_var *begin(int training) {
    struct tape_step step = {
        .segments = &net.segments, .params = &net.params, .step = net.step, .training = training};
    struct tensor x = tensor_plain(net.x, DTYPE_F32, 4, (int[4]){net.segments.n, 2, 9, 9});
    MUST(tape_begin(net.tape, &step));
    return tape_leaf(net.tape, &x, 1);
}

static void expect(int code, int want, const char *text) {
    cr_assert_eq(code, want, "code %d: %s", code, error_message());
    cr_assert(strstr(error_message(), text), "\"%s\" does not say \"%s\"", error_message(), text);
}

Test(errors, the_first_is_kept_and_null_is_passed_on, .timeout = 30) {
    open_net();
    duet_tape *t = net.tape;
    duet_tensor labels = net_labels(&net);
    duet_var *x = begin(1), *bad = duet_dropout(t, x, -1);
    cr_assert_null(bad);
    cr_assert_null(duet_conv2d(t, bad, 0, 1, &(struct duet_conv){.stride = {1, -1}}));
    cr_assert_null(duet_relu(
        t, duet_flatten(t, duet_max_pool2d(t, duet_avg_pool2d(t, bad, 99, NULL), 99, NULL))));
    cr_assert_null(duet_linear(t, bad, 4, 5));
    cr_assert_null(duet_matmul_add(t, bad, 6, 7));
    cr_assert_null(duet_dropout(t, bad, 7));
    cr_assert_null(to_plain(t, duet_log_softmax(t, bad)));
    duet_var *loss = duet_nll_loss(t, bad, &labels, DUET_MEAN, NULL);
    cr_assert_null(loss);
    cr_assert_null(duet_cross_entropy(t, bad, &labels, DUET_MEAN, NULL));
    cr_assert_null(duet_relu(t, x), "an op that could go on did, after the tape had failed");
    fail(ERR_FAILED, "something else, later");
    expect(tape_log_loss(t, loss, &net.losses, &net.hits), ERR_USAGE, "but got -1");
    fail(ERR_FAILED, "something else, later");
    expect(tape_backward(t, loss, NULL), ERR_USAGE, "but got -1");
    fail(ERR_FAILED, "something else, later");
    expect(tape_error(t), ERR_USAGE, "dropout probability has to be between 0 and 1, but got -1");
    begin(1);
    MUST(tape_error(t));
    net_close(&net);
}

Test(errors, of_backward_and_begin, .timeout = 30) {
    open_net();
    duet_tensor labels = net_labels(&net);
    struct tensor grad = tensor_plain(net.x, DTYPE_F32, 2, (int[2]){16, NET_CLASSES}), wrong = grad;
    duet_var *scores = net_forward(net.tape, begin(1), 0);
    wrong.dims[1] = 4;
    expect(tape_backward(net.tape, NULL, NULL), ERR_FAILED, "no root");
    expect(tape_backward(net.tape, scores, NULL), ERR_FAILED, "not a loss");
    expect(tape_backward(net.tape, scores, &wrong), ERR_FAILED, "shaped like the root");
    MUST(tape_backward(net.tape, scores, &grad));
    duet_var *none = duet_cross_entropy(net.tape, scores, &labels, DUET_NONE, NULL);
    expect(tape_backward(net.tape, none, NULL), ERR_USAGE, "reduction none");
    /* a step that failed half way stays failed */
    expect(tape_error(net.tape), ERR_USAGE, "reduction none");

    duet_var *grouped = duet_relu(net.tape, to_device_layout(net.tape, begin(1)));
    struct tensor same = tensor_plain(net.x, DTYPE_F32, 4, grouped->value.dims);
    expect(tape_backward(net.tape, grouped, &same), ERR_FAILED, "to_plain");
    expect(tape_log_loss(net.tape, grouped, &net.losses, &net.hits), ERR_FAILED, "not from a loss");

    duet_var *value =
        duet_cross_entropy(net.tape, net_forward(net.tape, begin(0), 0), &labels, DUET_MEAN, NULL);
    expect(tape_backward(net.tape, value, NULL), ERR_FAILED, "evaluation");

    struct segments bad[3] = {
        {.count = 0}, {.count = 1, .n = 5, .seg = {{0, 4}}}, {.count = MAX_DEVICES + 1}};
    for (int i = 0; i < 3; i++) {
        struct tape_step step = {
            .segments = &bad[i], .params = &net.params, .step = net.step, .training = 1};
        expect(tape_begin(net.tape, &step), ERR_FAILED, "segments");
        cr_assert_null(tape_leaf(net.tape, &labels.t, 0));
    }
    net_close(&net);
}

/* The log has a row of MAX_DEVICES columns; one of 1 column has no place for the second segment. */
Test(errors, of_a_log_too_narrow, .timeout = 30) {
    open_net();
    net.losses.dims[1] = net.hits.dims[1] = 1;
    expect(net_run_forward(&net, &(struct net_pass){0}), ERR_FAILED, "the log has no such column");
    net_close(&net);
}

/* Leaves `left` bytes of the device free. */
static void *hoard(size_t left) {
    struct ledger l = device_ledger(net.device);
    void *memory;
    MUST(device_alloc(net.device, &memory, (size_t)(l.capacity - l.total) - left, MEM_WORKSPACE));
    return memory;
}

/* However little memory there is: the step fails with a message that says so, or it runs and has
 * the same bits; and the tape is as good as new once there is memory again. */
Test(errors, out_of_memory_at_every_point, .timeout = 120) {
    const struct net_pass pass = {1, REDUCE_MEAN, 0.25, 0};
    float want[NET_WEIGHTS], got[NET_WEIGHTS];
    open_net();
    net_run(&net, &pass);
    net_read_grads(&net, want);
    int failed_forward = 0, failed_backward = 0, worked = 0;
    for (size_t left = 0; !worked; left += 256) {
        duet_tape_free(net.tape);
        MUST(tape_init(&net.tape, net.device));
        void *hoarded = hoard(left);
        int code = net_run_forward(&net, &pass);
        if (code) {
            cr_assert_null(net.loss);
            expect(code, ERR_MEMORY, "out of memory on device 0");
            failed_forward++;
        } else {
            code = net_run_backward(&net, &pass);
            if (code) expect(code, ERR_MEMORY, "out of memory on device 0");
            if (code)
                failed_backward++;
            else
                worked++;
        }
        if (code) expect(tape_error(net.tape), ERR_MEMORY, "out of memory on device 0");
        device_free(net.device, hoarded);
        if (left % 4096 && !worked) continue;
        net_run(&net, &pass);
        net_read_grads(&net, got);
        cr_assert_arr_eq(got, want, sizeof want);
    }
    cr_assert(failed_forward > 20 && failed_backward > 20, "%d, %d", failed_forward,
              failed_backward);
    net_close(&net);
}

/* The one block of the second step does not fit where the pieces of the first did: the step
 * still runs. */
Test(errors, memory_in_pieces_still_trains, .timeout = 30) {
    const struct net_pass pass = {1, REDUCE_MEAN, 0.25, 0};
    enum { PIECES = 4096 };
    static void *piece[PIECES];
    float want[NET_WEIGHTS], got[NET_WEIGHTS];
    open_net();
    net_run(&net, &pass);
    net_read_grads(&net, want);
    size_t most = 0;
    for (int i = 0; i < net.tape->arena.count; i++)
        if (most < net.tape->arena.pieces[i].bytes) most = net.tape->arena.pieces[i].bytes;
    duet_tape_free(net.tape);
    MUST(tape_init(&net.tape, net.device));
    int count = 0; /* every other hole of the largest piece's size is kept */
    while (count < PIECES && device_alloc(net.device, &piece[count], most, MEM_WORKSPACE) == OK)
        count++;
    for (int i = 0; i < count; i += 2)
        device_free(net.device, piece[i]);
    for (int step = 0; step < 3; step++) {
        net_run(&net, &pass);
        net_read_grads(&net, got);
        cr_assert_arr_eq(got, want, sizeof want);
    }
    for (int i = 1; i < count; i += 2)
        device_free(net.device, piece[i]);
    net_close(&net);
}

Test(errors, of_parameter_sets, .timeout = 30) {
    struct param_set set;
    struct optimizer sgd;
    const struct param_spec huge[] = {{"a", 2, {40000, 40000}, 0}, {"b", 2, {40000, 40000}, 0}},
                            large = {"c", 1, {1 << 24}, 0};
    open_net();
    struct ledger before = device_ledger(net.device);
    expect(param_set_init(&set, net.device, huge, 2), ERR_USAGE, "2^31 - 1");
    param_set_free(&set);
    expect(param_set_init(&set, net.device, &large, 1), ERR_MEMORY, "out of memory on device 0");
    param_set_free(&set);
    void *hoarded = hoard((1 << 20) + 256);
    const struct param_spec half = {"d", 1, {1 << 17}, 0};
    MUST(param_set_init(&set, net.device, &half, 1));
    expect(optimizer_init(&sgd, &set, &(struct optimizer_config){.momentum = 0.9}), ERR_MEMORY,
           "out of memory on device 0");
    optimizer_free(&sgd);
    MUST(stream_sync(device_compute(net.device)));
    param_set_free(&set);
    const struct param_spec more = {"e", 1, {1 << 18}, 0};
    expect(param_set_init(&set, net.device, &more, 1), ERR_MEMORY, "out of memory on device 0");
    param_set_free(&set);
    param_set_free(NULL);
    optimizer_free(NULL);
    duet_tape_free(NULL);
    device_free(net.device, hoarded);
    cr_assert_arr_eq(device_ledger(net.device).now, before.now, sizeof before.now);
    net_close(&net);
}
