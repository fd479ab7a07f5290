/* duet_data_parallel with several inputs and outputs: PyTorch's outputs and gradients, the bits of
 * the same chunks on one device, failures and misuse. With CUDA_EMULATION it also runs on GPUs. */
#include "tests/dp/facts.h"

/* Relative to 1 + |want|, float against float64: sums of at most 40 terms below 4, rounded a few
 * times; a wrong one is 1e-2. */
static const double TOLERANCE = 2.5e-6;

#define COUNT(array) (sizeof(array) / sizeof *(array))
enum { E, W, B, PARAMS, DEVICES = 4, N = 10, K = 6, CLASSES = 4, WORDS = 7, MOST = 64 };
enum { SCORES, HIDDEN, SQUARES, LOSS, OUTPUTS };
enum how { RIGHT, BAD_LAYER, NOTHING, LOSS_OF_NONE, LOSS_SOMETIMES };

static const struct duet_param shapes[PARAMS] = {{"embedding.weight", 2, {WORDS, K}, NULL},
                                                 {"fc.weight", 2, {CLASSES, K}, NULL},
                                                 {"fc.bias", 1, {CLASSES}, NULL}};

struct world {
    duet_device *devices[DEVICES];
    duet_params *params, *alone; /* equal, both on device 0 */
    duet_tape *tape;             /* of `alone` */
    duet_data_parallel *dp;
    duet_tensor *inputs[3]; /* x, words, labels */
    enum how how;           /* of replica 2 */
    int warnings;
    char warning[200];
};

static duet_tensor *tensor_of(duet_device *device, int rank, const int *shape, int a) {
    return fact_input(device, rank, shape, a, 1);
}

static void words(duet_tape *t, const struct duet_replica *r, duet_var **out, void *context) {
    const struct world *w = context;
    enum how how = r->index == 2 ? w->how : RIGHT;
    if (r->inputs != 3 || r->outputs != OUTPUTS || r->x[1] || r->x[2]) return;
    duet_var *h = duet_add(t, r->x[0],
                           duet_mean(t, duet_embedding(t, r->tensors[1], E, -1), (int[]){1}, 1, 0));
    out[SCORES] = duet_linear(t, duet_relu(t, h), how == BAD_LAYER ? E : W, B);
    out[HIDDEN] = how == NOTHING ? NULL : h;
    out[SQUARES] = duet_mean(t, duet_multiply(t, h, h), NULL, 0, 0);
    out[LOSS] = how == LOSS_SOMETIMES
                    ? out[SQUARES]
                    : duet_cross_entropy(t, out[SCORES], r->tensors[2],
                                         how == LOSS_OF_NONE ? DUET_NONE : DUET_MEAN, NULL);
}

static void keep_warning(const char *text, void *context) {
    struct world *w = context;
    w->warnings++;
    snprintf(w->warning, sizeof w->warning, "%s", text);
}

static duet_params *make_params(duet_device *device) {
    static const int seeds[PARAMS] = {7919, 6131, 5471};
    float host[MOST];
    duet_params *params;
    MUST(duet_params_create(&params, device, shapes, PARAMS));
    for (int i = 0; i < PARAMS; i++) {
        for (int k = 0; k < MOST; k++)
            host[k] = golden_value(k, seeds[i]);
        MUST(duet_tensor_write(duet_params_value(params, i), host));
    }
    return params;
}

static void open_world(struct world *w, const char *kind, int n) {
    const struct duet_data_parallel_options options = {
        .input_grad = 1, .output_device = n - 1, .warn = keep_warning, .forward_multi = words};
    int32_t index[3 * N], labels[N];
    memset(w, 0, sizeof *w);
    for (int i = 0; i < 3 * N; i++)
        index[i] = (i * 5 + 1) % WORDS;
    for (int i = 0; i < N; i++)
        labels[i] = i * 3 % CLASSES;
    MUST(duet_devices_open(w->devices, DEVICES, kind, api_memory(kind)));
    w->params = make_params(w->devices[0]);
    w->alone = make_params(w->devices[0]);
    MUST(duet_tape_create(&w->tape, w->devices[0]));
    w->inputs[0] = tensor_of(w->devices[0], 2, (int[]){N, K}, 3571);
    MUST(duet_tensor_create(&w->inputs[1], w->devices[0], DUET_I32, 2, (int[]){N, 3}, index));
    MUST(duet_tensor_create(&w->inputs[2], w->devices[0], DUET_I32, 1, (int[]){N}, labels));
    MUST(duet_data_parallel_create(&w->dp, w->devices, n, w->params, NULL, w, &options));
}

static void close_world(struct world *w) {
    duet_data_parallel_free(w->dp);
    duet_tape_free(w->tape);
    for (int i = 0; i < 3; i++)
        duet_tensor_free(w->inputs[i]);
    duet_params_free(w->params), duet_params_free(w->alone);
    duet_devices_close(w->devices, DEVICES);
}

/* ---- PyTorch's numbers ---- */

/* NAME_PART<i> of the facts. */
static void expect_numbers(const char *name, const char *part, int i, const duet_tensor *got) {
    char numbered[16];
    snprintf(numbered, sizeof numbered, "%s%d", part, i);
    expect_fact("tests/golden/data_parallel.txt", name, numbered, got, TOLERANCE);
}

static void expect_input_grad(duet_data_parallel *dp, int i, const char *name, const char *part) {
    duet_tensor *grad;
    MUST(duet_data_parallel_input_grad(dp, i, &grad));
    expect_numbers(name, part, i, grad);
    duet_tensor_free(grad);
}

/* The gradients that backward starts from. */
static void make_grads(duet_tensor **grads, duet_tensor *const *outputs, int count) {
    for (int o = 0; o < count; o++) {
        int shape[DUET_MAX_RANK];
        for (int i = 0; i < DUET_MAX_RANK; i++)
            shape[i] = duet_tensor_dim(outputs[o], i);
        grads[o] = tensor_of(duet_tensor_device(outputs[o]), duet_tensor_rank(outputs[o]), shape,
                             3571 + 2 * o);
    }
}

static void free_all(duet_tensor **tensors, int count) {
    for (int i = 0; i < count; i++)
        duet_tensor_free(tensors[i]);
}

/* Forward, and backward from the outputs from `first` on. The outputs are those of `name`, if it is
 * given. */
static void step(duet_data_parallel *dp, duet_tensor *const *inputs, int input_count, int first,
                 const char *name, int output_count) {
    duet_tensor *outputs[OUTPUTS], *grads[OUTPUTS];
    MUST(duet_data_parallel_forward(dp, inputs, input_count, outputs, output_count, DUET_TRAIN));
    make_grads(grads, outputs, output_count);
    for (int o = 0; o < output_count; o++)
        if (name) expect_numbers(name, "y", o, outputs[o]);
    for (int o = 0; o < first; o++) {
        duet_tensor_free(grads[o]);
        grads[o] = NULL;
    }
    MUST(duet_data_parallel_backward(dp, grads, output_count));
    free_all(grads, output_count), free_all(outputs, output_count);
}

Test(api_multi, outputs_and_gradients_are_pytorchs, .timeout = 60) {
    for (int kind = 0; kind < API_KINDS; kind++) {
        struct world w;
        open_world(&w, api_kinds[kind], DEVICES);
        step(w.dp, w.inputs, 3, 0, "words", OUTPUTS);
        for (int i = 0; i < PARAMS; i++)
            expect_numbers("words", "all_d", i + 1, duet_params_grad(w.params, i));
        expect_input_grad(w.dp, 0, "words", "all_d");
        step(w.dp, w.inputs, 3, LOSS, "words", OUTPUTS); /* the others have no gradient */
        for (int i = 0; i < PARAMS; i++)
            expect_numbers("words", "last_d", i + 1, duet_params_grad(w.params, i));
        expect_input_grad(w.dp, 0, "words", "last_d");
        cr_assert_eq(w.warnings, 1, "%d warnings, the last: %s", w.warnings, w.warning);
        cr_assert(strstr(w.warning, "all input tensors were scalars"), "%s", w.warning);
        close_world(&w);
    }
}

/* ---- inputs of different lengths ---- */

static void products(duet_tape *t, const struct duet_replica *r, duet_var **out, void *context) {
    (void)context;
    out[0] = duet_matmul(t, r->x[0], r->x[1]);
    out[1] = duet_sum(t, r->x[1], (int[]){0}, 1, 0);
}

/* x has 10 rows, in chunks 3 3 3 1; m has 6, in chunks 2 2 2. So row 9 of x is not used. */
Test(api_multi, inputs_of_different_lengths, .timeout = 60) {
    for (int kind = 0; kind < API_KINDS; kind++) {
        struct world w;
        duet_data_parallel *dp;
        open_world(&w, api_kinds[kind], DEVICES);
        const struct duet_data_parallel_options options = {
            .input_grad = 1, .warn = keep_warning, .forward_multi = products};
        MUST(duet_data_parallel_create(&dp, w.devices, DEVICES, w.params, NULL, &w, &options));
        duet_tensor *inputs[] = {tensor_of(w.devices[0], 2, (int[]){N, 2}, 3571),
                                 tensor_of(w.devices[0], 2, (int[]){6, 4}, 6131)};
        step(dp, inputs, 2, 0, "products", 2);
        cr_assert(strstr(w.warning, "3 to 4 chunks"), "%s", w.warning);
        expect_input_grad(dp, 0, "products", "all_d");
        expect_input_grad(dp, 1, "products", "all_d");
        step(dp, inputs, 2, 1, "products", 2);
        expect_input_grad(dp, 0, "products", "last_d"); /* x is not used: zeros */
        expect_input_grad(dp, 1, "products", "last_d");
        cr_assert_eq(w.warnings, 1);
        free_all(inputs, 2);
        duet_data_parallel_free(dp);
        close_world(&w);
    }
}

/* ---- the same bits ---- */

/* Rows [from, from + n) of all inputs, on one device, with the gradients of their outputs. */
static void chunk_alone(struct world *w, int r, int from, int n, float grads[PARAMS][MOST]) {
    duet_tensor *rows[3], *dy[OUTPUTS], *whole[OUTPUTS];
    const int one = 1, row[OUTPUTS] = {from, from, r, r};
    const int shape[OUTPUTS][2] = {{N, CLASSES}, {N, K}, {DEVICES, 1}, {DEVICES, 1}};
    const float of_loss = golden_value(r, 3571 + 2 * LOSS) / (float)n;
    float each[N];
    duet_var *out[OUTPUTS], *x[3] = {NULL};
    for (int i = 0; i < 3; i++)
        MUST(duet_tensor_rows(&rows[i], w->inputs[i], from, n));
    for (int o = 0; o < OUTPUTS; o++) {
        whole[o] = tensor_of(w->devices[0], o < SQUARES ? 2 : 1, shape[o], 3571 + 2 * o);
        MUST(duet_tensor_rows(&dy[o], whole[o], row[o], o < SQUARES ? n : one));
    }
    duet_tensor_free(dy[LOSS]);
    for (int i = 0; i < n; i++)
        each[i] = of_loss;
    MUST(duet_tensor_create(&dy[LOSS], w->devices[0], DUET_F32, 1, &n, each));
    MUST(duet_tape_begin(w->tape, w->alone, n, DUET_TRAIN));
    x[0] = duet_leaf(w->tape, rows[0]);
    const struct duet_replica replica = {0, 3, OUTPUTS, (const duet_tensor *const *)rows, x};
    words(w->tape, &replica, out, w);
    MUST(duet_backward_all(w->tape, out, (const duet_tensor *const *)dy, OUTPUTS));
    for (int i = 0; i < PARAMS; i++)
        MUST(duet_tensor_read(duet_params_grad(w->alone, i), grads[i]));
    free_all(rows, 3), free_all(dy, OUTPUTS), free_all(whole, OUTPUTS);
}

/* The gradients of the chunks are added in the fold order: of 4 devices (0 + 2) + (1 + 3). */
Test(api_multi, the_bits_are_those_of_the_chunks_on_one_device, .timeout = 60) {
    static const int from[DEVICES] = {0, 3, 6, 9}, size[DEVICES] = {3, 3, 3, 1};
    static float chunks[DEVICES][PARAMS][MOST];
    for (int kind = 0; kind < API_KINDS; kind++) {
        struct world w;
        float got[MOST];
        open_world(&w, api_kinds[kind], DEVICES);
        for (int r = 0; r < DEVICES; r++)
            chunk_alone(&w, r, from[r], size[r], chunks[r]);
        step(w.dp, w.inputs, 3, 0, NULL, OUTPUTS);
        for (int i = 0; i < PARAMS; i++) {
            duet_tensor *grad = duet_params_grad(w.params, i);
            MUST(duet_tensor_read(grad, got));
            for (size_t k = 0; k < duet_tensor_count(grad); k++) {
                float even = chunks[0][i][k] + chunks[2][i][k],
                      odd = chunks[1][i][k] + chunks[3][i][k];
                cr_assert(got[k] == even + odd, "%s[%zu]: %.9g, not %.9g", shapes[i].name, k,
                          (double)got[k], (double)(even + odd));
            }
        }
        close_world(&w);
    }
}

/* ---- failures and misuse ---- */

static int forward(struct world *w, duet_tensor **inputs, int count, int outputs) {
    duet_tensor *out[OUTPUTS];
    int code = duet_data_parallel_forward(w->dp, inputs, count, out, outputs, DUET_TRAIN);
    for (int i = 0; i < outputs && i < OUTPUTS; i++)
        cr_assert(code ? !out[i] : !!out[i]);
    if (!code) free_all(out, outputs);
    return code;
}

Test(api_multi, a_failure_names_its_replica, .timeout = 60) {
    static const struct {
        enum how how;
        const char *words;
    } ways[] = {{BAD_LAYER, "Caught RuntimeError in replica 2 on device 2. "},
                {NOTHING, "Caught RuntimeError in replica 2 on device 2. "},
                {LOSS_OF_NONE, "DUET_NONE"},
                {LOSS_SOMETIMES, "output 3 is a loss only in replica 0"}};
    struct world w;
    open_world(&w, "cpu", DEVICES);
    for (size_t i = 0; i < COUNT(ways); i++) {
        w.how = ways[i].how;
        cr_assert_neq(forward(&w, w.inputs, 3, OUTPUTS), DUET_OK);
        MUST_SAY(ways[i].words);
        MUST_FAIL(duet_data_parallel_backward(w.dp, NULL, 0), DUET_USAGE, "no forward in");
    }
    w.how = RIGHT;
    cr_assert_eq(forward(&w, w.inputs, 3, OUTPUTS), DUET_OK); /* nothing was damaged */
    close_world(&w);
}

Test(api_multi, wrong_arguments_are_refused, .timeout = 60) {
    struct world w;
    duet_tensor *far, *out[OUTPUTS], *grads[OUTPUTS], *grad;
    open_world(&w, "cpu", 2);
    MUST(duet_tensor_to(&far, w.inputs[1], w.devices[1]));
    duet_tensor *wrong[3] = {w.inputs[0], far, w.inputs[2]};
    MUST_FAIL(forward(&w, wrong, 3, OUTPUTS), DUET_USAGE, "input 1 is on cpu(1)");
    MUST_FAIL(forward(&w, w.inputs, 2, OUTPUTS), DUET_USAGE, "has returned NULL");
    MUST(duet_data_parallel_forward(w.dp, w.inputs, 3, out, OUTPUTS, DUET_TRAIN));
    make_grads(grads, out, OUTPUTS);
    duet_tensor *none[OUTPUTS] = {NULL}, *swapped[OUTPUTS] = {grads[HIDDEN]};
    MUST_FAIL(duet_data_parallel_backward(w.dp, none, 3), DUET_USAGE, "3 gradients of 4");
    MUST_FAIL(duet_data_parallel_backward(w.dp, swapped, OUTPUTS), DUET_USAGE, "must agree");
    MUST(duet_data_parallel_backward(w.dp, grads, OUTPUTS));
    MUST_FAIL(duet_data_parallel_input_grad(w.dp, 1, &grad), DUET_USAGE, "not float");
    free_all(out, OUTPUTS), free_all(grads, OUTPUTS);
    duet_tensor_free(far);
    close_world(&w);
}

/* duet_backward_all alone. */
Test(api_multi, backward_from_several_vars, .timeout = 60) {
    struct world w;
    duet_tensor *grad;
    float got[MOST];
    open_world(&w, "cpu", 1);
    MUST(duet_tape_begin(w.tape, NULL, N, DUET_TRAIN));
    duet_var *x = duet_leaf(w.tape, w.inputs[0]), *sum = duet_sum(w.tape, x, NULL, 0, 0),
             *mean = duet_mean(w.tape, x, NULL, 0, 0), *roots[3] = {sum, mean, x};
    const duet_tensor *grads[3] = {NULL, NULL, w.inputs[0]};
    MUST(duet_backward_all(w.tape, roots, grads, 3));
    MUST(duet_var_grad(&grad, w.tape, x));
    MUST(duet_tensor_read(grad, got));
    for (int i = 0; i < N * K; i++)
        cr_assert(fabs((double)got[i] - (1 + 1.0 / (N * K) + (double)golden_value(i, 3571))) <
                  TOLERANCE);
    duet_tensor_free(grad);
    MUST_FAIL(duet_backward_all(w.tape, roots, grads, 0), DUET_USAGE, "0 vars");
    grads[2] = NULL;
    MUST_FAIL(duet_backward_all(w.tape, roots, grads, 3), DUET_USAGE, "scalar outputs");
    roots[1] = sum;
    MUST_FAIL(duet_backward_all(w.tape, roots, grads, 2), DUET_USAGE, "are the same");
    roots[1] = NULL;
    MUST_FAIL(duet_backward_all(w.tape, roots, grads, 2), DUET_USAGE, "is NULL");
    close_world(&w);
}
