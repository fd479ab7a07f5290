/* What the functions of the tape refuse, and with which messages. In one table (refused_rows.h)
 * each call fails with one line, and the tape keeps the error. */
#include <limits.h>

#include "duet.h"
#include "tests/core/nn/step.h"

enum { SAMPLES = 5 };
enum { TABLE, BIAS, CONV, W_IH, W_HH, GATES, PARAMS };

static const struct duet_param description[PARAMS] = {
    {"table", 2, {4, 3}, NULL}, {"bias", 1, {4}, NULL},     {"conv", 4, {3, 2, 3, 3}, NULL},
    {"w_ih", 2, {20, 3}, NULL}, {"w_hh", 2, {20, 5}, NULL}, {"gates", 1, {20}, NULL}};

#define I(...)      \
    (int[]) {       \
        __VA_ARGS__ \
    }
#define VARS(...)    \
    (duet_var *[]) { \
        __VA_ARGS__  \
    }
#define P(i) duet_parameter(t, i)
#define HOW(...)          \
    &(struct duet_conv) { \
        __VA_ARGS__       \
    }
#define POOL(...)         \
    &(struct duet_pool) { \
        __VA_ARGS__       \
    }
#define OPTIONS(...)              \
    &(struct duet_loss_options) { \
        __VA_ARGS__               \
    }
#define CROSS_ENTROPY(x, labels, options) duet_cross_entropy(t, x, labels, DUET_MEAN, options)

static duet_var *recurrent(duet_tape *t, duet_var *x, enum duet_recurrent_kind kind, int w_hh,
                           duet_var *h, duet_var *c) {
    return duet_recurrent(t, x, &(struct duet_recurrent){kind, W_IH, w_hh, GATES, GATES, 0}, &h,
                          &c);
}

struct bed {
    duet_device *devices[2];
    duet_params *params;
    duet_tape *t;
    duet_tensor *floats, *floats3, *floats4, *seven, *elsewhere, *index, *few, *index_elsewhere;
};

static duet_tensor *tensor(duet_device *device, enum duet_type type, int rank, const int *dims) {
    static const int32_t minus[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
    duet_tensor *out;
    MUST(duet_tensor_create(&out, device, type, rank, dims, type == DUET_I32 ? minus : NULL));
    return out;
}

static void open_bed(struct bed *b) {
    MUST(duet_devices_open(b->devices, 2, "cpu", 8 << 20));
    duet_device *here = b->devices[0], *there = b->devices[1];
    MUST(duet_params_create(&b->params, here, description, PARAMS));
    MUST(duet_tape_create(&b->t, here));
    b->floats = tensor(here, DUET_F32, 2, I(SAMPLES, 6));
    b->floats3 = tensor(here, DUET_F32, 3, I(SAMPLES, 3, 4));
    b->floats4 = tensor(here, DUET_F32, 4, I(SAMPLES, 2, 9, 9));
    b->seven = tensor(here, DUET_F32, 2, I(7, 6));
    b->elsewhere = tensor(there, DUET_F32, 2, I(SAMPLES, 6));
    b->index = tensor(here, DUET_I32, 1, I(SAMPLES));
    b->few = tensor(here, DUET_I32, 1, I(4));
    b->index_elsewhere = tensor(there, DUET_I32, 1, I(SAMPLES));
}

static void close_bed(struct bed *b) {
    duet_tensor *const tensors[] = {b->floats,    b->floats3, b->floats4, b->seven,
                                    b->elsewhere, b->index,   b->few,     b->index_elsewhere};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        duet_tensor_free(tensors[i]);
    duet_tape_free(b->t);
    duet_params_free(b->params);
    duet_devices_close(b->devices, 2);
}

/* The call in line `number` of the table; returns what its error must contain, or NULL. */
static const char *refuse(struct bed *b, int number, duet_var **y) {
    duet_tape *t = b->t;
    const duet_tensor *index = b->index, *few = b->few, *floats = b->floats,
                      *elsewhere = b->elsewhere, *index_elsewhere = b->index_elsewhere;
    MUST(duet_tape_begin(t, b->params, SAMPLES, DUET_TRAIN));
    duet_var *x2 = duet_input(t, floats), *x3 = duet_input(t, b->floats3),
             *x4 = duet_input(t, b->floats4), *rows7 = duet_leaf(t, b->seven),
             *steps = duet_narrow(t, x3, 2, 0, 3);
    switch (number) {
#define REFUSED(says, call) \
    case __LINE__:          \
        *y = call;          \
        return says;
#include "tests/core/nn/refused_rows.h"
    default: return NULL;
    }
}

Test(refused, in_one_line_that_says_why, .timeout = 30) {
    struct bed b;
    int count = 0;
    open_bed(&b);
    for (int line = 0; line < 400; line++) {
        duet_var *y = NULL;
        const char *says = refuse(&b, line, &y);
        if (!says) continue;
        count++;
        cr_assert(!y && duet_tape_error(b.t), "line %d is not refused: %s", line, says);
        cr_expect(strstr(duet_error(), says), "line %d: '%s' lacks '%s'", line, duet_error(), says);
        cr_assert_null(strchr(duet_error(), '\n'));
        cr_assert_null(duet_relu(b.t, duet_leaf(b.t, b.floats))); /* the error stays */
    }
    cr_assert_gt(count, 90);
    /* only a number is a root without a gradient */
    MUST(duet_tape_begin(b.t, b.params, SAMPLES, DUET_TRAIN));
    cr_assert_eq(duet_backward(b.t, duet_tanh(b.t, duet_leaf(b.t, b.floats)), NULL), DUET_USAGE);
    cr_assert(strstr(duet_error(), "only for scalar outputs"), "%s", duet_error());
    /* BatchNorm without statistics, running or of the batch */
    MUST(duet_tape_begin(b.t, b.params, SAMPLES, DUET_EVALUATE));
    duet_var *x = duet_reshape(b.t, duet_input(b.t, b.floats3), 4, I(-1, 4, 3, 1));
    cr_assert_null(duet_batch_norm(b.t, x, BIAS, BIAS, DUET_NO_BUFFERS, 1e-5, 0.1, 0));
    cr_assert(strstr(duet_error(), "eval needs running statistics"), "%s", duet_error());
    duet_tensor *single = tensor(b.devices[0], DUET_F32, 2, I(1, 4));
    MUST(duet_tape_begin(b.t, b.params, 1, DUET_TRAIN));
    x = duet_input(b.t, single);
    cr_assert_null(duet_batch_norm(b.t, x, BIAS, BIAS, DUET_NO_BUFFERS, 1e-5, 0.1, 0));
    cr_assert(strstr(duet_error(), "training, got input size torch.Size([1, 4])"), "%s",
              duet_error());
    duet_tensor_free(single);
    close_bed(&b);
}

/* What would sum over or mix the samples of several virtual devices. */
Test(refused, samples_of_segments_are_not_mixed, .timeout = 30) {
    struct net net;
    open_net(&net, DEVICE_HOST, 0); /* four segments */
    for (int i = 0; i < 8; i++) {
        struct tensor w = tensor_plain(net.x, DTYPE_F32, 2, (int[2]){i < 6 ? 6 : 1, 6});
        begin(&net, 1);
        duet_tape *t = net.tape;
        duet_var *x = leaf(&net, 6, 1), *m = tape_leaf(t, &w, 1);
        duet_var *y = i == 0   ? duet_matmul(t, x, m)
                      : i == 1 ? duet_sum(t, x, NULL, 0, 0)
                      : i == 2 ? duet_mean(t, x, I(0), 1, 0)
                      : i == 3 ? duet_conv2d(t, m, 0, DUET_NO_BIAS, NULL)
                      : i == 4 ? duet_transpose(t, x, 0, 1)
                      : i == 5 ? duet_sum(t, x, I(0, 1), 2, 1)
                      : i == 6 ? duet_add(t, x, m)
                               : duet_matmul(t, m, duet_reshape(t, x, 3, I(-1, 6, 1)));
        cr_assert_null(y);
        cr_assert_eq(tape_error(t), ERR_USAGE);
        cr_assert_not_null(strstr(error_message(), i != 3 ? "mix samples" : "does not suit"), "%s",
                           error_message());
    }
    net_close(&net);
}
