/* Tests a model in parts on several devices: duet_var_to and its backward, the ring of tapes, and
 * the example, which compares the bits of a split model with those of a whole one. */
#include <unistd.h>

#include "tests/duet/shared.h"
#include "tests/examples/shell.h"

#define EXAMPLE BUILD_DIR "/examples/model_parallel"

enum { N = 3, K = 4 };

struct part {
    duet_device *device;
    duet_params *params;
    duet_tape *tape;
};

static void draw_weights(float weights[2][K * K]) {
    duet_rng *rng;
    MUST(duet_rng_create(&rng, 3));
    for (int d = 0; d < 2; d++)
        duet_rng_normal(rng, weights[d], K * K, 0, 1);
    duet_rng_free(rng);
}

static void open_parts(struct part parts[2], const char *kind) {
    float weights[2][K * K];
    draw_weights(weights);
    for (int d = 0; d < 2; d++) {
        struct duet_param w = {"w", 2, {K, K}, weights[d]};
        cr_assert_eq(duet_device_open(&parts[d].device, kind, d, api_memory(kind)), 0, "%s",
                     duet_error());
        cr_assert_eq(duet_params_create(&parts[d].params, parts[d].device, &w, 1), 0);
        cr_assert_eq(duet_tape_create(&parts[d].tape, parts[d].device), 0);
    }
}

static void close_parts(struct part parts[2]) {
    for (int d = 0; d < 2; d++) {
        duet_tape_free(parts[d].tape), duet_params_free(parts[d].params);
        duet_devices_close(&parts[d].device, 1);
    }
}

static void begin(struct part parts[2], enum duet_pass pass) {
    for (int d = 0; d < 1 + (parts[0].tape != parts[1].tape); d++)
        cr_assert_eq(duet_tape_begin(parts[d].tape, parts[d].params, N, pass), 0, "%s",
                     duet_error());
}

static duet_var *move(duet_tape *to, duet_tape *from, duet_var *x) {
    return to == from ? x : duet_var_to(to, from, x);
}

/* Back and forth: device 0 computes h, device 1 a and device 0 b from it, and device 1 their sum.
 * Part 1 has parameter `second`. As one model the parts are one, and nothing moves. */
static void gradients(struct part parts[2], int second, float grads[3][K * K]) {
    static const float x[N * K] = {1, -2, 3, .5f, 2, 1, -1, 0, -.25f, 4, 1, 1};
    static const int32_t labels[N] = {0, 3, 1};
    duet_tensor *X, *y, *dx;
    duet_tape *t0 = parts[0].tape, *t1 = parts[1].tape;
    MUST(duet_tensor_create(&X, parts[0].device, DUET_F32, 2, (int[]){N, K}, x));
    MUST(duet_tensor_create(&y, parts[1].device, DUET_I32, 1, (int[]){N}, labels));
    for (int step = 0; step < 2; step++) { /* the second has the memory of the first */
        begin(parts, DUET_TRAIN);
        duet_var *in = duet_leaf(t0, X), *h = duet_relu(t0, duet_linear(t0, in, 0, DUET_NO_BIAS));
        duet_var *a = duet_tanh(t1, duet_linear(t1, move(t1, t0, h), second, DUET_NO_BIAS));
        duet_var *b = duet_sigmoid(t0, duet_multiply(t0, h, move(t0, t1, a)));
        duet_var *sum = duet_add(t1, a, move(t1, t0, b));
        duet_var *loss = duet_cross_entropy(t1, sum, y, DUET_MEAN, NULL);
        MUST(duet_backward(t1, loss, NULL));
        MUST(duet_var_grad(&dx, t0, in));
        MUST(duet_tensor_read(dx, grads[2]));
        duet_tensor_free(dx);
        MUST(duet_tensor_read(duet_params_grad(parts[0].params, 0), grads[0]));
        MUST(duet_tensor_read(duet_params_grad(parts[1].params, second), grads[1]));
    }
    duet_tensor_free(X), duet_tensor_free(y);
}

/* The whole model: one tape and one set of both parameters. */
static void whole_gradients(float grads[3][K * K]) {
    float weights[2][K * K];
    struct part parts[2];
    draw_weights(weights);
    const struct duet_param both[2] = {{"w0", 2, {K, K}, weights[0]},
                                       {"w1", 2, {K, K}, weights[1]}};
    MUST(duet_device_open(&parts[0].device, "cpu", 0, api_memory("cpu")));
    MUST(duet_params_create(&parts[0].params, parts[0].device, both, 2));
    MUST(duet_tape_create(&parts[0].tape, parts[0].device));
    parts[1] = parts[0];
    gradients(parts, 1, grads);
    duet_tape_free(parts[0].tape), duet_params_free(parts[0].params);
    duet_devices_close(&parts[0].device, 1);
}

Test(model_parallel, values_go_to_and_fro_with_the_bits_of_one_device, .timeout = 60) {
    static const char *const kinds[] = {"cpu", "cpu-async", "cpu-late"};
    static float whole[3][K * K], split[3][K * K];
    struct part parts[2];
    whole_gradients(whole);
    cr_assert(whole[0][0] != 0 && whole[1][0] != 0 && whole[2][0] != 0);
    for (int i = 0; i < 3; i++) {
        open_parts(parts, kinds[i]);
        gradients(parts, 0, split);
        cr_expect_arr_eq(split, whole, sizeof whole, "%s", kinds[i]);
        close_parts(parts);
    }
}

/* A ddp first finds the parameters that the loss uses. A refused backward must
 * leave that, the gradients of before and the pass as they are. */
Test(model_parallel, a_freed_tape_is_told_before_anything_is_walked, .timeout = 60) {
    const struct duet_ddp_options options = {.find_unused_parameters = 1};
    float weights[2][K * K], x[N * K] = {1, 2, 3, 4}, before[K * K], after[K * K];
    char name[64];
    struct part parts[2];
    duet_tensor *X;
    duet_group *group;
    duet_params *params;
    duet_ddp *ddp;
    open_parts(parts, "cpu");
    draw_weights(weights);
    const struct duet_param both[2] = {{"w0", 2, {K, K}, weights[0]},
                                       {"w1", 2, {K, K}, weights[1]}};
    duet_tape *t0 = parts[0].tape, *t1 = parts[1].tape;
    MUST(duet_params_create(&params, parts[1].device, both, 2));
    snprintf(name, sizeof name, "freed-tape-%d", (int)getpid());
    MUST(duet_group_join(&group, name, 0, 1, 60));
    MUST(duet_ddp_create(&ddp, group, params, &options));
    MUST(duet_tensor_create(&X, parts[1].device, DUET_F32, 2, (int[]){N, K}, x));
    MUST(duet_tape_begin(t1, params, N, DUET_TRAIN));
    duet_var *h = duet_linear(t1, duet_input(t1, X), 1, DUET_NO_BIAS);
    MUST(duet_backward(t1, duet_mean(t1, h, NULL, 0, 0), NULL));
    MUST(duet_tensor_read(duet_params_grad(params, 1), before));
    cr_assert_neq(before[0], 0);
    duet_tensor_free(X);
    MUST(duet_tensor_create(&X, parts[0].device, DUET_F32, 2, (int[]){N, K}, x));
    MUST(duet_tape_begin(t0, parts[0].params, N, DUET_TRAIN));
    MUST(duet_tape_begin(t1, params, N, DUET_TRAIN));
    h = duet_var_to(t1, t0, duet_linear(t0, duet_input(t0, X), 0, DUET_NO_BIAS));
    duet_var *loss = duet_mean(t1, duet_linear(t1, h, 0, DUET_NO_BIAS), NULL, 0, 0);
    MUST(duet_tape_error(t1));
    duet_tape_free(t0);
    for (int again = 0; again < 2; again++)
        MUST_FAIL(duet_backward(t1, loss, NULL), DUET_USAGE, "begin the passes of all tapes first");
    MUST(duet_tensor_read(duet_params_grad(params, 1), after));
    cr_expect_arr_eq(after, before, sizeof before);
    MUST(duet_tape_create(&parts[0].tape, parts[0].device)); /* for close_parts */
    duet_tensor_free(X);
    duet_ddp_free(ddp), duet_params_free(params), duet_group_destroy(&group);
    close_parts(parts);
}

/* Each of these mistakes gets an error that says what to do. */
Test(model_parallel, mistakes_are_told, .timeout = 60) {
    struct part parts[2];
    float x[N * K] = {0};
    duet_tensor *X;
    open_parts(parts, "cpu");
    duet_tape *t0 = parts[0].tape, *t1 = parts[1].tape;
    cr_assert_eq(duet_tensor_create(&X, parts[0].device, DUET_F32, 2, (int[]){N, K}, x), 0);
    begin(parts, DUET_TRAIN); /* a tape of the ring begins again before backward */
    duet_var *h = duet_var_to(t1, t0, duet_linear(t0, duet_input(t0, X), 0, DUET_NO_BIAS));
    cr_assert_eq(duet_tape_begin(t0, parts[0].params, N, DUET_TRAIN), 0);
    cr_expect_eq(duet_backward(t1, duet_mean(t1, h, NULL, 0, 0), NULL), DUET_USAGE);
    cr_expect_not_null(strstr(duet_error(), "begin the passes of all tapes first"));
    begin(parts, DUET_TRAIN);
    cr_expect_null(duet_var_to(t1, NULL, duet_input(t0, X)));
    cr_expect_eq(duet_tape_error(t1), DUET_USAGE);
    begin(parts, DUET_TRAIN); /* one trains, the other does not */
    cr_assert_eq(duet_tape_begin(t1, parts[1].params, N, DUET_EVALUATE), 0);
    cr_expect_null(duet_var_to(t1, t0, duet_input(t0, X)));
    cr_expect_not_null(strstr(duet_error(), "begin both alike"), "%s", duet_error());
    begin(parts, DUET_TRAIN); /* an error of one tape reaches the next */
    cr_expect_null(duet_var_to(t1, t0, duet_linear(t0, duet_input(t0, X), 7, DUET_NO_BIAS)));
    cr_expect_eq(duet_backward(t1, NULL, NULL), DUET_USAGE);
    cr_expect_not_null(strstr(duet_error(), "parameter 7"), "%s", duet_error());
    begin(parts, DUET_EVALUATE); /* and an evaluation works */
    h = duet_var_to(t1, t0, duet_linear(t0, duet_input(t0, X), 0, DUET_NO_BIAS));
    cr_expect_not_null(h, "%s", duet_error());
    duet_tensor_free(X);
    close_parts(parts);
}

/* The example ends with status 3 if the bits differ. */
Test(model_parallel, a_split_model_has_the_bits_of_the_whole_one, .timeout = 120,
     .init = scratch_make, .fini = scratch_remove) {
    RUN(0, EXAMPLE " 4");
    cr_assert_not_null(strstr(output(), "losses and weights: the same bits"), "%s", output());
    RUN(0, BUILD_DIR "/duet run --nproc-per-node 2 " EXAMPLE " 2");
    cr_assert_not_null(strstr(output(), "losses and weights: the same bits"), "%s", output());
    RUN(2, EXAMPLE " 3");
}

/* Device 0 goes back through a micro-batch as soon as its gradient has come, while device 1 has the
 * next: its stream has the moves and the work in turn, and not all moves first. */
Test(model_parallel, backward_of_micro_batches_overlaps, .timeout = 120, .init = scratch_make,
     .fini = scratch_remove) {
    RUN(0, EXAMPLE " 4 cpu-async {}/parts.json");
    RUN(0, BUILD_DIR "/duet report {}/parts.json | grep -c '^device . *|.*| busy\\|^the bubble: '");
    cr_assert_str_eq(output(), "3\n");
    RUN(0, "grep -o '\"pid\": 0, \"tid\": 0, \"name\": \"[a-z0-9 ]*\"' {}/parts.json | "
           "grep -o 'copy peer\\|backward weight' | uniq | head -8 | tr '\\n' ,");
    cr_assert_str_eq(output(), "copy peer,backward weight,copy peer,backward weight,copy peer,"
                               "backward weight,copy peer,backward weight,");
}

Test(model_parallel, alexnet_has_the_same_bits_on_one_device_and_on_two, .timeout = 120,
     .init = scratch_make, .fini = scratch_remove) {
    RUN(0, BUILD_DIR "/examples/alexnet 16");
    cr_assert_not_null(strstr(output(), "one device and two: the same bits"), "%s", output());
    RUN(2, BUILD_DIR "/examples/alexnet 3");
}

Test(model_parallel, layers_are_cut_inside, .timeout = 60, .init = scratch_make,
     .fini = scratch_remove) {
    RUN(0, BUILD_DIR "/examples/tensor_parallel");
    cr_assert_not_null(strstr(output(), "columns, put together: the same bits\n"
                                        "sums in parts, and gradients: within 1e-5"),
                       "%s", output());
}

/* ---- over ranks ---- */

/* all_gather: y has the columns of both ranks, and x gets this rank's columns of the gradient.
 * all_reduce passes the gradient on; to_group adds up both ranks'. */
static int gather_columns(int rank, void *context) {
    const float mine[4] = {(float)rank, 1, 2, (float)(3 + rank)},
                want[8] = {0, 1, 1, 1, 2, 3, 2, 4};
    float got[8], grad[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    duet_group *group;
    duet_device *device;
    duet_tape *t;
    duet_tensor *x, *dy, *value;
    (void)context;
    MUST(duet_group_init(&group, 30));
    MUST(duet_device_open(&device, "cpu-late", rank, 1 << 24));
    MUST(duet_tape_create(&t, device));
    MUST(duet_tensor_create(&x, device, DUET_F32, 2, (int[]){2, 2}, mine));
    for (int call = 0; call < 3; call++) {
        MUST(duet_tape_begin(t, NULL, 2, DUET_TRAIN));
        duet_var *leaf = duet_leaf(t, x);
        duet_var *y = call == 0   ? duet_var_all_gather(t, group, leaf)
                      : call == 1 ? duet_var_all_reduce(t, group, leaf)
                                  : duet_var_to_group(t, group, leaf);
        MUST(duet_tensor_create(&dy, device, DUET_F32, 2, (int[]){2, call ? 2 : 4}, grad));
        MUST(duet_backward(t, y, dy));
        MUST(duet_var_value(&value, t, y));
        MUST(duet_tensor_read(value, got));
        duet_tensor_free(value);
        if (call == 0) cr_assert_arr_eq(got, want, sizeof want);
        if (call == 1) cr_assert(got[0] == 1 && got[1] == 2 && got[2] == 4 && got[3] == 7);
        if (call == 2) cr_assert_arr_eq(got, mine, sizeof mine);
        MUST(duet_var_grad(&value, t, leaf));
        MUST(duet_tensor_read(value, got));
        duet_tensor_free(value), duet_tensor_free(dy);
        for (int i = 0; i < 4; i++)
            cr_assert_eq(got[i],
                         call == 0 ? grad[i / 2 * 4 + rank * 2 + i % 2] : grad[i] * (float)call);
    }
    MUST(duet_tape_begin(t, NULL, 2, DUET_TRAIN));
    cr_assert_null(duet_var_all_reduce(t, NULL, duet_leaf(t, x)));
    MUST_FAIL(duet_tape_error(t), DUET_USAGE, "var all_reduce: no group was given");
    duet_tensor_free(x), duet_tape_free(t), duet_devices_close(&device, 1);
    duet_group_destroy(&group);
    return 0;
}

Test(model_parallel, calls_of_a_group_have_a_backward, .timeout = 60) {
    MUST(duet_spawn(2, gather_columns, NULL));
}

Test(model_parallel, layers_are_cut_over_ranks, .timeout = 60, .init = scratch_make,
     .fini = scratch_remove) {
    for (int n = 2; n <= 4; n += 2) {
        char line[200];
        snprintf(line, sizeof line,
                 BUILD_DIR "/duet run --nproc-per-node %d " BUILD_DIR
                           "/examples/tensor_parallel_ranks",
                 n);
        RUN(0, line);
        cr_assert_not_null(strstr(output(), "columns, put together: the same bits\n"
                                            "losses, and the gradient of x: within 1e-5"),
                           "%s", output());
    }
}
