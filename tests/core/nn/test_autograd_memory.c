/* What autograd saves for each op, and what it holds on the way back, beside PyTorch's own count:
 * tests/golden/make_autograd_memory.py. Models: tests/app/train/test_as_pytorch.c. */
#include "nn/autograd_memory.h"

#include "duet.h"
#include "nn/tensor.h"
#include "tests/golden/golden.h"

static const char *const FACTS = "tests/golden/autograd_memory.txt";

/* Of x (4,6,8,8), or (4,24) of a loss. Parameters by their number below. */
typedef duet_var *function(duet_tape *t, duet_var *x, const duet_tensor *answers);
enum { W8, B8, W6, B6, CONV, CONV_BIAS, GROUPS, LINEAR };
static const int dims_23[] = {2, 3};

#define OF_X(NAME, CALL)                                                           \
    static duet_var *NAME(duet_tape *t, duet_var *x, const duet_tensor *answers) { \
        (void)answers;                                                             \
        return CALL;                                                               \
    }
OF_X(relu, duet_relu(t, x))
OF_X(tanh_of, duet_tanh(t, x))
OF_X(sigmoid, duet_sigmoid(t, x))
OF_X(leaky_relu, duet_leaky_relu(t, x, 0.1))
OF_X(elu, tape_elu(t, x, 1))
OF_X(hardtanh, duet_clamp(t, x, -1, 1))
OF_X(gelu, duet_gelu(t, x, DUET_GELU))
OF_X(silu, duet_silu(t, x))
OF_X(hardswish, tape_hardswish(t, x))
OF_X(hardsigmoid, tape_hardsigmoid(t, x))
OF_X(softplus, tape_softplus(t, x))
OF_X(abs_of, duet_abs(t, x))
OF_X(exp_of, duet_exp(t, x))
OF_X(log_of, duet_log(t, x))
OF_X(sqrt_of, duet_sqrt(t, x))
OF_X(reciprocal, duet_reciprocal(t, x))
OF_X(sin_of, tape_sin(t, x))
OF_X(round_of, tape_round(t, x, ROUND_NEAREST))
OF_X(remainder_of, tape_modulo(t, x, 3, MODULO_REMAINDER))
OF_X(pow_of, duet_pow(t, x, 3))
OF_X(multiply_number, duet_multiply_number(t, x, 2))
OF_X(add_number, duet_add_number(t, x, 2))
OF_X(add, duet_add(t, x, x))
OF_X(subtract, duet_subtract(t, x, x))
OF_X(multiply, duet_multiply(t, x, x))
OF_X(matmul, duet_matmul(t, x, x))
OF_X(sum, duet_sum(t, x, dims_23, 2, 0))
OF_X(mean, duet_mean(t, x, dims_23, 2, 0))
OF_X(avg_pool, duet_avg_pool2d(t, x, 3, &(struct duet_pool){.stride = {2, 2}, .padding = {1, 1}}))
OF_X(max_pool, duet_max_pool2d(t, x, 3, &(struct duet_pool){.stride = {2, 2}, .padding = {1, 1}}))
OF_X(adaptive_avg_pool, duet_adaptive_avg_pool2d(t, x, 2, 2))
OF_X(adaptive_avg_pool_1, duet_adaptive_avg_pool2d(t, x, 1, 1))
OF_X(adaptive_max_pool, tape_adaptive_max_pool2d(t, x, 2, 2))
OF_X(pad, duet_pad2d(t, x, 1, 1, 1, 1, 0))
OF_X(flatten, duet_flatten(t, x))
OF_X(dropout, duet_dropout(t, x, 0.5))
OF_X(dropout2d, duet_dropout2d(t, x, 0.5))
OF_X(softmax, duet_softmax(t, x))
OF_X(log_softmax, duet_log_softmax(t, x))
OF_X(attention, duet_scaled_dot_product_attention(t, x, x, x, NULL))
OF_X(layer_norm_of, duet_layer_norm(t, x, 1, (int[]){8}, W8, B8, 1e-5))
OF_X(group_norm_of, duet_group_norm(t, x, 3, W6, B6, 1e-5))
OF_X(batch_norm_of, duet_batch_norm(t, x, W6, B6, DUET_NO_BUFFERS, 1e-5, 0.1, 0))
OF_X(conv2d, duet_conv2d(t, x, CONV, CONV_BIAS, NULL))
OF_X(conv_groups, duet_conv2d(t, x, GROUPS, B6, &(struct duet_conv){{1, 1}, {0, 0}, {1, 1}, 3}))
OF_X(linear, duet_linear(t, x, LINEAR, CONV_BIAS))
OF_X(cross_entropy, duet_cross_entropy(t, x, answers, DUET_MEAN, NULL))
OF_X(nll_loss, duet_nll_loss(t, x, answers, DUET_MEAN, NULL))
OF_X(mse_loss, duet_mse_loss(t, x, answers, DUET_MEAN))

enum answers { NO_ANSWERS, LABELS, TARGETS };
static const struct op_case {
    const char *name;
    function *call;
    enum answers answers;
} cases[] = {
    {"relu", relu, NO_ANSWERS},
    {"tanh", tanh_of, NO_ANSWERS},
    {"sigmoid", sigmoid, NO_ANSWERS},
    {"leaky_relu", leaky_relu, NO_ANSWERS},
    {"elu", elu, NO_ANSWERS},
    {"hardtanh", hardtanh, NO_ANSWERS},
    {"gelu", gelu, NO_ANSWERS},
    {"silu", silu, NO_ANSWERS},
    {"hardswish", hardswish, NO_ANSWERS},
    {"hardsigmoid", hardsigmoid, NO_ANSWERS},
    {"softplus", softplus, NO_ANSWERS},
    {"abs", abs_of, NO_ANSWERS},
    {"exp", exp_of, NO_ANSWERS},
    {"log", log_of, NO_ANSWERS},
    {"sqrt", sqrt_of, NO_ANSWERS},
    {"reciprocal", reciprocal, NO_ANSWERS},
    {"sin", sin_of, NO_ANSWERS},
    {"round", round_of, NO_ANSWERS},
    {"remainder", remainder_of, NO_ANSWERS},
    {"pow", pow_of, NO_ANSWERS},
    {"multiply_number", multiply_number, NO_ANSWERS},
    {"add_number", add_number, NO_ANSWERS},
    {"add", add, NO_ANSWERS},
    {"subtract", subtract, NO_ANSWERS},
    {"multiply", multiply, NO_ANSWERS},
    {"matmul", matmul, NO_ANSWERS},
    {"sum", sum, NO_ANSWERS},
    {"mean", mean, NO_ANSWERS},
    {"avg_pool", avg_pool, NO_ANSWERS},
    {"max_pool", max_pool, NO_ANSWERS},
    {"adaptive_avg_pool", adaptive_avg_pool, NO_ANSWERS},
    {"adaptive_avg_pool_1", adaptive_avg_pool_1, NO_ANSWERS},
    {"adaptive_max_pool", adaptive_max_pool, NO_ANSWERS},
    {"pad", pad, NO_ANSWERS},
    {"flatten", flatten, NO_ANSWERS},
    {"dropout", dropout, NO_ANSWERS},
    {"dropout2d", dropout2d, NO_ANSWERS},
    {"softmax", softmax, NO_ANSWERS},
    {"attention", attention, NO_ANSWERS},
    {"log_softmax", log_softmax, NO_ANSWERS},
    {"layer_norm", layer_norm_of, NO_ANSWERS},
    {"group_norm", group_norm_of, NO_ANSWERS},
    {"batch_norm", batch_norm_of, NO_ANSWERS},
    {"conv2d", conv2d, NO_ANSWERS},
    {"conv_groups", conv_groups, NO_ANSWERS},
    {"linear", linear, NO_ANSWERS},
    {"cross_entropy", cross_entropy, LABELS},
    {"nll_loss", nll_loss, LABELS},
    {"mse_loss", mse_loss, TARGETS},
};

/* What the rules say of one op of a result; behind the walk the gradient of the leaf is left. */
static void count(const struct op_case *c, duet_device *device, duet_params *params) {
    static const float zeros[4 * 6 * 8 * 8];
    static const int32_t no_labels[4];
    const int picture[] = {4, 6, 8, 8}, flat[] = {4, 24};
    duet_tensor *x, *answers = NULL;
    duet_tape *t;
    struct ledger ledger = {.total = 0};
    struct autograd_config config = {.ledger = &ledger, .cause = MEM_ACTIVATIONS};
    struct autograd_memory *a;
    uint64_t saved;
    char key[64];
    int code = duet_tensor_create(&x, device, DUET_F32, c->answers ? 2 : 4,
                                  c->answers ? flat : picture, zeros);
    if (!code && c->answers == LABELS)
        code = duet_tensor_create(&answers, device, DUET_I32, 1, flat, no_labels);
    if (!code && c->answers == TARGETS)
        code = duet_tensor_create(&answers, device, DUET_F32, 2, flat, zeros);
    if (!code) code = duet_tape_create(&t, device);
    if (!code) code = duet_tape_begin(t, params, 4, DUET_TRAIN);
    cr_assert(!code, "%s", duet_error());
    duet_var *leaf = duet_leaf(t, x), *y = c->call(t, duet_multiply_number(t, leaf, 2), answers);
    cr_assert(!duet_tape_error(t), "%s: %s", c->name, duet_error());
    cr_assert(!autograd_memory_new(&a, t, y, &config, &saved));
    snprintf(key, sizeof key, "op %s", c->name);
    cr_expect_eq(saved, (uint64_t)golden_number(FACTS, key), "%s saves %llu", c->name,
                 (unsigned long long)saved);
    autograd_memory_backward(a, 0, MEM_ACTIVATIONS);
    cr_expect_eq(ledger.now[MEM_ACTIVATIONS], tensor_bytes(&x->t), "%s leaves %llu", c->name,
                 (unsigned long long)ledger.now[MEM_ACTIVATIONS]);
    autograd_memory_free(a);
    duet_tape_free(t);
    duet_tensor_free(x);
    duet_tensor_free(answers);
}

Test(autograd_memory, each_op_saves_what_pytorch_saves, .timeout = 60) {
    static const struct duet_param description[] = {
        [W8] = {"w8", 1, {8}, NULL},
        [B8] = {"b8", 1, {8}, NULL},
        [W6] = {"w6", 1, {6}, NULL},
        [B6] = {"b6", 1, {6}, NULL},
        [CONV] = {"conv", 4, {5, 6, 3, 3}, NULL},
        [CONV_BIAS] = {"bias", 1, {5}, NULL},
        [GROUPS] = {"groups", 4, {6, 2, 3, 3}, NULL},
        [LINEAR] = {"linear", 2, {5, 8}, NULL},
    };
    duet_device *device;
    duet_params *params;
    cr_assert(!duet_device_open(&device, "cpu", 0, 16 << 20), "%s", duet_error());
    cr_assert(
        !duet_params_create(&params, device, description, sizeof description / sizeof *description),
        "%s", duet_error());
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        count(&cases[i], device, params);
    duet_params_free(params);
    duet_devices_close(&device, 1);
}
