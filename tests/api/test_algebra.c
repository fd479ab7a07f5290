/* matmul, add and its like with broadcasting, sum, mean, embedding and reshape of the public
 * library on every kind of device: PyTorch's numbers and gradients, backward from one number, and
 * what is refused. With CUDA_EMULATION on GPUs too. */
#include "tests/api/facts.h"

/* Relative to 1 + |want|: sums of at most 10 numbers below 1, rounded to float a few times; a wrong
 * term is 1e-2. */
static const double TOLERANCE = 1e-6;

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define FILE_OF_FACTS "tests/golden/algebra.txt"

static duet_tensor *tensor_of(duet_device *device, int rank, const int *shape, int a) {
    return fact_input(device, rank, shape, a, 1);
}

/* What NAME_I says of y. */
static void check(duet_tape *tape, duet_device *device, const char *name, size_t i, duet_var *y,
                  duet_var *a, duet_var *b) {
    char line[64];
    snprintf(line, sizeof line, "%s_%zu", name, i);
    check_fact(FILE_OF_FACTS, line, device, tape, y, a, b, NULL, TOLERANCE);
}

static const struct {
    int a_rank, a[4], b_rank, b[4];
} products[] = {{2, {3, 4}, 2, {4, 5}},
                {1, {4}, 1, {4}},
                {2, {3, 4}, 1, {4}},
                {1, {4}, 2, {4, 5}},
                {3, {2, 3, 4}, 3, {2, 4, 5}},
                {3, {2, 3, 4}, 2, {4, 5}},
                {3, {2, 3, 4}, 1, {4}},
                {4, {2, 2, 3, 4}, 4, {2, 2, 4, 2}},
                {2, {3, 4}, 3, {2, 4, 5}},
                {1, {4}, 3, {2, 4, 5}},
                {3, {2, 3, 4}, 3, {1, 4, 5}},
                {3, {1, 3, 4}, 3, {2, 4, 5}},
                {4, {2, 1, 3, 4}, 4, {1, 3, 4, 2}},
                {3, {3, 3, 4}, 4, {2, 1, 4, 2}},
                {3, {2, 3, 4}, 4, {2, 2, 4, 2}},
                {1, {4}, 4, {2, 2, 4, 3}},
                {4, {1, 1, 3, 4}, 4, {2, 3, 4, 2}}};

typedef duet_var *binary(duet_tape *tape, duet_var *a, duet_var *b);
static binary *const binaries[3] = {duet_add, duet_subtract, duet_multiply};
static const struct {
    int a_rank, a[4], b_rank, b[4];
} terms[] = {{3, {2, 3, 4}, 1, {4}},
             {2, {3, 1}, 2, {1, 4}},
             {1, {4}, 3, {2, 3, 4}},
             {4, {2, 1, 3, 1}, 3, {2, 1, 4}},
             {4, {2, 3, 1, 4}, 4, {2, 3, 1, 1}}};

enum { ALL = -100 }; /* in place of a dimension */
static const struct {
    int rank, shape[4], dim;
} sums[] = {{2, {3, 4}, ALL},  {2, {3, 4}, 0},       {2, {3, 4}, -1},
            {3, {2, 3, 4}, 1}, {4, {2, 3, 2, 3}, 3}, {1, {5}, 0}};

static void check_terms(duet_device *device, duet_tape *tape) {
    for (size_t i = 0; i < 3 * COUNT(terms); i++) {
        size_t at = i / 3;
        duet_tensor *a = tensor_of(device, terms[at].a_rank, terms[at].a, 7919),
                    *b = tensor_of(device, terms[at].b_rank, terms[at].b, 6131);
        MUST(duet_tape_begin(tape, NULL, 2, DUET_TRAIN));
        duet_var *va = duet_leaf(tape, a), *vb = duet_leaf(tape, b);
        check(tape, device, (const char *[]){"add", "sub", "mul"}[i % 3], at,
              binaries[i % 3](tape, va, vb), va, vb);
        duet_tensor_free(a);
        duet_tensor_free(b);
    }
}

static void check_products(duet_device *device, duet_tape *tape) {
    for (size_t i = 0; i < COUNT(products); i++) {
        duet_tensor *a = tensor_of(device, products[i].a_rank, products[i].a, 7919),
                    *b = tensor_of(device, products[i].b_rank, products[i].b, 6131);
        MUST(duet_tape_begin(tape, NULL, 2, DUET_TRAIN));
        duet_var *va = duet_leaf(tape, a), *vb = duet_leaf(tape, b);
        check(tape, device, "matmul", i, duet_matmul(tape, va, vb), va, vb);
        duet_tensor_free(a);
        duet_tensor_free(b);
    }
}

static void check_sums(duet_device *device, duet_tape *tape) {
    for (size_t i = 0; i < 2 * COUNT(sums); i++) {
        int mean = i % 2, dim = sums[i / 2].dim;
        duet_tensor *x = tensor_of(device, sums[i / 2].rank, sums[i / 2].shape, 7919);
        MUST(duet_tape_begin(tape, NULL, 2, DUET_TRAIN));
        duet_var *leaf = duet_leaf(tape, x), *y = dim == ALL
                                                      ? (mean ? duet_mean(tape, leaf, NULL, 0, 0)
                                                              : duet_sum(tape, leaf, NULL, 0, 0))
                                                  : mean ? duet_mean(tape, leaf, (int[]){dim}, 1, 0)
                                                         : duet_sum(tape, leaf, (int[]){dim}, 1, 0);
        check(tape, device, mean ? "mean" : "sum", i / 2, y, leaf, NULL);
        duet_tensor_free(x);
    }
}

enum { SAMPLES = 5, WORDS = 2, ROWS = 4, WIDTH = 3 };

static void check_embedding(duet_device *device, duet_tape *tape) {
    float table[ROWS * WIDTH];
    int32_t indices[SAMPLES * WORDS];
    const struct duet_param shape = {"embedding.weight", 2, {ROWS, WIDTH}, table};
    duet_params *params;
    duet_tensor *index, *dy, *got;
    for (int i = 0; i < ROWS * WIDTH; i++)
        table[i] = golden_value(i, 7919);
    for (int i = 0; i < SAMPLES * WORDS; i++)
        indices[i] = (i * 5 + 1) % ROWS;
    MUST(duet_params_create(&params, device, &shape, 1));
    MUST(duet_tensor_create(&index, device, DUET_I32, 2, (int[]){SAMPLES, WORDS}, indices));
    dy = tensor_of(device, 3, (int[]){SAMPLES, WORDS, WIDTH}, 3571);
    for (int pass = 0; pass < 2; pass++) { /* the second goes on into other functions */
        MUST(duet_tape_begin(tape, params, SAMPLES, DUET_TRAIN));
        duet_var *y = duet_embedding(tape, index, 0, -1);
        if (pass) y = duet_reshape(tape, duet_flatten(tape, y), 3, (int[]){-1, WORDS, WIDTH});
        MUST(duet_var_value(&got, tape, y));
        expect_fact(FILE_OF_FACTS, "embedding", "y", got, TOLERANCE);
        duet_tensor_free(got);
        MUST(duet_backward(tape, y, dy));
        expect_fact(FILE_OF_FACTS, "embedding", "dw", duet_params_grad(params, 0), TOLERANCE);
    }
    float all[ROWS * WIDTH], padded[ROWS * WIDTH];
    MUST(duet_tensor_read(duet_params_grad(params, 0), all));
    MUST(duet_tape_begin(tape, params, SAMPLES, DUET_TRAIN));
    MUST(duet_backward(tape, duet_embedding(tape, index, 0, 1), dy));
    MUST(duet_tensor_read(duet_params_grad(params, 0), padded));
    for (int i = 0; i < ROWS * WIDTH; i++)
        cr_assert(all[i] != 0 && padded[i] == (i / WIDTH == 1 ? 0 : all[i]), "padding_idx: %d", i);
    duet_tensor_free(dy);
    duet_tensor_free(index);
    duet_params_free(params);
}

/* loss = ((x w - t)^2).mean(), as a script writes it: backward starts from one number. */
static void check_scalar(duet_device *device, duet_tape *tape) {
    enum { K = 3 };
    const double x[SAMPLES][K] = {{1, 2, 0}, {0, -1, 1}, {2, 0, 1}, {1, 1, 1}, {-1, 0, 2}};
    const double w[K] = {.5, -1, 2}, t[SAMPLES] = {1, 0, -1, 2, 0};
    float fx[SAMPLES * K], fw[K], ft[SAMPLES], got[K], loss;
    double want[K] = {0}, mean = 0;
    for (int n = 0; n < SAMPLES; n++) {
        double d = -t[n];
        for (int k = 0; k < K; k++)
            d += x[n][k] * w[k], fx[n * K + k] = (float)x[n][k], fw[k] = (float)w[k];
        for (int k = 0; k < K; k++)
            want[k] += 2 * d * x[n][k] / SAMPLES;
        mean += d * d / SAMPLES, ft[n] = (float)t[n];
    }
    duet_tensor *X, *W, *T, *out;
    MUST(duet_tensor_create(&X, device, DUET_F32, 2, (int[]){SAMPLES, K}, fx));
    MUST(duet_tensor_create(&W, device, DUET_F32, 1, (int[]){K}, fw));
    MUST(duet_tensor_create(&T, device, DUET_F32, 1, (int[]){SAMPLES}, ft));
    MUST(duet_tape_begin(tape, NULL, SAMPLES, DUET_TRAIN));
    duet_var *leaf = duet_leaf(tape, W), *y = duet_matmul(tape, duet_input(tape, X), leaf),
             *d = duet_subtract(tape, y, duet_input(tape, T)),
             *root = duet_mean(tape, duet_multiply(tape, d, d), NULL, 0, 0);
    MUST(duet_backward(tape, root, NULL));
    MUST(duet_var_grad(&out, tape, leaf));
    MUST(duet_tensor_read(out, got));
    duet_tensor_free(out);
    MUST(duet_var_value(&out, tape, root));
    MUST(duet_tensor_read(out, &loss));
    cr_assert(fabs((double)loss - mean) <= TOLERANCE, "the loss is %g, not %g", (double)loss, mean);
    for (int k = 0; k < K; k++)
        cr_assert(fabs((double)got[k] - want[k]) <= TOLERANCE, "dw[%d] is %g, not %g", k,
                  (double)got[k], want[k]);
    MUST_FAIL(duet_backward(tape, y, NULL), DUET_USAGE, "only for scalar outputs");
    duet_tensor_free(out), duet_tensor_free(X), duet_tensor_free(W), duet_tensor_free(T);
}

Test(api_algebra, pytorch_has_the_same_numbers, .timeout = 60) {
    for (int kind = 0; kind < API_KINDS; kind++) {
        duet_device *device;
        duet_tape *tape;
        MUST(duet_devices_open(&device, 1, api_kinds[kind], api_memory(api_kinds[kind])));
        MUST(duet_tape_create(&tape, device));
        check_products(device, tape);
        check_terms(device, tape);
        check_sums(device, tape);
        check_embedding(device, tape);
        check_scalar(device, tape);
        duet_tape_free(tape);
        duet_devices_close(&device, 1);
    }
}

/* A pass without samples: sums of nothing are 0, means are NaN, gradients are empty or 0. */
Test(api_algebra, no_samples, .timeout = 30) {
    duet_device *device;
    duet_tape *tape;
    duet_tensor *X, *W, *out;
    float number;
    MUST(duet_devices_open(&device, 1, "cpu", API_MEMORY));
    MUST(duet_tape_create(&tape, device));
    MUST(duet_tensor_create(&X, device, DUET_F32, 2, (int[]){0, 3}, NULL));
    MUST(duet_tensor_create(&W, device, DUET_F32, 2, (int[]){3, 1}, &(float[]){1, 2, 3}));
    for (int mean = 0; mean < 2; mean++) {
        MUST(duet_tape_begin(tape, NULL, 0, DUET_TRAIN));
        duet_var *x = duet_leaf(tape, X), *w = duet_leaf(tape, W), *y = duet_matmul(tape, x, w),
                 *s = mean ? duet_mean(tape, y, NULL, 0, 0) : duet_sum(tape, y, NULL, 0, 0);
        MUST(duet_backward(tape, s, NULL));
        MUST(duet_var_value(&out, tape, s));
        MUST(duet_tensor_read(out, &number));
        cr_assert(mean ? isnan(number) : number == 0);
        duet_tensor_free(out);
        MUST(duet_var_grad(&out, tape, w));
        MUST(duet_tensor_read(out, (float[3]){0}));
        duet_tensor_free(out);
    }
    duet_tensor_free(X), duet_tensor_free(W);
    duet_tape_free(tape);
    duet_devices_close(&device, 1);
}

static void refused(duet_tape *t, duet_var *y, const char *says) {
    cr_assert_null(y, "not refused: %s", says);
    MUST_FAIL(duet_tape_error(t), DUET_USAGE, says);
    cr_assert_null(strchr(duet_error(), '\n'));
}

Test(api_algebra, what_is_refused, .timeout = 30) {
    static const char *const dims = "expected to be in range of [-2, 1]";
    duet_device *devices[2];
    duet_tape *tape;
    duet_params *params;
    duet_tensor *x, *elsewhere, *index, *m, *lone;
    const struct duet_param shape[2] = {{"w", 2, {4, 3}, NULL}, {"b", 1, {4}, NULL}};
    MUST(duet_devices_open(devices, 2, "cpu", API_MEMORY));
    MUST(duet_tape_create(&tape, devices[0]));
    MUST(duet_params_create(&params, devices[0], shape, 2));
    x = tensor_of(devices[0], 2, (int[]){5, 6}, 1), m = tensor_of(devices[0], 2, (int[]){7, 6}, 1);
    elsewhere = tensor_of(devices[1], 2, (int[]){5, 6}, 1);
    MUST(duet_tensor_create(&index, devices[0], DUET_I32, 1, (int[]){5}, NULL));
    MUST(duet_tensor_create(&lone, devices[1], DUET_I32, 1, (int[]){5}, NULL));
    for (int i = 0; i < 31; i++) {
        MUST(duet_tape_begin(tape, i == 9 ? NULL : params, i == 13 ? 4 : 5, DUET_TRAIN));
        duet_tape *t = tape;
        duet_var *v = i == 13 ? NULL : duet_input(t, x), *f = duet_leaf(t, m);
        switch (i) {
        case 0:
            refused(t, duet_matmul(t, v, v), "mat1 and mat2 shapes cannot be multiplied");
            break;
        case 1: refused(t, duet_sum(t, v, (int[]){2}, 1, 0), dims); break;
        case 2: refused(t, duet_mean(t, v, (int[]){-3}, 1, 0), dims); break;
        case 3: refused(t, duet_reshape(t, v, 2, (int[]){5, 7}), "reshape: "); break;
        case 4: refused(t, duet_reshape(t, v, 3, (int[]){5, -1, -1}), "reshape: "); break;
        case 5: refused(t, duet_reshape(t, v, 2, (int[]){6, 5}), "reshape: "); break;
        case 6: refused(t, duet_reshape(t, v, 2, NULL), "reshape: "); break;
        case 7: refused(t, duet_leaf(t, elsewhere), "lies on cpu(1)"); break;
        case 8: refused(t, duet_embedding(t, index, 2, -1), "begun with 2 of them"); break;
        case 9: refused(t, duet_embedding(t, index, 0, -1), "begun with 0 of them"); break;
        case 10: refused(t, duet_embedding(t, NULL, 0, -1), "no index was given"); break;
        case 11: refused(t, duet_embedding(t, x, 0, -1), "must be int32"); break;
        case 12: refused(t, duet_embedding(t, lone, 0, -1), "lies on cpu(1)"); break;
        case 13: refused(t, duet_embedding(t, index, 0, -1), "indices of (5) for 4 samples"); break;
        case 14: refused(t, duet_embedding(t, index, 1, -1), "must be a table of 2"); break;
        case 15: refused(t, duet_dropout(t, f, .5), "7 rows, the pass 5 samples"); break;
        case 16: refused(t, duet_narrow(t, v, 1, 4, 3), "start (4) + length (3) exceeds"); break;
        case 17:
            refused(t, duet_narrow(t, v, 0, 0, 1), "dimension 0 is that of the samples");
            break;
        case 18: refused(t, duet_narrow(t, v, 1, INT32_MAX, INT32_MAX), "exceeds dimension"); break;
        case 19: refused(t, duet_cat(t, NULL, 2, 1), "give an array of 1 to 64"); break;
        case 20: refused(t, duet_cat(t, (duet_var *[]){v, v}, 2, 2), dims); break;
        case 21:
            refused(t, duet_cat(t, (duet_var *[]){v, f}, 2, 1), "Expected size 5 but got size 7");
            break;
        case 22: refused(t, duet_argsort(t, v, 0, 0), "dimension 0 is that of the samples"); break;
        case 23: refused(t, duet_argsort(t, v, 2, 0), dims); break;
        case 24: refused(t, duet_argsort(t, duet_parameter(t, 0), 1, 0), "expand it first"); break;
        case 25: refused(t, duet_take_along_dim(t, v, v, 0), "dimension 0 is that of"); break;
        case 26:
            refused(t, duet_take_along_dim(t, duet_parameter(t, 0), duet_parameter(t, 0), 1),
                    "of tensors without samples");
            break;
        case 27:
            refused(t, duet_take_along_dim(t, duet_reshape(t, v, 3, (int[]){5, 2, 3}), v, 1),
                    "give both as many dimensions");
            break;
        case 28:
            refused(t, duet_scatter_add(t, duet_narrow(t, v, 1, 0, 2), v, 1, 4),
                    "2 places for 6 numbers");
            break;
        case 29: refused(t, duet_scatter_add(t, v, v, 1, 0), "at least one of each"); break;
        default: refused(t, duet_linear(t, f, 0, -1), "7 rows, the pass 5 samples"); break;
        }
        cr_assert_null(duet_matmul(t, v, v)); /* the error stays */
    }
    cr_assert(!duet_cat(NULL, NULL, 1, 1) && !duet_narrow(NULL, NULL, 1, 0, 1));
    cr_assert(!duet_adaptive_max_pool2d(NULL, NULL, 1, 1) &&
              !duet_pad2d(NULL, NULL, 1, 1, 1, 1, 0) && !duet_max_pool2d(NULL, NULL, 1, NULL) &&
              !duet_avg_pool2d(NULL, NULL, 1, NULL) && !duet_matmul(NULL, NULL, NULL) &&
              !duet_sum(NULL, NULL, NULL, 0, 0) && !duet_mean(NULL, NULL, NULL, 0, 0) &&
              !duet_sum(NULL, NULL, (int[]){0}, 1, 0) && !duet_mean(NULL, NULL, (int[]){0}, 1, 0) &&
              !duet_embedding(NULL, NULL, 0, -1) && !duet_reshape(NULL, NULL, 2, NULL) &&
              !duet_leaf(NULL, NULL) && !duet_argsort(NULL, NULL, 1, 0) &&
              !duet_take_along_dim(NULL, NULL, NULL, 1) &&
              !duet_scatter_add(NULL, NULL, NULL, 1, 1));
    duet_tensor_free(x), duet_tensor_free(m), duet_tensor_free(elsewhere);
    duet_tensor_free(index), duet_tensor_free(lone);
    duet_params_free(params);
    duet_tape_free(tape);
    duet_devices_close(devices, 2);
}
