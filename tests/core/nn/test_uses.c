/* Parameters and vars used never, twice or over several backwards: each gets the gradient of all
 * its uses, once. */
#include "tests/core/nn/step.h"

/* x -> fc -> relu -> out -> loss; a head of its own hangs on x and leads nowhere. */
Test(uses, a_parameter_outside_the_loss_never_fires_and_keeps_its_gradient, .timeout = 30) {
    static struct seen seen;
    struct net net;
    float grad[128];
    open_net(&net, DEVICE_HOST, 0);
    seen = (struct seen){.net = &net};
    tape_set_hook(net.tape, look, &seen);
    fill_grads(&net, 7);
    begin(&net, 1);
    struct tensor x4 = tensor_plain(net.x, DTYPE_F32, 4, (int[4]){net.segments.n, 2, 9, 9});
    duet_var *h = duet_relu(net.tape, duet_linear(net.tape, leaf(&net, 16, 0), 4, 5));
    duet_relu(net.tape, duet_conv2d(net.tape, tape_leaf(net.tape, &x4, 0), 0, 1, NULL));
    duet_var *loss = loss_of(&net, duet_matmul_add(net.tape, h, 6, 7));
    MUST(tape_backward(net.tape, loss, NULL));
    cr_assert_eq(seen.fired, 4);
    for (int i = 0; i < 4; i++) {
        read_grad(&net, i, grad);
        for (size_t k = 0; k < net.params.param[i].count; k++)
            cr_assert(grad[k] == 7, "%s was touched", net_specs[i].name);
    }
    read_grad(&net, 4, grad);
    cr_assert(grad[0] != 7);
    net_close(&net);
}

/* Two heads on one trunk, one backward from each: the trunk gets each head's gradient, not the
 * sum. */
Test(uses, each_backward_starts_anew, .timeout = 30) {
    struct net net;
    float first[2][96], second[2][96];
    for (int swapped = 0; swapped < 2; swapped++) {
        open_net(&net, DEVICE_HOST, 0);
        begin(&net, 1);
        duet_var *h = duet_relu(net.tape, duet_linear(net.tape, leaf(&net, 16, 1), 4, 5));
        duet_var *a = loss_of(&net, duet_matmul_add(net.tape, h, 6, 7));
        duet_var *b = loss_of(&net, duet_matmul_add(net.tape, duet_relu(net.tape, h), 6, 7));
        MUST(tape_backward(net.tape, swapped ? b : a, NULL));
        read_grad(&net, 4, first[swapped]);
        MUST(tape_backward(net.tape, swapped ? a : b, NULL));
        read_grad(&net, 4, second[swapped]);
        net_close(&net);
    }
    cr_assert_arr_eq(first[0], second[1], sizeof first[0]);
    cr_assert_arr_eq(second[0], first[1], sizeof first[0]);
}

/* One backward from both heads: the trunk gets the sum, and every parameter fires once. A ddp asks
 * the same join which parameters are used. */
Test(uses, a_join_of_two_losses, .timeout = 30) {
    static struct seen seen;
    struct net net;
    const struct tensor none[2] = {{0}};
    float each[2][96], sum[96];
    double want[96];
    open_net(&net, DEVICE_HOST, 0);
    begin(&net, 1);
    duet_var *h = duet_relu(net.tape, duet_linear(net.tape, leaf(&net, 16, 0), 4, 5));
    duet_var *loss[2] = {loss_of(&net, duet_matmul_add(net.tape, h, 6, 7)), loss_of(&net, h)};
    for (int i = 0; i < 2; i++) {
        MUST(tape_backward(net.tape, loss[i], NULL));
        read_grad(&net, 4, each[i]);
    }
    seen = (struct seen){.net = &net};
    tape_set_hook(net.tape, look, &seen);
    duet_var *join = tape_join(net.tape, loss, none, 2);
    const char *used = tape_uses(net.tape, join);
    for (int i = 0; i < NET_PARAMS; i++)
        cr_assert_eq(used[i], i >= 4, "%s", net_specs[i].name);
    MUST(tape_backward(net.tape, join, NULL));
    cr_assert_eq(seen.fired, 4);
    read_grad(&net, 4, sum);
    for (int i = 0; i < 96; i++)
        want[i] = (double)each[0][i] + each[1][i];
    cr_assert_lt(distance(sum, want, 96), 1e-6);
    cr_assert_gt(distance(each[0], want, 96), 1e-2);
    net_close(&net);
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
    static const struct param_spec specs[] = {{"a.weight", 2, {5, 5}, 0},
                                              {"a.bias", 1, {5}, 0},
                                              {"b.weight", 2, {5, 5}, 0},
                                              {"b.bias", 1, {5}, 0}};
    struct net net;
    net_open(&net, kind, 0, r, &data);
    param_set_free(&net.params);
    MUST(param_set_init(&net.params, net.device, specs, 4));
    for (int i = 0; i < 4; i++)
        MUST(param_write_value(&net.params, i, data.weights + (i % 2 ? 25 : 0)));
    load_narrow(&net, r, w, 5);
    *seen = (struct seen){.net = &net};
    tape_set_hook(net.tape, look, seen);
    begin(&net, 1);
    duet_var *h = duet_relu(net.tape, duet_linear(net.tape, leaf(&net, 5, 0), 0, 1));
    duet_var *loss = loss_of(&net, duet_linear(net.tape, h, shared ? 0 : 2, shared ? 1 : 3));
    MUST(tape_backward(net.tape, loss, NULL));
    for (int i = 0; i < (shared ? 2 : 4); i++) {
        MUST(param_read_grad(&net.params, i, grads + (i / 2) * 30 + (i % 2 ? 25 : 0)));
        cr_assert_arr_eq(seen->grad[i], grads + (i / 2) * 30 + (i % 2 ? 25 : 0),
                         net.params.param[i].count * sizeof(float));
    }
    net_close(&net);
}

Test(uses, a_parameter_used_twice_gets_both_gradients_and_fires_once, .timeout = 60) {
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

/* ---- a var used twice ---- */

/* loss(out(relu(x) + relu(relu(x)))): relu(relu(x)) is relu(x), so the sum is 2 relu(x), and so
 * is its gradient. */
Test(uses, a_var_used_twice_gets_the_sum_of_both_gradients, .timeout = 30) {
    for (int math = 0; math < 2; math++) {
        struct net net;
        float twice[6 * 41], once[6 * 41];
        double want[6 * 41];
        open_net(&net, DEVICE_HOST, math);
        for (int residual = 0; residual < 2; residual++) {
            begin(&net, 1);
            duet_var *x = leaf(&net, 6, 1), *h = duet_relu(net.tape, to_device_layout(net.tape, x));
            duet_var *sum = residual ? duet_add(net.tape, h, duet_relu(net.tape, h)) : h;
            duet_var *loss = loss_of(&net, duet_matmul_add(net.tape, sum, 6, 7));
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
