/* duet_data_parallel: arguments that are refused, calls that cannot work on a tape, and a thread
 * that does not return. */
#include "tests/dp/program_world.h"

/* Replica 1 is late, and looks at its samples when nobody waits for it any more. */
struct late {
    atomic_int done;
    float seen[2 * K];
};

static duet_var *late_forward(duet_tape *t, duet_var *x, void *context) {
    struct late *late = context;
    duet_tensor *value;
    if (duet_var_value(&value, t, x)) return NULL;
    int is_late = strstr(duet_device_name(duet_tensor_device(value)), "(1)") != NULL;
    duet_tensor_free(value);
    if (!is_late) return duet_linear(t, x, W1, B1);
    usleep(400000);
    if (duet_var_value(&value, t, x)) return NULL;
    duet_tensor_read(value, late->seen);
    duet_tensor_free(value);
    atomic_store(&late->done, 1);
    return duet_linear(t, x, W1, B1);
}

Test(api_data_parallel_misuse, what_a_lost_thread_uses_is_left_alone, .timeout = 60) {
    const struct duet_data_parallel_options soon = {.timeout_s = 0.1};
    struct world w;
    struct late late = {0};
    duet_tensor *out;
    open_devices(&w, "cpu", 2);
    MUST(duet_data_parallel_create(&w.dp, w.devices, 2, w.params, late_forward, &late, &soon));
    duet_tensor *x = samples(&w, 0, 4), *other = samples(&w, 8, 4), *more = samples(&w, 0, SAMPLES);
    MUST_FAIL(duet_data_parallel_forward(w.dp, &x, 1, &out, 1, DUET_TRAIN), DUET_TIMEOUT,
              "Caught TimeoutError in replica 1 on device 1. ");
    MUST_FAIL(duet_data_parallel_forward(w.dp, &other, 1, &out, 1, DUET_TRAIN), DUET_TIMEOUT,
              "replica 1");
    MUST_FAIL(duet_data_parallel_forward(w.dp, &more, 1, &out, 1, DUET_TRAIN), DUET_TIMEOUT,
              "replica 1");
    double end = duet_time() + 30;
    while (!atomic_load(&late.done) && duet_time() < end)
        usleep(1000);
    cr_assert(atomic_load(&late.done));
    cr_assert_arr_eq(late.seen, w.x + 2 * K, sizeof late.seen); /* rows 2 and 3 of x */
    duet_tensor_free(x), duet_tensor_free(other), duet_tensor_free(more);
    close_world(&w); /* the thread has ended, so everything can be freed */
}

static duet_var *begun(struct world *w, duet_device *device, duet_tape **tape, duet_tensor *x) {
    MUST(duet_tape_create(tape, device));
    MUST(duet_tape_begin(*tape, device == w->devices[0] ? w->params : NULL, 4, DUET_TRAIN));
    return duet_data_parallel_call(*tape, w->dp, x);
}

/* Wrong uses of a call on a tape. */
Test(api_data_parallel_misuse, misuse_on_a_tape_is_refused, .timeout = 60) {
    struct world w;
    duet_tape *near, *far;
    open_world(&w, "cpu", 2, 0);
    duet_tensor *x = samples(&w, 0, 4);
    cr_assert_null(duet_data_parallel_call(NULL, w.dp, x));
    cr_assert_null(begun(&w, w.devices[1], &far, x));
    MUST_FAIL(duet_tape_error(far), DUET_USAGE, "make a tape on the output device");
    duet_var *y = begun(&w, w.devices[0], &near, x);
    duet_var *other = duet_data_parallel_call(near, w.dp, x);
    MUST_FAIL(duet_backward(near, duet_sum(near, duet_add(near, y, other), NULL, 0, 0), NULL),
              DUET_USAGE, "another forward ran between");
    MUST(duet_tape_begin(near, w.params, 4, DUET_TRAIN));
    y = duet_data_parallel_call(near, w.dp, x);
    other = duet_linear(near, duet_input(near, x), W1, B1);
    other = duet_add(near, duet_sum(near, y, NULL, 0, 0), duet_sum(near, other, NULL, 0, 0));
    MUST_FAIL(duet_backward(near, other, NULL), DUET_USAGE, "uses parameter 0 (fc1.weight)");
    MUST(duet_tape_begin(near, w.params, 4, DUET_EVALUATE));
    cr_assert_not_null(duet_data_parallel_call(near, w.dp, x));
    duet_tensor_free(x);
    duet_tape_free(near);
    duet_tape_free(far);
    close_world(&w);
}

static int create(struct world *w, duet_device *const *devices, duet_params *params) {
    duet_data_parallel *dp;
    int code = duet_data_parallel_create(&dp, devices, 2, params, forward, &w->wrong, NULL);
    cr_assert(code ? !dp : !!dp);
    duet_data_parallel_free(dp);
    return code;
}

Test(api_data_parallel_misuse, wrong_arguments_are_refused, .timeout = 60) {
    struct world w;
    open_devices(&w, "cpu", 2);
    duet_device *turned[2] = {w.devices[1], w.devices[0]}, *twice[2] = {w.devices[0], w.devices[0]};
    MUST_FAIL(create(&w, turned, w.params), DUET_USAGE,
              "module must have its parameters and buffers on device cpu(1) (device_ids[0]) but "
              "found one of them on device: cpu(0)");
    MUST_FAIL(create(&w, twice, w.params), DUET_USAGE, "are the same");
    MUST(duet_data_parallel_create(&w.dp, w.devices, 2, w.params, forward, &w.wrong, NULL));
    duet_tensor *x = samples(&w, 0, 4), *y = labels(&w, 0, 0, 3), *far, *out, *none_left;
    MUST(duet_tensor_to(&far, x, w.devices[1]));
    MUST_FAIL(duet_data_parallel_forward(w.dp, &far, 1, &out, 1, DUET_TRAIN), DUET_USAGE, "cpu(1)");
    MUST_FAIL(duet_data_parallel_forward(w.dp, &y, 1, &out, 1, DUET_TRAIN), DUET_USAGE,
              "must be float");
    MUST(duet_data_parallel_forward(w.dp, &x, 1, &out, 1, DUET_EVALUATE));
    MUST_FAIL(duet_data_parallel_backward(w.dp, &out, 1), DUET_USAGE, "no forward in DUET_TRAIN");
    duet_tensor_free(out);
    MUST(duet_data_parallel_forward(w.dp, &x, 1, &out, 1, DUET_TRAIN));
    MUST_FAIL(duet_data_parallel_backward(w.dp, &far, 1), DUET_USAGE, "cpu(1)");
    MUST_FAIL(duet_data_parallel_backward(w.dp, &x, 1), DUET_USAGE, "must agree");
    MUST(duet_data_parallel_backward(w.dp, &out, 1));
    MUST_FAIL(duet_data_parallel_backward(w.dp, &out, 1), DUET_USAGE, "no forward in DUET_TRAIN");
    duet_tensor_free(out);
    none_left = samples(&w, 0, 0); /* no samples are a batch, too */
    MUST(duet_data_parallel_forward(w.dp, &none_left, 1, &out, 1, DUET_TRAIN));
    cr_assert_eq(duet_tensor_count(out), 0);
    MUST(duet_data_parallel_backward(w.dp, &out, 1));
    static float got[PARAMS][LARGEST];
    read_grads(w.params, got);
    cr_assert_eq(got[W1][0], 0.0f);
    duet_tensor_free(out);
    duet_tensor_free(none_left);
    duet_tensor_free(x);
    duet_tensor_free(y);
    duet_tensor_free(far);
    close_world(&w);
}
