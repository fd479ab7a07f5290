/* Parameters and vars that are used never, twice or in several backwards: each gets the gradient of
 * all its uses, once. */
#include "tests/core/nn/step.h"

/* x -> fc -> relu -> out -> loss; another head of x leads nowhere. */
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
    char used[NET_PARAMS];
    tape_uses(net.tape, join, used);
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

/* Two layers of equal values, each with its own parameters (0) or sharing them (1). Weight and
 * bias gradients, 30 numbers a layer. */
static void shared_layers(int shared, float *grads, struct seen *seen) {
    static const struct param_spec specs[] = {{"a.weight", 2, {5, 5}, 0},
                                              {"a.bias", 1, {5}, 0},
                                              {"b.weight", 2, {5, 5}, 0},
                                              {"b.bias", 1, {5}, 0}};
    struct net net;
    net_open(&net, DEVICE_HOST, 0, 0, &data);
    param_set_free(&net.params);
    MUST(param_set_init(&net.params, net.device, specs, 4));
    for (int i = 0; i < 4; i++)
        MUST(param_write_value(&net.params, i, data.weights + (i % 2 ? 25 : 0)));
    net_load(&net, &data, 0, 1);
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
    float alone[60], once[60];
    double want[30];
    net_data_make(&data, 4, (int[]){9, 17, 4, 11}, 12);
    shared_layers(0, alone, &seen);
    cr_assert_eq(seen.fired, 4);
    shared_layers(1, once, &seen);
    cr_assert_eq(seen.fired, 2);
    for (int i = 0; i < 30; i++)
        want[i] = (double)alone[i] + alone[30 + i];
    cr_assert_lt(distance(once, want, 30), 1e-6);
}
