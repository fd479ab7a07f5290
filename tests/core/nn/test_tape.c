/* What the tape guarantees besides right numbers: hooks, a given gradient for the root, evaluation,
 * and memory that does not change from step to step. Parameters and vars used never or twice are in
 * test_uses.c, failures in test_errors.c. */
#include "tests/core/device/full.h"
#include "tests/core/nn/step.h"

/* ---- hooks ---- */

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

/* ---- a pass ---- */

/* The gradient given for the root is the caller's: elementwise layers write theirs elsewhere,
 * also after a view of it. */
Test(tape, a_given_gradient_is_not_written_to, .timeout = 30) {
    for (int math = 0; math < 2; math++)
        for (int view = 0; view < 2; view++) {
            struct net net;
            static float given[41 * 162], after[41 * 162], grad[41 * 162];
            open_net(&net, DEVICE_HOST, math);
            begin(&net, 1);
            struct tensor x = tensor_plain(net.x, DTYPE_F32, 4, (int[4]){net.segments.n, 2, 9, 9});
            duet_var *leaf = tape_leaf(net.tape, &x, 1),
                     *root = duet_dropout(net.tape, duet_relu(net.tape, leaf), 0.5);
            if (view) root = duet_flatten(net.tape, root);
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

static void read_dropped(struct net *net, duet_var *y, float *to) {
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
    duet_var *x = leaf(&net, 10, 0);
    read_dropped(&net, duet_dropout(net.tape, x, 0.5), first);
    read_dropped(&net, duet_dropout(net.tape, x, 0.5), second);
    cr_assert_arr_neq(first, second, sizeof first);
    begin(&net, 1);
    x = leaf(&net, 10, 0);
    cr_assert_eq(duet_dropout(net.tape, x, 0), x);
    read_dropped(&net, duet_dropout(net.tape, x, 0.5), again);
    cr_assert_arr_eq(again, second, sizeof second);
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

/* A batch's gradient is the same whatever other batch ran before on this tape, and however
 * often. */
Test(tape, gradients_do_not_depend_on_what_ran_before, .timeout = 30) {
    for (int math = 0; math < 2; math++) {
        struct net net;
        float first[NET_WEIGHTS], again[NET_WEIGHTS];
        open_net(&net, DEVICE_HOST, math);
        net_run(&net, &plain_pass);
        net_read_grads(&net, first);
        net_load(&net, &data, 1, 2);
        net_run(&net, &(struct net_pass){1, REDUCE_SUM, 0, 0});
        net_load(&net, &data, 0, 1);
        net_run(&net, &plain_pass);
        net_read_grads(&net, again);
        cr_assert_arr_eq(first, again, sizeof first);
        net_close(&net);
    }
}

/* ---- memory ---- */

Test(tape, a_steady_step_allocates_nothing, .timeout = 60) {
    for (int math = 0; math < 2; math++) {
        struct net net;
        struct ledger after_two = {0};
        struct filling filling;
        open_net(&net, DEVICE_HOST, math);
        for (int step = 0; step < 6; step++) {
            int r = step == 4; /* a short batch: half the virtual devices */
            net_load(&net, &data, r, r + 1);
            net_run(&net, &plain_pass);
            struct ledger now = device_ledger(net.device);
            if (step == 1) {
                cr_assert_eq(net.tape->arena.outside, 0);
                cr_assert_eq(now.now[MEM_ACTIVATIONS], net.tape->arena.extent,
                             "the arena is not what a step needs");
                fill_device(net.device, &filling);
                after_two = device_ledger(net.device);
            }
            if (step < 2) continue;
            cr_assert_arr_eq(now.now, after_two.now, sizeof now.now);
            cr_assert_eq(net.tape->arena.outside, 0);
        }
        empty_device(net.device, &filling);
        net_close(&net);
    }
}

/* Freed memory is used again by anything that fits into the gap; memory in use stays. */
Test(tape, memory_that_went_back_is_used_again, .timeout = 30) {
    struct net net;
    open_net(&net, DEVICE_HOST, 0);
    for (int step = 0; step < 3; step++) {
        begin(&net, 1);
        struct step_arena *a = &net.tape->arena;
        char *first = tape_alloc(net.tape, 1);
        int number = a->number;
        char *second = tape_alloc(net.tape, 1000), *empty = tape_alloc(net.tape, 0),
             *held = tape_alloc(net.tape, 300);
        cr_assert(first && second && empty && held && empty != second);
        if (step) cr_assert(second == first + 256 && empty == second + 1024);
        step_arena_hold(a, held + 299);
        step_arena_hold(a, held);
        cr_assert_eq(step_arena_holders(a, held), 2);
        MUST(step_arena_release(a, number, a->number));
        char *small = tape_alloc(net.tape, 512), *large = tape_alloc(net.tape, 1025);
        if (step) cr_assert(small == second && large == held + 512);
        MUST(step_arena_drop(a, held));
        MUST(step_arena_drop(a, held));
        MUST(step_arena_drop(a, &net)); /* not from this arena */
        cr_assert_eq(step_arena_holders(a, held), 0);
        if (step) cr_assert(tape_alloc(net.tape, 1280) == small + 512);
        cr_assert_eq(a->extent, 256 + 1024 + 256 + 512 + 1280);
        cr_assert_eq(a->outside > 0, step == 0);
    }
    net_close(&net);
}
