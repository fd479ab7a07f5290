/* Tests when memory of a pass returns to the arena, and that no op reads it later: the devices
 * check operands, so returned memory is NaN. */
#include <math.h>

#include "tests/core/nn/step.h"

static const enum device_kind kinds[] = {DEVICE_HOST, DEVICE_HOST_LATE};

/* Another value may use its memory. */
static int is_there(const struct net *net, const duet_var *x) {
    return !x->gone && step_arena_holders(&net->tape->arena, x->value.data);
}

static void read_value(struct net *net, const duet_var *x, float *to, size_t bytes) {
    MUST(copy_to_host(net->tape->stream, to, x->value.data, bytes));
    MUST(stream_sync(net->tape->stream));
}

static void begin_once(struct net *net, int training) {
    struct tape_step step = {.segments = &net->segments,
                             .params = &net->params,
                             .step = net->step,
                             .training = training,
                             .once = 1};
    MUST(tape_begin(net->tape, &step));
}

/* The fill is in the stream where the memory was returned, not before. */
Test(lifetime, what_went_back_is_nan, .timeout = 30) {
    for (int k = 0; k < 2; k++) {
        struct net net;
        float before[64], after[64];
        open_net(&net, kinds[k], 0);
        for (int step = 0; step < 2; step++) {
            begin(&net, 1);
            struct step_arena *a = &net.tape->arena;
            const int count = 64;
            struct tensor x = tape_tensor(net.tape, DTYPE_F32, LAYOUT_PLAIN, 1, &count);
            step_arena_hold(a, x.data);
            MUST(tensor_zero(net.device, &x));
            MUST(copy_to_host(net.tape->stream, before, x.data, sizeof before));
            MUST(step_arena_drop(a, x.data));
            MUST(copy_to_host(net.tape->stream, after, x.data, sizeof after));
            MUST(stream_sync(net.tape->stream));
            for (int i = 0; i < count; i++)
                cr_assert(before[i] == 0 && isnan(after[i]), "%g, %g", before[i], after[i]);
        }
        net_close(&net);
    }
}

/* ---- backward ---- */

/* After backward the two tensors of the loss and the gradient of the leaf remain. */
static void check_what_is_left(const struct net *net) {
    const duet_tape *t = net->tape;
    for (int i = 0; i < t->var_count; i++)
        cr_assert_eq(t->vars[i]->grad.data != NULL, t->vars[i] == net->input, "gradient of var %d",
                     i);
    if (!net->once) return;
    cr_assert_eq(t->arena.count, 3, "%d pieces are left", t->arena.count);
    cr_assert(is_there(net, net->loss) &&
              step_arena_holders(&t->arena, net->loss->hits.data) == 1 &&
              step_arena_holders(&t->arena, net->input->grad.data) == 1);
}

/* The same gradients whether values are freed or not; without `once` a second backward finds all
 * that it reads. */
Test(lifetime, nothing_is_read_behind_its_end, .timeout = 60) {
    static float want[41 * NET_IN], got[41 * NET_IN];
    for (int k = 0; k < 2; k++)
        for (int math = 0; math < 2; math++) {
            struct net net;
            float grads[2][NET_WEIGHTS], again[NET_WEIGHTS], scores[2][NET_CLASSES];
            size_t extent[2];
            for (int once = 0; once < 2; once++) {
                open_net(&net, kinds[k], math);
                net.once = once;
                for (int step = 0; step < 3; step++) {
                    MUST(net_run_forward(&net, &plain_pass));
                    read_value(&net, net.scores, scores[0], sizeof *scores);
                    MUST(net_run_backward(&net, &plain_pass));
                    check_what_is_left(&net);
                }
                net_read_grads(&net, grads[once]);
                MUST(copy_to_host(net.tape->stream, once ? got : want, net.input->grad.data,
                                  tensor_bytes(&net.input->grad)));
                read_value(&net, net.scores, scores[1], sizeof *scores);
                extent[once] = net.tape->arena.extent;
                if (!once) {
                    cr_assert_arr_eq(scores[0], scores[1], sizeof *scores);
                    MUST(net_run_backward(&net, &plain_pass));
                    net_read_grads(&net, again);
                    cr_assert_arr_eq(again, grads[0], sizeof again);
                } else
                    cr_assert(isnan(scores[1][0]), "the scores are still there");
                net_close(&net);
            }
            cr_assert_arr_eq(grads[0], grads[1], sizeof grads[0]);
            cr_assert_arr_eq(want, got, sizeof want);
            cr_assert_leq(extent[1], extent[0]);
        }
}

/* A first step needs no more than the later ones. */
Test(lifetime, a_first_step_frees_as_the_others_do, .timeout = 30) {
    struct net net;
    uint64_t peak[2];
    open_net(&net, DEVICE_HOST, 0);
    net.once = 1;
    for (int step = 0; step < 2; step++) {
        net_run(&net, &plain_pass);
        peak[step] = device_ledger(net.device).peak[MEM_ACTIVATIONS];
    }
    MUST(net_run_forward(&net, &plain_pass));
    cr_assert_eq(device_ledger(net.device).now[MEM_ACTIVATIONS], net.tape->arena.extent);
    cr_assert(peak[0] <= net.tape->arena.extent && peak[1] == net.tape->arena.extent);
    net_close(&net);
}

/* ---- forward ---- */

/* Values that no backward reads are freed at once, the others stay. A value lives as long as its
 * views. */
Test(lifetime, a_forgotten_value_goes_unless_it_is_read_again, .timeout = 30) {
    for (int training = 0; training < 2; training++) {
        struct net net;
        open_net(&net, DEVICE_HOST, 0);
        begin_once(&net, training);
        duet_tape *t = net.tape;
        duet_var *x = leaf(&net, 10, 1), *a = duet_multiply_number(t, x, 2), *b = duet_exp(t, a),
                 *c = duet_add_number(t, b, 1), *view = duet_reshape(t, c, 3, (int[]){-1, 2, 5}),
                 *d = duet_tanh(t, view);
        tape_forget(t, a);
        tape_forget(t, b);
        tape_forget(t, c);
        cr_assert_eq(is_there(&net, a), training, "exp reads its operand");
        cr_assert(!is_there(&net, b), "neither exp nor add_number reads it");
        cr_assert(is_there(&net, view));
        tape_forget_since(t, view->index, d);
        cr_assert(!is_there(&net, view), "tanh reads its result");
        cr_assert(is_there(&net, d));
        tape_forget(t, d);
        cr_assert_eq(is_there(&net, d), training);
        MUST(tape_error(t));
        net_close(&net);
    }
}

/* An op that needs a contiguous operand gets a copy of a view; the memory behind the view is then
 * free, unless the view itself is read in backward. */
Test(lifetime, a_view_that_was_copied_holds_its_memory_no_longer, .timeout = 30) {
    for (int read = 0; read < 2; read++) {
        struct net net;
        open_net(&net, DEVICE_HOST, 0);
        begin_once(&net, 1);
        duet_tape *t = net.tape;
        duet_var *x = leaf(&net, 10, 1), *a = duet_multiply_number(t, x, 2),
                 *rows = duet_reshape(t, a, 3, (int[]){-1, 2, 5}),
                 *transposed = duet_transpose(t, rows, 1, 2);
        duet_var *product = read ? duet_matmul(t, transposed, rows) : NULL,
                 *y = duet_multiply(t, transposed, transposed);
        MUST(tape_error(t));
        cr_assert(y && !read == !product && transposed->value.data != transposed->view.data);
        tape_forget(t, a);
        tape_forget(t, rows);
        cr_assert(step_arena_holders(&t->arena, transposed->view.data), "another view may come");
        tape_forget(t, transposed);
        cr_assert_eq(step_arena_holders(&t->arena, transposed->view.data) > 0, read,
                     "matmul's backward reads both of its operands");
        cr_assert(is_there(&net, transposed), "multiply's reads it");
        net_close(&net);
    }
}

/* Copies of a factor are made again in backward. */
Test(lifetime, a_small_factor_is_saved_as_it_is, .timeout = 30) {
    for (int training = 0; training < 2; training++) {
        struct net net;
        open_net(&net, DEVICE_HOST, 0);
        begin_once(&net, training);
        duet_tape *t = net.tape;
        duet_var *x = duet_tanh(t, leaf(&net, 10, 1)),
                 *large = duet_reshape(t, x, 3, (int[]){-1, 2, 5}),
                 *small = duet_sum(t, large, (int[]){2}, 1, 1);
        int pieces = t->arena.count, first = tape_var_count(t);
        duet_var *y = duet_multiply(t, large, small);
        cr_assert_eq(t->arena.count, pieces + 2, "the copies, and the product");
        tape_forget_since(t, first, y);
        cr_assert_eq(t->arena.count, pieces + 1);
        tape_forget(t, small);
        cr_assert_eq(is_there(&net, small), training);
        MUST(tape_error(t));
        net_close(&net);
    }
}

/* A padded or expanded operand is made again if it was freed, and only then: without `once` it
 * still exists. */
Test(lifetime, what_is_still_there_is_not_made_again, .timeout = 30) {
    for (int pooled = 0; pooled < 2; pooled++) {
        int made[2];
        for (int once = 0; once < 2; once++) {
            struct net net;
            open_net(&net, DEVICE_HOST, 0);
            if (once)
                begin_once(&net, 1);
            else
                begin(&net, 1);
            duet_tape *t = net.tape;
            struct tensor pixels =
                tensor_plain(net.x, DTYPE_F32, 4, (int[4]){net.segments.n, 2, 9, 9});
            duet_var *x = duet_tanh(t, tape_leaf(t, &pixels, 1)),
                     *small = duet_mean(t, x, (int[]){1}, 1, 1);
            int first = tape_var_count(t);
            duet_var *y = pooled ? duet_max_pool2d(t, x, 3, &(struct duet_pool){.padding = {1, 1}})
                                 : duet_multiply(t, x, small);
            tape_forget_since(t, first, y);
            duet_var *loss = loss_of(&net, duet_flatten(t, y));
            const int before = t->arena.number;
            MUST(tape_backward(t, loss, NULL));
            made[once] = t->arena.number - before;
            net_close(&net);
        }
        cr_assert_eq(made[1], made[0] + 1, "%d pieces in backward, %d with `once`", made[0],
                     made[1]);
    }
}

/* The operand of a deferred relu stays until the relu is computed, or nobody needs it. */
Test(lifetime, a_relu_that_was_put_off_has_its_operand, .timeout = 30) {
    for (int training = 0; training < 2; training++)
        for (int pooled = 0; pooled < 2; pooled++) {
            struct net net;
            open_net(&net, DEVICE_HOST, 0);
            begin_once(&net, training);
            duet_tape *t = net.tape;
            struct tensor pixels =
                tensor_plain(net.x, DTYPE_F32, 4, (int[4]){net.segments.n, 2, 9, 9});
            duet_var *x = duet_add_number(t, tape_leaf(t, &pixels, 1), 1), *y = duet_relu(t, x);
            tape_forget(t, x);
            cr_assert(is_there(&net, x));
            duet_var *z = pooled ? duet_max_pool2d(t, y, 2, NULL) : duet_add_number(t, y, 1);
            cr_assert_eq(y->value.data != NULL, !pooled);
            tape_forget(t, y);
            cr_assert_eq(is_there(&net, x), training && pooled, "the pool's backward reads it");
            cr_assert_eq(is_there(&net, y), training && !pooled, "the relu's backward reads it");
            cr_assert(z && !tape_error(t));
            net_close(&net);
        }
}
