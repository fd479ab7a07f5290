/* tanh, sigmoid, subtract, multiply and reshape on the tape: values against C's own functions in
 * double, gradients against central differences of them, views against what they look at, and what
 * is refused. (Other activations: PyTorch's numbers, tests/api/test_functions.c. The kernels over
 * all shapes: tests/device/test_kernels_ops.c.) */
#include "tests/nn/step.h"

/* Values are rounded to float a few times, by 6e-8 of numbers below 2 each; a wrong one is 1e-2. */
static const double TOLERANCE = 1e-6;
/* Central differences in double: the third derivative times STEP^2, and rounding over STEP. */
static const double STEP = 1e-5;

/* Rows of 6 numbers; two operands a and b are the two leaves. */
enum { ROWS = 41, WIDTH = 6, COUNT = ROWS * WIDTH };

typedef duet_var *on_tape(duet_tape *t, duet_var *a, duet_var *b);
typedef double in_double(double a, double b);

static duet_var *tanh_tape(duet_tape *t, duet_var *a, duet_var *b) {
    return duet_add(t, duet_tanh(t, a),
                    duet_multiply(t, b, b)); /* b twice: its gradients are added */
}
static double tanh_double(double a, double b) {
    return tanh(a) + b * b;
}
static duet_var *sigmoid_tape(duet_tape *t, duet_var *a, duet_var *b) {
    return duet_multiply(t, duet_sigmoid(t, a), duet_tanh(t, b));
}
static double sigmoid_double(double a, double b) {
    return 1 / (1 + exp(-a)) * tanh(b);
}
/* Both terms of a difference are used again behind it, so no gradient may be written in place. */
static duet_var *difference_tape(duet_tape *t, duet_var *a, duet_var *b) {
    duet_var *d = duet_subtract(t, a, b);
    return duet_add(t, duet_multiply(t, d, d),
                    duet_subtract(t, duet_multiply(t, a, d), duet_relu(t, b)));
}
static double difference_double(double a, double b) {
    return (a - b) * (a - b) + a * (a - b) - (b > 0 ? b : 0);
}
static duet_var *view_tape(duet_tape *t, duet_var *a, duet_var *b) {
    duet_var *p = duet_reshape(t, a, 4, (int[]){-1, 1, 3, 2}),
             *q = duet_reshape(t, b, 3, (int[]){-1, 2, 3});
    return duet_reshape(t, duet_multiply(t, p, duet_reshape(t, q, 4, (int[]){-1, 1, 3, 2})), 2,
                        (int[]){-1, 6});
}
static double view_double(double a, double b) {
    return a * b;
}

static const struct {
    const char *what;
    on_tape *tape;
    in_double *oracle;
} functions[] = {{"tanh(a) + b b", tanh_tape, tanh_double},
                 {"sigmoid(a) tanh(b)", sigmoid_tape, sigmoid_double},
                 {"(a - b)^2 + a (a - b) - relu(b)", difference_tape, difference_double},
                 {"views", view_tape, view_double}};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

static duet_var *leaf_at(struct net *net, void *memory) {
    struct tensor x = tensor_plain(memory, DTYPE_F32, 2, (int[2]){ROWS, WIDTH});
    return tape_leaf(net->tape, &x, 1);
}

static void check_function(enum device_kind kind, int n16, int f) {
    struct net net;
    float a[COUNT], b[COUNT], y[COUNT], dy[COUNT], da[COUNT], db[COUNT];
    open_net(&net, kind, 0);
    struct stream *stream = net.tape->stream;
    for (int i = 0; i < COUNT; i++) {
        a[i] = (float)(i * 7 % 100 - 50) / 40, b[i] = (float)(i * 13 % 90 - 44.5) / 33;
        dy[i] = (float)(i % 31 - 15) / 16;
    }
    void *at_a = net_alloc(&net, sizeof a), *at_b = net_alloc(&net, sizeof b),
         *at_dy = net_alloc(&net, sizeof dy);
    MUST(copy_to_device(stream, at_a, a, sizeof a));
    MUST(copy_to_device(stream, at_b, b, sizeof b));
    MUST(copy_to_device(stream, at_dy, dy, sizeof dy));
    begin(&net, 1);
    duet_var *va = leaf_at(&net, at_a), *vb = leaf_at(&net, at_b);
    duet_var *x = n16 ? to_device_layout(net.tape, va) : va; /* one operand, so both are turned */
    duet_var *out = to_plain(net.tape, functions[f].tape(net.tape, x, vb));
    MUST(tape_error(net.tape));
    struct tensor gradient = out->value;
    gradient.data = at_dy;
    MUST(tape_backward(net.tape, out, &gradient));
    MUST(copy_to_host(stream, y, out->value.data, sizeof y));
    MUST(copy_to_host(stream, da, va->grad.data, sizeof da));
    MUST(copy_to_host(stream, db, vb->grad.data, sizeof db));
    MUST(stream_sync(stream));
    for (int i = 0; i < COUNT; i++) {
        in_double *g = functions[f].oracle;
        double p = (double)a[i], q = (double)b[i], w = (double)dy[i] / (2 * STEP);
        cr_assert(fabs((double)y[i] - g(p, q)) <= TOLERANCE * (1 + fabs(g(p, q))), "%s: y[%d]",
                  functions[f].what, i);
        double want_a = w * (g(p + STEP, q) - g(p - STEP, q)),
               want_b = w * (g(p, q + STEP) - g(p, q - STEP));
        cr_assert(fabs((double)da[i] - want_a) <= TOLERANCE * (1 + fabs(want_a)),
                  "%s: da[%d] is %g, not %g", functions[f].what, i, (double)da[i], want_a);
        cr_assert(fabs((double)db[i] - want_b) <= TOLERANCE * (1 + fabs(want_b)),
                  "%s: db[%d] is %g, not %g", functions[f].what, i, (double)db[i], want_b);
    }
    device_free(net.device, at_a);
    device_free(net.device, at_b);
    device_free(net.device, at_dy);
    net_close(&net);
}

Test(elementwise, values_and_gradients, .timeout = 60) {
    static const enum device_kind kinds[] = {DEVICE_HOST, DEVICE_HOST_LATE};
    for (int k = 0; k < 2; k++)
        for (int n16 = 0; n16 < 2; n16++)
            for (int f = 0; f < FUNCTIONS; f++)
                check_function(kinds[k], n16, f);
}

/* Each is refused in one line, and the tape goes on with NULL. */
Test(elementwise, wrong_shapes_are_refused, .timeout = 60) {
    static const struct {
        int rank, shape[4];
    } bad[] = {{2, {-1, 5}},
               {3, {-1, 2, 4}},
               {1, {-1}},
               {5, {-1, 1, 2, 3}},
               {4, {-1, -1, -3, 2}},
               {2, {-1, 0}},
               {3, {-1, 1 << 30, 1 << 30}}};
    struct net net;
    open_net(&net, DEVICE_HOST, 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        begin(&net, 1);
        duet_var *x = leaf(&net, WIDTH, 1);
        duet_var *y = duet_reshape(net.tape, x, bad[i].rank, bad[i].shape);
        cr_assert(!y && tape_error(net.tape) == ERR_USAGE, "shape %zu", i);
        cr_assert(strstr(error_message(), "reshape: "), "%s", error_message());
        cr_assert_null(duet_sigmoid(net.tape, duet_tanh(net.tape, y)));
    }
    typedef duet_var *of_two(duet_tape * t, duet_var * a, duet_var * b);
    of_two *const ops[] = {duet_subtract, duet_multiply};
    for (int i = 0; i < 2; i++) {
        begin(&net, 1);
        duet_var *x = leaf(&net, WIDTH, 1), *z = leaf(&net, WIDTH - 1, 1);
        cr_assert(!ops[i](net.tape, x, z) && tape_error(net.tape) == ERR_USAGE);
        cr_assert(strstr(error_message(), "must match the size of tensor b"), "%s",
                  error_message());
    }
    net_close(&net);
}
