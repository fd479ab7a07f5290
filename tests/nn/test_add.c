/* add() on the tape, the residual sum. Both operands get the gradient of the sum, and get it
 * without a copy, so what is tested is that nobody writes to memory that another still reads: in
 * every shape that a graph with sums can take, in place or not, whichever part comes first.
 *
 * The network is a sum of powers of one number, so that every gradient is a whole number: relu
 * passes positive values on unchanged, and a chain of sums multiplies by how often x comes in. */
#include "tests/nn/step.h"

/* What graph g makes of x (all positive) is `factor` times x; its gradient is factor times dy. */
struct graph {
    const char *what;
    float factor;
};
static const struct graph graphs[] = {
    {"x + x", 2},
    {"relu(x) + x", 2},
    {"x + relu(x)", 2},
    {"the first operand has another use behind the second", 4},
    {"the second operand has another use behind the first", 4},
    {"both operands have more uses", 6},
    {"a sum of sums of itself", 8},
    {"one of three operands comes through flatten", 3},
    {"a residual block behind a residual block", 4},
};
enum { GRAPHS = sizeof graphs / sizeof *graphs };

static duet_var *run_graph(duet_tape *t, int g, duet_var *x) {
    duet_var *a, *b, *c, *d;
    switch (g) {
    case 0: return duet_add(t, x, x);
    case 1: return duet_add(t, duet_relu(t, x), x);
    case 2: return duet_add(t, x, duet_relu(t, x));
    case 3:
        b = duet_relu(t, x), a = duet_relu(t, x), c = duet_relu(t, a);
        return duet_add(t, c, duet_add(t, duet_add(t, a, b), duet_relu(t, b)));
    case 4:
        b = duet_relu(t, x), a = duet_relu(t, x), c = duet_relu(t, b);
        return duet_add(t, duet_add(t, duet_add(t, a, b), duet_relu(t, a)), c);
    case 5:
        a = duet_relu(t, x), b = duet_relu(t, x), c = duet_relu(t, a), d = duet_relu(t, b);
        return duet_add(t, duet_add(t, duet_add(t, a, b), duet_add(t, c, d)),
                        duet_add(t, duet_relu(t, c), duet_relu(t, d)));
    case 6: a = duet_add(t, x, x), b = duet_add(t, a, a); return duet_add(t, b, b);
    case 7:
        a = duet_flatten(t, duet_relu(t, x));
        return duet_add(t, duet_add(t, a, duet_flatten(t, x)), duet_flatten(t, x));
    default:
        a = duet_relu(t, duet_add(t, duet_relu(t, duet_relu(t, x)), x));
        return duet_relu(t, duet_add(t, duet_relu(t, duet_relu(t, a)), a));
    }
}

/* Rows of 5 positive numbers, 41 samples in four segments; the root's gradient is the data too. */
enum { ROWS = 41, WIDTH = 5, COUNT = ROWS * WIDTH };

Test(add, gradients_are_added_wherever_they_come_from, .timeout = 60) {
    for (int plain = 0; plain < 2; plain++)
        for (int g = 0; g < GRAPHS; g++) {
            struct net net;
            float x[COUNT], y[COUNT], dy[COUNT], dx[COUNT], after[COUNT];
            open_net(&net, DEVICE_HOST, 0);
            struct stream *stream = net.tape->stream;
            for (int i = 0; i < COUNT; i++)
                x[i] = (float)(1 + i % 29), dy[i] = (float)(i % 31 - 15);
            void *root = net_alloc(&net, sizeof dy);
            MUST(copy_to_device(stream, net.x, x, sizeof x));
            MUST(copy_to_device(stream, root, dy, sizeof dy));
            begin(&net, 1);
            duet_var *in = leaf(&net, WIDTH, 1);
            duet_var *top = plain ? in : to_device_layout(net.tape, in);
            duet_var *out = to_plain(net.tape, run_graph(net.tape, g, top));
            MUST(tape_error(net.tape));
            struct tensor gradient = out->value;
            gradient.data = root;
            for (int again = 0; again < 2; again++) { /* each backward starts anew */
                MUST(tape_backward(net.tape, out, &gradient));
                MUST(copy_to_host(stream, y, out->value.data, sizeof y));
                MUST(copy_to_host(stream, dx, in->grad.data, sizeof dx));
                MUST(copy_to_host(stream, after, root, sizeof after));
                MUST(stream_sync(stream));
                for (int i = 0; i < COUNT; i++) {
                    cr_assert_eq(y[i], graphs[g].factor * x[i], "%s: y", graphs[g].what);
                    cr_assert_eq(dx[i], graphs[g].factor * dy[i], "%s: dx[%d] is %g, not %g",
                                 graphs[g].what, i, (double)dx[i],
                                 (double)(graphs[g].factor * dy[i]));
                }
                cr_assert_arr_eq(after, dy, sizeof dy, "%s: the root's gradient was written to",
                                 graphs[g].what);
            }
            device_free(net.device, root);
            net_close(&net);
        }
}

/* A sum of a leaf in plain layout and of a var in the device's own. */
Test(add, operands_in_two_layouts, .timeout = 30) {
    struct net net;
    float x[COUNT], y[COUNT];
    open_net(&net, DEVICE_HOST, 0);
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(i % 29 - 10);
    MUST(copy_to_device(net.tape->stream, net.x, x, sizeof x));
    for (int swapped = 0; swapped < 2; swapped++) {
        begin(&net, 1);
        duet_var *a = leaf(&net, WIDTH, 1), *b = duet_relu(net.tape, to_device_layout(net.tape, a));
        duet_var *sum =
            to_plain(net.tape, swapped ? duet_add(net.tape, b, a) : duet_add(net.tape, a, b));
        MUST(tape_error(net.tape));
        MUST(copy_to_host(net.tape->stream, y, sum->value.data, sizeof y));
        MUST(stream_sync(net.tape->stream));
        for (int i = 0; i < COUNT; i++)
            cr_assert_eq(y[i], x[i] > 0 ? 2 * x[i] : x[i]);
    }
    net_close(&net);
}

Test(add, what_is_refused, .timeout = 30) {
    struct net net;
    open_net(&net, DEVICE_HOST, 0);
    struct tensor four = tensor_plain(net.x, DTYPE_F32, 4, (int[4]){net.segments.n, 1, 2, 3});
    for (int i = 0; i < 3; i++) {
        begin(&net, 1);
        duet_var *a = leaf(&net, 6, 0);
        duet_var *y = i == 0   ? duet_add(net.tape, a, leaf(&net, 7, 0))
                      : i == 1 ? duet_add(net.tape, a, tape_leaf(net.tape, &four, 0))
                               : duet_add(net.tape, a, NULL);
        cr_assert_null(y);
        if (i == 2) continue;
        cr_assert_eq(tape_error(net.tape), ERR_USAGE);
        static const char *const says[] = {
            "The size of tensor a (6) must match the size of tensor b "
            "(7) at non-singleton dimension 1",
            "The size of tensor a (6) must match the size of tensor b "
            "(3) at non-singleton dimension 3"};
        cr_assert_not_null(strstr(error_message(), says[i]), "%s", error_message());
    }
    net_close(&net);
}
