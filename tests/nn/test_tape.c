/* The tape's promises beside right numbers: hooks, parameters used never, twice or over several
 * backwards, vars used twice, and memory that stands still. What goes wrong is in
 * nn/test_errors.c. */
#include "tests/nn/net.h"

#include "nn/tape_internal.h"

static struct net_data data;
static const struct net_pass plain_pass = {0, REDUCE_MEAN, 0.25, 0};

static void open_net(struct net *net, enum device_kind kind, int math) {
    net_data_make(&data, 4, (int[]){9, 17, 4, 11}, 11);
    net_open(net, kind, math, 0, &data);
    net_load(net, &data, 0, 1);
}

/* ---- hooks ---- */

struct seen {
    struct net *net;
    int fired, order[2 * NET_PARAMS];
    float grad[NET_PARAMS][128]; /* as the stream has it when the hook's own work runs */
    int fail_at;
};

static int look(void *context, int index) {
    struct seen *s = context;
    struct param *p = &s->net->params.param[index];
    s->order[s->fired++] = index;
    if (s->fired == s->fail_at) return fail(ERR_PEER, "rank 3 has failed");
    return copy_to_host(device_compute(s->net->device), s->grad[index], p->grad.data,
                        p->count * sizeof(float));
}

Test(tape, hooks_fire_once_in_order_behind_the_last_kernel, .timeout = 60) {
    for (int late = 0; late < 2; late++)
        for (int math = 0; math < 2; math++) {
            static struct seen seen;
            struct net net;
            float grads[NET_WEIGHTS], *g = grads;
            open_net(&net, late ? DEVICE_HOST_LATE : DEVICE_HOST, math);
            seen = (struct seen){.net = &net};
            tape_set_hook(net.tape, look, &seen);
            net_run(&net, &plain_pass);
            net_read_grads(&net, grads);
            cr_assert_eq(seen.fired, (int)NET_PARAMS);
            for (int i = 0; i < NET_PARAMS; i++) {
                cr_assert_eq(seen.order[i], NET_PARAMS - 1 - i, "hook %d is of parameter %d", i,
                             seen.order[i]);
                size_t count = net.params.param[i].count;
                cr_assert_arr_eq(seen.grad[i], g, count * sizeof *g, "%s was not complete",
                                 net_specs[i].name);
                g += count;
            }
            tape_set_hook(net.tape, NULL, NULL);
            net_run(&net, &plain_pass);
            cr_assert_eq(seen.fired, (int)NET_PARAMS);
            net_close(&net);
        }
}

Test(tape, a_failing_hook_ends_backward, .timeout = 30) {
    static struct seen seen;
    struct net net;
    open_net(&net, DEVICE_HOST, 1);
    seen = (struct seen){.net = &net, .fail_at = 3};
    tape_set_hook(net.tape, look, &seen);
    MUST(net_run_forward(&net, &plain_pass));
    cr_assert_eq(net_run_backward(&net, &plain_pass), ERR_PEER);
    cr_assert_str_eq(error_message(), "rank 3 has failed");
    cr_assert_eq(seen.fired, 3);
    net_close(&net);
}

/* ---- parameters ---- */

static void begin(struct net *net, int training) {
    struct tape_step step = {&net->segments, &net->params, net->step, training};
    MUST(tape_begin(net->tape, &step));
}

static struct var *leaf(struct net *net, int width, int needs_grad) {
    struct tensor x = tensor_plain(net->x, DTYPE_F32, 2, (int[2]){net->segments.n, width});
    return tape_leaf(net->tape, &x, needs_grad);
}

static struct var *loss_of(struct net *net, struct var *scores) {
    struct tensor labels = tensor_plain(net->labels, DTYPE_I32, 1, (int[1]){NET_SAMPLES});
    return cross_entropy(net->tape, scores, &labels, REDUCE_MEAN);
}

static void fill_grads(struct net *net, float value) {
    struct op_args args = {.p.fill = {value}};
    args.out[0] =
        tensor_plain(net->params.grads, DTYPE_F32, 1, (int[1]){(int)net->params.arena_count});
    MUST(launch(device_compute(net->device), OP_FILL, &args));
}

static void read_grad(struct net *net, int index, float *to) {
    MUST(param_read_grad(&net->params, index, to));
}

/* x -> fc -> relu -> out -> loss; a head of its own hangs on x and leads nowhere. */
Test(tape, a_parameter_outside_the_loss_never_fires_and_keeps_its_gradient, .timeout = 30) {
    static struct seen seen;
    struct net net;
    float grad[128];
    open_net(&net, DEVICE_HOST, 0);
    struct param *p = net.params.param;
    seen = (struct seen){.net = &net};
    tape_set_hook(net.tape, look, &seen);
    fill_grads(&net, 7);
    begin(&net, 1);
    struct tensor x4 = tensor_plain(net.x, DTYPE_F32, 4, (int[4]){net.segments.n, 2, 9, 9});
    struct var *h = relu(net.tape, linear(net.tape, leaf(&net, 16, 0), &p[4], &p[5]));
    relu(net.tape, conv2d(net.tape, tape_leaf(net.tape, &x4, 0), &p[0], &p[1], 1, 0));
    struct var *loss = loss_of(&net, matmul_add(net.tape, h, &p[6], &p[7]));
    MUST(tape_backward(net.tape, loss, NULL));
    cr_assert_eq(seen.fired, 4);
    for (int i = 0; i < 4; i++) {
        read_grad(&net, i, grad);
        for (size_t k = 0; k < p[i].count; k++)
            cr_assert(grad[k] == 7, "%s was touched", net_specs[i].name);
    }
    read_grad(&net, 4, grad);
    cr_assert(grad[0] != 7);
    net_close(&net);
}

/* Two heads on one trunk, one backward from each: the trunk gets each head's gradient, not the
 * sum. */
Test(tape, each_backward_starts_anew, .timeout = 30) {
    struct net net;
    float first[2][96], second[2][96];
    for (int swapped = 0; swapped < 2; swapped++) {
        open_net(&net, DEVICE_HOST, 0);
        struct param *p = net.params.param;
        begin(&net, 1);
        struct var *h = relu(net.tape, linear(net.tape, leaf(&net, 16, 1), &p[4], &p[5]));
        struct var *a = loss_of(&net, matmul_add(net.tape, h, &p[6], &p[7]));
        struct var *b = loss_of(&net, matmul_add(net.tape, relu(net.tape, h), &p[6], &p[7]));
        MUST(tape_backward(net.tape, swapped ? b : a, NULL));
        read_grad(&net, 4, first[swapped]);
        MUST(tape_backward(net.tape, swapped ? a : b, NULL));
        read_grad(&net, 4, second[swapped]);
        net_close(&net);
    }
    cr_assert_arr_eq(first[0], second[1], sizeof first[0]);
    cr_assert_arr_eq(second[0], first[1], sizeof first[0]);
}

/* Samples of `width` numbers instead of pictures, each the same wherever it is trained. */
static void load_narrow(struct net *net, int r, int w, size_t width) {
    float *to = net->x;
    net_load(net, &data, r, w);
    for (int v = r; v < data.devices; v += w)
        for (int i = 0; i < data.n[v]; i++, to += width)
            MUST(copy_to_device(net->tape->stream, to, data.x[data.first[v] + i],
                                width * sizeof(float)));
}

/* Two layers of equal values, each with its own parameters (0) or sharing them (1). Weight and
 * bias gradients, 30 numbers a layer. */
static void shared_layers(int shared, int r, int w, enum device_kind kind, float *grads,
                          struct seen *seen) {
    static const struct param_spec specs[] = {
        {"a.weight", 2, {5, 5}}, {"a.bias", 1, {5}}, {"b.weight", 2, {5, 5}}, {"b.bias", 1, {5}}};
    struct net net;
    net_open(&net, kind, 0, r, &data);
    param_set_free(&net.params);
    MUST(param_set_init(&net.params, net.device, specs, 4));
    for (int i = 0; i < 4; i++)
        MUST(param_write_value(&net.params, i, data.weights + (i % 2 ? 25 : 0)));
    load_narrow(&net, r, w, 5);
    struct param *p = net.params.param;
    *seen = (struct seen){.net = &net};
    tape_set_hook(net.tape, look, seen);
    begin(&net, 1);
    struct var *h = relu(net.tape, linear(net.tape, leaf(&net, 5, 0), &p[0], &p[1]));
    struct var *loss = loss_of(&net, linear(net.tape, h, &p[shared ? 0 : 2], &p[shared ? 1 : 3]));
    MUST(tape_backward(net.tape, loss, NULL));
    for (int i = 0; i < (shared ? 2 : 4); i++) {
        MUST(param_read_grad(&net.params, i, grads + (i / 2) * 30 + (i % 2 ? 25 : 0)));
        cr_assert_arr_eq(seen->grad[i], grads + (i / 2) * 30 + (i % 2 ? 25 : 0),
                         p[i].count * sizeof(float));
    }
    net_close(&net);
}

Test(tape, a_parameter_used_twice_gets_both_gradients_and_fires_once, .timeout = 60) {
    static struct seen seen;
    static float alone[60], once[60], split[4][60];
    double want[30];
    net_data_make(&data, 4, (int[]){9, 17, 4, 11}, 12);
    shared_layers(0, 0, 1, DEVICE_HOST, alone, &seen);
    cr_assert_eq(seen.fired, 4);
    shared_layers(1, 0, 1, DEVICE_HOST, once, &seen);
    cr_assert_eq(seen.fired, 2);
    for (int i = 0; i < 30; i++)
        want[i] = (double)alone[i] + alone[30 + i];
    cr_assert_lt(distance(once, want, 30), 1e-6);
    for (int late = 0; late < 2; late++)
        for (int w = 2; w <= 4; w *= 2) {
            for (int r = 0; r < w; r++)
                shared_layers(1, r, w, late ? DEVICE_HOST_LATE : DEVICE_HOST, split[r], &seen);
            for (int h = w / 2; h > 0; h /= 2)
                for (int r = 0; r < h; r++)
                    for (int i = 0; i < 30; i++)
                        split[r][i] += split[r + h][i];
            cr_assert_arr_eq(split[0], once, 30 * sizeof(float), "on %d devices the bits differ",
                             w);
        }
}

Test(tape, accumulates_when_told_to, .timeout = 30) {
    for (int math = 0; math < 2; math++) {
        struct net net;
        float one[NET_WEIGHTS], other[NET_WEIGHTS], sum[NET_WEIGHTS];
        static struct seen seen;
        open_net(&net, DEVICE_HOST, math);
        net_run(&net, &plain_pass);
        net_read_grads(&net, one);
        net_run(&net, &(struct net_pass){1, REDUCE_SUM, 0, 0});
        net_read_grads(&net, other);
        net_run(&net, &plain_pass);
        seen = (struct seen){.net = &net};
        tape_set_hook(net.tape, look, &seen);
        tape_accumulate(net.tape, 1);
        net_run(&net, &(struct net_pass){1, REDUCE_SUM, 0, 0});
        tape_accumulate(net.tape, 0);
        net_read_grads(&net, sum);
        for (int i = 0; i < NET_WEIGHTS; i++)
            cr_assert(sum[i] == one[i] + other[i], "%g and %g give %g", one[i], other[i], sum[i]);
        cr_assert_eq(seen.fired, (int)NET_PARAMS);
        cr_assert_arr_eq(seen.grad[6], sum + 211, 30 * sizeof(float),
                         "the hook fired before the sum was made");
        net_run(&net, &plain_pass);
        net_read_grads(&net, sum);
        cr_assert_arr_eq(sum, one, sizeof one);
        net_close(&net);
    }
}

/* ---- a var used twice: a residual sum, as a later layer will write it, from the tape's inside alone ---- */

static int pass_on(struct tape *t, struct node *n) {
    if (!n->x->needs_grad) return OK;
    struct tensor dx = grad_target(t, n->x);
    CHECK(tape_error(t));
    CHECK(copy_peer(t->stream, t->device, dx.data, t->device, n->y->grad.data, tensor_bytes(&dx)));
    return grad_done(t, n->x, &dx);
}

static struct var *sum_of(struct tape *t, struct var *a, struct var *b) {
    struct tensor y = tape_tensor(t, DTYPE_F32, a->value.layout, a->value.rank, a->value.dims);
    struct op_args args = {.in[0] = b->value, .out[0] = y};
    MUST(copy_peer(t->stream, t->device, y.data, t->device, a->value.data, tensor_bytes(&y)));
    MUST(launch(t->stream, OP_ADD, &args));
    struct node node = {.backward = pass_on, .x = a};
    node.y = tape_var(t, y, 1);
    MUST(tape_node(t, &node));
    node.x = b;
    MUST(tape_node(t, &node));
    return node.y;
}

/* loss(out(relu(x) + relu(relu(x)))): relu(relu(x)) is relu(x), so the sum is 2 relu(x), and so
 * is its gradient. */
Test(tape, a_var_used_twice_gets_the_sum_of_both_gradients, .timeout = 30) {
    for (int math = 0; math < 2; math++) {
        struct net net;
        float twice[6 * 41], once[6 * 41];
        double want[6 * 41];
        open_net(&net, DEVICE_HOST, math);
        struct param *p = net.params.param;
        for (int residual = 0; residual < 2; residual++) {
            begin(&net, 1);
            struct var *x = leaf(&net, 6, 1), *h = relu(net.tape, to_device_layout(net.tape, x));
            struct var *sum = residual ? sum_of(net.tape, h, relu(net.tape, h)) : h;
            struct var *loss = loss_of(&net, matmul_add(net.tape, sum, &p[6], &p[7]));
            MUST(tape_backward(net.tape, loss, NULL));
            MUST(
                copy_to_host(net.tape->stream, residual ? twice : once, x->grad.data, sizeof once));
            MUST(stream_sync(net.tape->stream));
            /* d(2h)/dx is twice dh/dx where the weights see the same 2h: halve them first */
            float half[30];
            for (int i = 0; i < 30; i++)
                half[i] = data.weights[211 + i] / 2;
            MUST(param_write_value(&net.params, 6, half));
        }
        for (int i = 0; i < 6 * 41; i++)
            want[i] = once[i];
        cr_assert_lt(distance(twice, want, 6 * 41), 1e-6);
        net_close(&net);
    }
}

/* The gradient given for the root is the caller's: elementwise layers write theirs elsewhere,
 * also behind a view of it. */
Test(tape, a_given_gradient_is_not_written_to, .timeout = 30) {
    for (int math = 0; math < 2; math++)
        for (int view = 0; view < 2; view++) {
            struct net net;
            static float given[41 * 162], after[41 * 162], grad[41 * 162];
            open_net(&net, DEVICE_HOST, math);
            begin(&net, 1);
            struct tensor x = tensor_plain(net.x, DTYPE_F32, 4, (int[4]){net.segments.n, 2, 9, 9});
            struct var *leaf = tape_leaf(net.tape, &x, 1),
                       *root = dropout(net.tape, relu(net.tape, leaf), 0.5);
            if (view) root = flatten(net.tape, root);
            struct tensor dy = root->value;
            dy.data = net_alloc(&net, sizeof given);
            for (int i = 0; i < 41 * 162; i++)
                given[i] = 1 + (float)i;
            MUST(copy_to_device(net.tape->stream, dy.data, given, sizeof given));
            MUST(tape_backward(net.tape, root, &dy));
            MUST(copy_to_host(net.tape->stream, after, dy.data, sizeof after));
            MUST(copy_to_host(net.tape->stream, grad, leaf->grad.data, sizeof grad));
            MUST(stream_sync(net.tape->stream));
            cr_assert_arr_eq(given, after, sizeof given);
            int kept = 0;
            for (int i = 0; i < 41 * 162; i++) {
                cr_assert(grad[i] == 0 || grad[i] == 2 * given[i]);
                kept += grad[i] != 0;
            }
            cr_assert(kept > 1000 && kept < 3000,
                      "%d of 6642 gradients came through a relu and a dropout of 0.5", kept);
            device_free(net.device, dy.data);
            net_close(&net);
        }
}

static void read_dropped(struct net *net, struct var *y, float *to) {
    cr_assert_eq(y->value.layout, LAYOUT_PLAIN);
    MUST(copy_to_host(net->tape->stream, to, y->value.data, 41 * 10 * sizeof *to));
    MUST(stream_sync(net->tape->stream));
}

/* A layer's number is its place among the calls of a step, whatever the probabilities and
 * whether or not it drops. */
Test(tape, dropout_layers_are_numbered_in_order_of_call, .timeout = 30) {
    struct net net;
    float first[410], second[410], again[410];
    open_net(&net, DEVICE_HOST, 0);
    begin(&net, 1);
    struct var *x = leaf(&net, 10, 0);
    read_dropped(&net, dropout(net.tape, x, 0.5), first);
    read_dropped(&net, dropout(net.tape, x, 0.5), second);
    cr_assert_arr_neq(first, second, sizeof first);
    begin(&net, 1);
    x = leaf(&net, 10, 0);
    cr_assert_eq(dropout(net.tape, x, 0), x);
    read_dropped(&net, dropout(net.tape, x, 0.5), again);
    cr_assert_arr_eq(again, second, sizeof second);
    net_close(&net);
}

/* ---- memory ---- */

Test(tape, a_steady_step_allocates_nothing, .timeout = 60) {
    for (int math = 0; math < 2; math++) {
        struct net net;
        struct ledger after_two = {0};
        open_net(&net, DEVICE_HOST, math);
        for (int step = 0; step < 6; step++) {
            int r = step == 4; /* a short batch: half the virtual devices */
            net_load(&net, &data, r, r + 1);
            net_run(&net, &plain_pass);
            struct ledger now = device_ledger(net.device);
            if (step == 1) {
                after_two = now;
                cr_assert_eq(net.tape->block_count, 1);
                cr_assert_eq(now.now[MEM_ACTIVATIONS], net.tape->high_water,
                             "the arena is not what a step needs");
                device_peak_reset(net.device);
            }
            if (step < 2) continue;
            cr_assert_arr_eq(now.now, after_two.now, sizeof now.now);
            cr_assert_eq(now.total_peak, after_two.total);
            cr_assert_eq(net.tape->block_count, 1);
        }
        net_close(&net);
    }
}

/* 256 bytes of fold buffers live for a moment only: what is asked for next takes their place. */
Test(tape, memory_of_a_mark_is_used_again, .timeout = 30) {
    struct net net;
    open_net(&net, DEVICE_HOST, 0);
    for (int step = 0; step < 2; step++) {
        begin(&net, 1);
        char *first = tape_alloc(net.tape, 1);
        struct tape_mark mark = tape_here(net.tape);
        char *second = tape_alloc(net.tape, 1000), *empty = tape_alloc(net.tape, 0);
        cr_assert(first && second && empty && empty != second);
        if (step == 1) cr_assert(second == first + 256 && empty == second + 1024);
        tape_release(net.tape, mark);
        cr_assert(tape_alloc(net.tape, 1000) == second);
        cr_assert_eq(net.tape->high_water, 256 + 1024 + 256);
    }
    net_close(&net);
}

Test(tape, evaluation_keeps_no_nodes_and_drops_nothing, .timeout = 30) {
    struct net net;
    double trained[MAX_DEVICES], evaluated[MAX_DEVICES];
    open_net(&net, DEVICE_HOST, 0);
    for (int eval = 0; eval < 2; eval++) {
        MUST(net_run_forward(&net, &(struct net_pass){.dropout = eval ? 0.9 : 0, .eval = eval}));
        MUST(copy_to_host(net.tape->stream, eval ? evaluated : trained, net.losses.data,
                          sizeof trained));
        MUST(stream_sync(net.tape->stream));
        cr_assert_eq(net.tape->node_count > 0, !eval);
        cr_assert_eq(net.loss->needs_grad, !eval);
    }
    cr_assert_arr_eq(trained, evaluated, 4 * sizeof(double));
    net_close(&net);
}
