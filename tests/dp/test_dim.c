/* DataParallel, scatter and cat along dimension 1, for sequences that come first: (L,N,H). The same
 * numbers with the samples first give the same bits. With CUDA_EMULATION it also runs on GPUs. */
#include "tests/dp/facts.h"

enum { W, B, PARAMS, DEVICES = 4, L = 3, N = 10, H = 4, O = 5, WORDS = 7, ALL = L * N * O };
static const struct duet_param shapes[PARAMS] = {{"fc.weight", 2, {O, H}, NULL},
                                                 {"fc.bias", 1, {O}, NULL}};

/* The results to compare: output, gradients of the parameters and of the input. */
struct result {
    float y[L][N][O], w[O * H], b[O], x[L][N][H];
};

static duet_var *samples_first(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    return duet_tanh(t, duet_linear(t, x, W, B)); /* (n,L,H) -> (n,L,O) */
}

static duet_var *sequence_first(duet_tape *t, duet_var *x, void *context) {
    x = duet_permute(t, x, (int[]){1, 0, 2});
    return duet_permute(t, samples_first(t, x, context), (int[]){1, 0, 2});
}

/* tokens (L,n) are int32, and h is (2,n,H): dimension 1 of both is cut. */
static void of_tokens(duet_tape *t, const struct duet_replica *r, duet_var **out, void *context) {
    int32_t(*seen)[N] = context, host[L * N];
    int n = duet_tensor_dim(r->tensors[0], 1);
    if (duet_tensor_dim(r->tensors[0], 0) != L || duet_tensor_dim(r->tensors[1], 1) != n || r->x[0])
        return;
    if (duet_tensor_read(r->tensors[0], host)) return;
    for (int i = 0; i < L * n; i++)
        seen[i / n][4 * r->index + i % n] = host[i]; /* the replicas have 4, 4 and 2 */
    out[0] = duet_multiply_number(t, r->x[1], 3);
}

static float number(int i, int k) {
    return golden_value(k, 3571 + i);
}

/* x and the gradient of the output, (L,N,width) or with `first` (N,L,width). */
static duet_tensor *ordered(duet_device *device, int width, int seed, int first) {
    float host[ALL];
    for (int l = 0; l < L; l++)
        for (int n = 0; n < N; n++)
            for (int k = 0; k < width; k++)
                host[((first ? n * L + l : l * N + n) * width) + k] =
                    number(seed, (l * N + n) * width + k);
    duet_tensor *tensor;
    int shape[] = {first ? N : L, first ? L : N, width};
    MUST(duet_tensor_create(&tensor, device, DUET_F32, 3, shape, host));
    return tensor;
}

static void read_ordered(const duet_tensor *tensor, int width, int first, float *out) {
    float host[ALL];
    cr_assert(duet_tensor_dim(tensor, 0) == (first ? N : L) &&
              duet_tensor_dim(tensor, 1) == (first ? L : N) && duet_tensor_dim(tensor, 2) == width);
    MUST(duet_tensor_read(tensor, host));
    for (int l = 0; l < L; l++)
        for (int n = 0; n < N; n++)
            memcpy(out + (l * N + n) * width, host + (first ? n * L + l : l * N + n) * width,
                   (size_t)width * sizeof *out);
}

static duet_params *make_params(duet_device *device) {
    duet_params *params;
    MUST(duet_params_create(&params, device, shapes, PARAMS));
    for (int i = 0; i < PARAMS; i++) {
        float host[O * H];
        for (int k = 0; k < O * H; k++)
            host[k] = number(i + 10, k);
        MUST(duet_tensor_write(duet_params_value(params, i), host));
    }
    return params;
}

/* on_tape 1: by duet_data_parallel_call, else by forward and backward. */
static void run(duet_device **devices, int n, int dim, int on_tape, struct result *result) {
    const struct duet_data_parallel_options options = {
        .dim = dim, .input_grad = 1, .output_device = n - 1};
    duet_params *params = make_params(devices[0]);
    duet_tensor *x = ordered(devices[0], H, 0, !dim), *dy = ordered(devices[n - 1], O, 1, !dim), *y,
                *dx;
    duet_data_parallel *dp;
    duet_tape *t;
    MUST(duet_data_parallel_create(&dp, devices, n, params, dim ? sequence_first : samples_first,
                                   NULL, &options));
    MUST(duet_tape_create(&t, devices[n - 1]));
    if (on_tape) {
        MUST(duet_tape_begin(t, NULL, dim ? L : N, DUET_TRAIN));
        duet_var *out = duet_data_parallel_call(t, dp, x);
        MUST(duet_backward(t, out, dy));
        MUST(duet_var_value(&y, t, out));
    } else {
        MUST(duet_data_parallel_forward(dp, &x, 1, &y, 1, DUET_TRAIN));
        MUST(duet_data_parallel_backward(dp, &dy, 1));
    }
    MUST(duet_data_parallel_input_grad(dp, 0, &dx));
    read_ordered(y, O, !dim, &result->y[0][0][0]);
    read_ordered(dx, H, !dim, &result->x[0][0][0]);
    MUST(duet_tensor_read(duet_params_grad(params, W), result->w));
    MUST(duet_tensor_read(duet_params_grad(params, B), result->b));
    duet_tensor_free(x), duet_tensor_free(y), duet_tensor_free(dx), duet_tensor_free(dy);
    duet_tape_free(t), duet_data_parallel_free(dp), duet_params_free(params);
}

Test(dim, a_sequence_first_has_the_bits_of_samples_first, .timeout = 120) {
    for (int kind = 0; kind < API_KINDS; kind++) {
        duet_device *devices[DEVICES];
        MUST(duet_devices_open(devices, DEVICES, api_kinds[kind], api_memory(api_kinds[kind])));
        for (int n = 1; n <= DEVICES; n++) {
            struct result want, got;
            run(devices, n, 0, 0, &want);
            cr_assert(want.w[0] != 0 && want.x[L - 1][N - 1][0] != 0);
            for (int on_tape = 0; on_tape < 2; on_tape++) {
                run(devices, n, 1, on_tape, &got);
                cr_assert_arr_eq(&got, &want, sizeof got, "%s, %d devices", api_kinds[kind], n);
            }
        }
        duet_devices_close(devices, DEVICES);
    }
}

Test(dim, every_input_and_output_is_cut_along_it, .timeout = 60) {
    const struct duet_data_parallel_options options = {.dim = 1, .forward_multi = of_tokens};
    int32_t tokens[L][N], seen[L][N];
    float h[2 * N * H], more[2 * N * H];
    duet_device *devices[3];
    duet_data_parallel *dp;
    duet_tensor *outputs[1], *inputs[2];
    MUST(duet_devices_open(devices, 3, "cpu-late", 0));
    for (int i = 0; i < L * N; i++)
        tokens[i / N][i % N] = (i * 5 + 1) % WORDS;
    for (int i = 0; i < 2 * N * H; i++)
        h[i] = number(2, i);
    duet_params *params = make_params(devices[0]);
    MUST(duet_tensor_create(&inputs[0], devices[0], DUET_I32, 2, (int[]){L, N}, tokens));
    MUST(duet_tensor_create(&inputs[1], devices[0], DUET_F32, 3, (int[]){2, N, H}, h));
    MUST(duet_data_parallel_create(&dp, devices, 3, params, NULL, seen, &options));
    MUST(duet_data_parallel_forward(dp, inputs, 2, outputs, 1, DUET_EVALUATE));
    MUST(duet_tensor_read(outputs[0], more));
    cr_assert(duet_tensor_dim(outputs[0], 0) == 2 && duet_tensor_dim(outputs[0], 1) == N);
    cr_assert_arr_eq(seen, tokens, sizeof tokens);
    for (int i = 0; i < 2 * N * H; i++)
        cr_assert_eq(more[i], 3 * h[i]);
    duet_tensor_free(outputs[0]);
    duet_tensor_free(inputs[1]);
    MUST(duet_tensor_create(&inputs[1], devices[0], DUET_F32, 1, (int[]){N}, h));
    MUST_FAIL(duet_data_parallel_forward(dp, inputs, 2, outputs, 1, DUET_EVALUATE), DUET_USAGE,
              "Dimension out of range (expected to be in range of [-1, 0], but got 1)");
    for (int i = 0; i < 2; i++)
        duet_tensor_free(inputs[i]);
    duet_data_parallel_free(dp);
    MUST_FAIL(duet_data_parallel_create(&dp, devices, 3, params, samples_first, NULL,
                                        &(struct duet_data_parallel_options){.dim = 8}),
              DUET_USAGE, "dim 8: give -8 to 7");
    duet_params_free(params);
    duet_devices_close(devices, 3);
}

Test(dim, scatter_and_cat_take_columns, .timeout = 60) {
    const int64_t host[2][2][5] = {{{0, 1, 2, 3, 4}, {5, 6, 7, 8, 9}},
                                   {{10, 11, 12, 13, 14}, {15, 16, 17, 18, 19}}};
    const int64_t middle[2][2][2] = {{{2, 3}, {7, 8}}, {{12, 13}, {17, 18}}};
    int64_t back[20] = {0};
    duet_device *devices[4];
    duet_tensor *x, *parts[4], *all;
    MUST(duet_devices_open(devices, 4, "cpu-late", 0));
    MUST(duet_tensor_create(&x, devices[0], DUET_I64, 3, (int[]){2, 2, 5}, host));
    MUST(duet_tensor_scatter(parts, 4, x, devices, 2)); /* 2 2 1, and none for device 3 */
    cr_assert(!parts[3] && duet_tensor_dim(parts[1], 2) == 2 && duet_tensor_dim(parts[2], 2) == 1);
    MUST(duet_tensor_read(parts[2], back));
    cr_assert(back[0] == 4 && back[1] == 9 && back[2] == 14 && back[3] == 19);
    MUST(duet_tensor_read(parts[1], back));
    cr_assert_arr_eq(back, middle, sizeof middle);
    MUST(duet_tensor_cat(&all, parts, 4, devices[3], 2));
    MUST(duet_tensor_read(all, back));
    cr_assert_arr_eq(back, host, sizeof host);
    duet_tensor_free(all);
    MUST_FAIL(
        duet_tensor_cat(&all, parts, 4, devices[3], 1), DUET_USAGE,
        "must match except in dimension 1. Expected size 2 but got size 1 for tensor number 2");
    MUST_FAIL(duet_tensor_cat(&all, parts, 4, devices[3], 3), DUET_USAGE,
              "Dimension out of range (expected to be in range of [-3, 2], but got 3)");
    for (int i = 0; i < 4; i++)
        duet_tensor_free(parts[i]);
    MUST_FAIL(duet_tensor_scatter(parts, 4, x, devices, -4), DUET_USAGE, "but got -4");
    duet_tensor_free(x);
    duet_devices_close(devices, 4);
}
