/* Activations, norms of samples, linear layers on rows, sums over several dimensions and the
 * order of dimensions, of the public library on every kind of device: PyTorch's numbers and
 * gradients, and what is refused. With CUDA_EMULATION on GPUs too. */
#include "tests/api/facts.h"

/* Relative to 1 + |want|: a few roundings to float, of numbers whose parts are at most 10 times as
 * large as they (a norm divides by a deviation of 0.3 or more); a wrong term is 1e-2. */
static const double TOLERANCE = 4e-6;

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))
enum { MOST = 128 };
#define FILE_OF_FACTS "tests/golden/layers.txt"

/* A device, a tape, and the parameters of the pass; at most one weight and one bias. */
struct bed {
    duet_device *device;
    duet_tape *tape;
    duet_params *params;
    duet_tensor *x;
};

/* What NAME_I says of y. Frees x and params. */
static void check(struct bed *b, const char *name, int i, duet_var *y, duet_var *x) {
    char line[64];
    snprintf(line, sizeof line, "%s_%d", name, i);
    check_fact(FILE_OF_FACTS, line, b->device, b->tape, y, x, NULL, b->params, TOLERANCE);
    duet_tensor_free(b->x);
    duet_params_free(b->params);
    b->params = NULL;
}

/* Begins a pass with x of this shape and `count` parameters; returns x on the tape. */
static duet_var *begin(struct bed *b, int rank, const int *shape, int scale,
                       struct duet_param *param, int count) {
    static const int factors[2] = {6131, 4001};
    float values[2][MOST];
    for (int p = 0; p < count; p++) {
        for (int i = 0; i < MOST; i++)
            values[p][i] = golden_value(i, factors[p]);
        param[p].name = p ? "bias" : "weight", param[p].values = values[p];
    }
    if (count) MUST(duet_params_create(&b->params, b->device, param, count));
    b->x = fact_input(b->device, rank, shape, 7919, (float)scale);
    MUST(duet_tape_begin(b->tape, b->params, shape[0], DUET_TRAIN));
    return duet_leaf(b->tape, b->x);
}

static duet_var *activate(duet_tape *t, duet_var *x, int which) {
    switch (which) {
    case 0: return duet_leaky_relu(t, x, 0.01);
    case 1: return duet_leaky_relu(t, x, 0.2);
    case 2: return duet_elu(t, x, 1);
    case 3: return duet_elu(t, x, 0.7);
    case 4: return duet_clamp(t, x, -1, 1);
    case 5: return duet_clamp(t, x, -0.5, 2);
    case 6: return duet_clamp(t, x, 0, 6);
    case 7: return duet_gelu(t, x, DUET_GELU);
    case 8: return duet_gelu(t, x, DUET_GELU_TANH);
    case 9: return duet_add_number(t, duet_multiply_number(t, x, 0.25), -3);
    case 10: return duet_log(t, duet_add_number(t, duet_abs(t, x), 0.5));
    case 11: return duet_reciprocal(t, duet_sqrt(t, duet_exp(t, x)));
    default: return duet_subtract(t, duet_softplus(t, x), duet_multiply(t, x, duet_sigmoid(t, x)));
    }
}

enum { ACTIVATIONS = 13 };

static void check_activations(struct bed *b) {
    for (int i = 0; i < ACTIVATIONS; i++) {
        duet_var *x = begin(b, 2, (int[]){6, 4}, 8, NULL, 0);
        check(b, "activation", i, activate(b->tape, x, i), x);
    }
}

/* shape of x; of a layer norm the number of its dimensions, of a group norm that of its groups. */
struct norm {
    int rank, shape[4], of;
    double eps;
    int params;
};
static const struct norm layer_norms[] = {{2, {3, 5}, 1, 1e-5, 2},
                                          {3, {2, 3, 4}, 1, 1e-5, 2},
                                          {3, {2, 3, 4}, 2, 1e-3, 2},
                                          {4, {2, 2, 3, 4}, 3, 1e-5, 1},
                                          {3, {2, 3, 4}, 1, 1e-5, 0}};
static const struct norm group_norms[] = {{2, {3, 4}, 2, 1e-5, 2},
                                          {3, {2, 6, 3}, 3, 1e-5, 2},
                                          {4, {2, 4, 3, 2}, 1, 1e-2, 2},
                                          {4, {2, 4, 3, 2}, 4, 1e-5, 1},
                                          {4, {2, 4, 3, 2}, 2, 1e-5, 0}};

static void check_norms(struct bed *b) {
    for (int i = 0; i < COUNT(layer_norms) + COUNT(group_norms); i++) {
        int layer = i < COUNT(layer_norms);
        const struct norm *n = layer ? &layer_norms[i] : &group_norms[i - COUNT(layer_norms)];
        const int *shape = layer ? n->shape + n->rank - n->of : n->shape + 1;
        struct duet_param p = {.rank = layer ? n->of : 1}, params[2];
        for (int k = 0; k < p.rank; k++)
            p.shape[k] = shape[k];
        params[0] = params[1] = p;
        duet_var *x = begin(b, n->rank, n->shape, 1, params, n->params), *y;
        int w = n->params ? 0 : DUET_NO_WEIGHT, bias = n->params == 2 ? 1 : DUET_NO_BIAS;
        y = layer ? duet_layer_norm(b->tape, x, n->of, shape, w, bias, n->eps)
                  : duet_group_norm(b->tape, x, n->of, w, bias, n->eps);
        check(b, layer ? "layer_norm" : "group_norm", layer ? i : i - COUNT(layer_norms), y, x);
    }
}

static void check_linears(struct bed *b) {
    static const struct {
        int rank, shape[4], out, params;
    } linears[] = {{3, {2, 3, 4}, 5, 2}, {4, {2, 2, 3, 4}, 3, 1}};
    for (int i = 0; i < COUNT(linears); i++) {
        struct duet_param params[2] = {{.rank = 2, .shape = {linears[i].out, 4}},
                                       {.rank = 1, .shape = {linears[i].out}}};
        duet_var *x = begin(b, linears[i].rank, linears[i].shape, 1, params, linears[i].params);
        int bias = linears[i].params == 2 ? 1 : DUET_NO_BIAS;
        check(b, "linear", i, duet_linear(b->tape, x, 0, bias), x);
    }
}

static void check_sums(struct bed *b) {
    static const struct {
        int rank, shape[4], count, dims[4], keepdim;
    } sums[] = {{3, {2, 3, 4}, 2, {0, 2}, 0},     {3, {2, 3, 4}, 2, {1, 2}, 1},
                {4, {2, 3, 2, 3}, 2, {1, -1}, 1}, {3, {2, 3, 4}, 0, {0}, 0},
                {3, {2, 3, 4}, 1, {-1}, 1},       {4, {2, 3, 2, 3}, 4, {3, 0, 2, 1}, 1}};
    for (int i = 0; i < 2 * COUNT(sums); i++) {
        int at = i / 2, mean = i % 2, count = sums[at].count, keep = sums[at].keepdim;
        duet_var *x = begin(b, sums[at].rank, sums[at].shape, 1, NULL, 0);
        check(b, mean ? "mean" : "sum", at,
              (mean ? duet_mean : duet_sum)(b->tape, x, sums[at].dims, count, keep), x);
    }
}

static void check_orders(struct bed *b) {
    static const struct {
        int rank, shape[4], order[4], a, b; /* a, b: the same as a transpose; 0, 0: it is none */
    } orders[] = {{2, {2, 3}, {1, 0}, 0, 1},
                  {3, {2, 3, 4}, {0, 2, 1}, -1, 1},
                  {3, {2, 3, 4}, {2, 0, 1}, 0, 0},
                  {4, {2, 3, 2, 4}, {0, 2, 1, 3}, 2, -3},
                  {4, {2, 3, 2, 4}, {3, 1, -4, 2}, 0, 0}};
    for (int i = 0; i < 2 * COUNT(orders); i++) {
        int at = i / 2, p = orders[at].a, q = orders[at].b;
        if (i % 2 && p == q) continue;
        duet_var *x = begin(b, orders[at].rank, orders[at].shape, 1, NULL, 0);
        check(b, "permute", at,
              i % 2 ? duet_transpose(b->tape, x, p, q) : duet_permute(b->tape, x, orders[at].order),
              x);
    }
}

Test(api_functions, pytorch_has_the_same_numbers, .timeout = 60) {
    for (int kind = 0; kind < API_KINDS; kind++) {
        struct bed b = {0};
        MUST(duet_devices_open(&b.device, 1, api_kinds[kind], api_memory(api_kinds[kind])));
        MUST(duet_tape_create(&b.tape, b.device));
        check_activations(&b);
        check_norms(&b);
        check_linears(&b);
        check_sums(&b);
        check_orders(&b);
        duet_tape_free(b.tape);
        duet_devices_close(&b.device, 1);
    }
}

static void refused(duet_tape *t, duet_var *y, const char *says) {
    cr_assert_null(y, "not refused: %s", says);
    MUST_FAIL(duet_tape_error(t), DUET_USAGE, says);
    cr_assert_null(strchr(duet_error(), '\n'));
}

Test(api_functions, what_is_refused, .timeout = 30) {
    static const char *const range = "expected to be in range of [-3, 2]";
    const int four = 4, five = 5, two[2] = {1, 1}, high[1] = {3}, twice[3] = {0, 1, -3};
    struct duet_param params[2] = {{.rank = 1, .shape = {4}}, {.rank = 1, .shape = {4}}};
    struct bed b = {0};
    MUST(duet_devices_open(&b.device, 1, "cpu", API_MEMORY));
    MUST(duet_tape_create(&b.tape, b.device));
    for (int i = 0; i < 25; i++) {
        duet_tape *t = b.tape;
        duet_var *x = begin(&b, 3, (int[]){2, 3, 4}, 1, params, 2);
        switch (i) {
        case 0: refused(t, duet_clamp(t, x, 1, -1), "min 1 above max -1"); break;
        case 1: refused(t, duet_clamp(t, x, NAN, 1), "min nan above max 1"); break;
        case 2: refused(t, duet_gelu(t, x, (enum duet_gelu)2), "either none or tanh"); break;
        case 3:
            refused(t, duet_layer_norm(t, x, 1, &five, 0, 1, 1e-5),
                    "Given normalized_shape=[5], expected input with shape [N, ..., 5], but got "
                    "input of size [2, 3, 4]");
            break;
        case 4: refused(t, duet_layer_norm(t, x, 1, NULL, 0, 1, 1e-5), "normalized_shape"); break;
        case 5: refused(t, duet_layer_norm(t, x, 0, &four, 0, 1, 1e-5), "normalized_shape"); break;
        case 6: refused(t, duet_layer_norm(t, x, 1 << 30, &four, 0, 1, 0), "normalized"); break;
        case 7: refused(t, duet_layer_norm(t, x, 1, &four, 7, 1, 1e-5), "begun with 2"); break;
        case 8: refused(t, duet_layer_norm(t, x, 1, &four, -1, 1, 1e-5), "without a weight"); break;
        case 9: refused(t, duet_layer_norm(t, x, 1, &four, 0, 1, -1), "eps -1"); break;
        case 10: refused(t, duet_group_norm(t, x, 2, 0, 1, 1e-5), "divisible by num_groups"); break;
        case 11: refused(t, duet_group_norm(t, x, 0, 0, 1, 1e-5), "divisible by num_groups"); break;
        case 12: refused(t, duet_group_norm(t, x, 3, 0, 1, 1e-5), "than 3 channels"); break;
        case 13: refused(t, duet_linear(t, x, 0, 1), "(4): must have 2"); break;
        case 14: refused(t, duet_sum(t, x, high, 1, 0), range); break;
        case 15: refused(t, duet_mean(t, x, twice, 3, 0), "dim 0 appears multiple"); break;
        case 16: refused(t, duet_sum(t, x, NULL, 1, 0), "sum: 0 dimensions"); break;
        case 17: refused(t, duet_sum(t, x, two, -1, 0), "sum: -1 dimensions"); break;
        case 18: refused(t, duet_permute(t, x, NULL), "no order"); break;
        case 19: refused(t, duet_permute(t, x, twice), "dim 0 appears multiple"); break;
        case 20: refused(t, duet_transpose(t, x, 0, 3), range); break;
        case 21: refused(t, duet_pow(t, x, -1e39), "pow: an exponent of -1e+39"); break;
        case 22: refused(t, duet_pow(t, x, NAN), "must be a finite float"); break;
        case 23:
            refused(t, duet_matmul(t, duet_parameter(t, 0), duet_flatten(t, x)),
                    "matmul: (4) times (2, 12) would sum over the samples");
            break;
        default: refused(t, duet_transpose(t, x, INT32_MIN, 0), range); break;
        }
        cr_assert_null(duet_relu(t, x)); /* the error stays */
        duet_tensor_free(b.x);
        duet_params_free(b.params);
    }
    cr_assert(!duet_multiply_number(NULL, NULL, 1) && !duet_add_number(NULL, NULL, 1) &&
              !duet_abs(NULL, NULL) && !duet_exp(NULL, NULL) && !duet_log(NULL, NULL) &&
              !duet_sqrt(NULL, NULL) && !duet_reciprocal(NULL, NULL) && !duet_softplus(NULL, NULL));
    cr_assert(!duet_leaky_relu(NULL, NULL, 0) && !duet_elu(NULL, NULL, 1) &&
              !duet_clamp(NULL, NULL, 0, 1) && !duet_gelu(NULL, NULL, DUET_GELU) &&
              !duet_sum(NULL, NULL, NULL, 0, 0) && !duet_mean(NULL, NULL, NULL, 0, 0) &&
              !duet_transpose(NULL, NULL, 0, 1) && !duet_permute(NULL, NULL, NULL) &&
              !duet_layer_norm(NULL, NULL, 1, &four, 0, 0, 0) &&
              !duet_group_norm(NULL, NULL, 1, 0, 0, 0));
    duet_tape_free(b.tape);
    duet_devices_close(&b.device, 1);
}
