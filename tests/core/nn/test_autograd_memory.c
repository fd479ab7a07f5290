/* Compares what each op saves, and what backward holds, with PyTorch's own count
 * (tests/golden/make_autograd_memory.py). tests/app/train/test_as_pytorch.c does so for models. */
#include "nn/autograd_memory.h"

#include "duet.h"
#include "nn/layers/text_functions.h"
#include "nn/tensor.h"
#include "tests/golden/golden.h"

static const char *const FACTS = "tests/golden/autograd_memory.txt";

/* Functions of x (4,6,8,8), or (4,24) for a loss. Parameters by their number below. */
typedef duet_var *function(duet_tape *t, duet_var *x, const duet_tensor *answers);
enum { W8, B8, W6, B6, CONV, CONV_BIAS, GROUPS, LINEAR };
static const int dims_23[] = {2, 3};

enum answers { NO_ANSWERS, LABELS, TARGETS };
// clang-format off
#define EACH_OP(OP) \
    OP(relu, NO_ANSWERS, duet_relu(t, x)) \
    OP(tanh, NO_ANSWERS, duet_tanh(t, x)) \
    OP(sigmoid, NO_ANSWERS, duet_sigmoid(t, x)) \
    OP(leaky_relu, NO_ANSWERS, duet_leaky_relu(t, x, 0.1)) \
    OP(elu, NO_ANSWERS, tape_function(t, x, ACTIVATION_ELU, 1)) \
    OP(hardtanh, NO_ANSWERS, duet_clamp(t, x, -1, 1)) \
    OP(gelu, NO_ANSWERS, duet_gelu(t, x, DUET_GELU)) \
    OP(silu, NO_ANSWERS, duet_silu(t, x)) \
    OP(hardswish, NO_ANSWERS, tape_function(t, x, ACTIVATION_HARDSWISH, 0)) \
    OP(hardsigmoid, NO_ANSWERS, tape_function(t, x, ACTIVATION_HARDSIGMOID, 0)) \
    OP(softplus, NO_ANSWERS, tape_function(t, x, ACTIVATION_SOFTPLUS, 0)) \
    OP(abs, NO_ANSWERS, duet_abs(t, x)) \
    OP(exp, NO_ANSWERS, duet_exp(t, x)) \
    OP(log, NO_ANSWERS, duet_log(t, x)) \
    OP(sqrt, NO_ANSWERS, duet_sqrt(t, x)) \
    OP(reciprocal, NO_ANSWERS, duet_reciprocal(t, x)) \
    OP(sin, NO_ANSWERS, tape_function(t, x, ACTIVATION_SIN, 0)) \
    OP(round, NO_ANSWERS, tape_function(t, x, ACTIVATION_ROUND, 0)) \
    OP(remainder, NO_ANSWERS, tape_function(t, x, ACTIVATION_REMAINDER, 3)) \
    OP(pow, NO_ANSWERS, duet_pow(t, x, 3)) \
    OP(multiply_number, NO_ANSWERS, duet_multiply_number(t, x, 2)) \
    OP(add_number, NO_ANSWERS, duet_add_number(t, x, 2)) \
    OP(add, NO_ANSWERS, duet_add(t, x, x)) \
    OP(subtract, NO_ANSWERS, duet_subtract(t, x, x)) \
    OP(multiply, NO_ANSWERS, duet_multiply(t, x, x)) \
    OP(matmul, NO_ANSWERS, duet_matmul(t, x, x)) \
    OP(sum, NO_ANSWERS, duet_sum(t, x, dims_23, 2, 0)) \
    OP(mean, NO_ANSWERS, duet_mean(t, x, dims_23, 2, 0)) \
    OP(avg_pool, NO_ANSWERS, duet_avg_pool2d(t, x, 3, &(struct duet_pool){.stride = {2, 2}, \
        .padding = {1, 1}})) \
    OP(max_pool, NO_ANSWERS, duet_max_pool2d(t, x, 3, &(struct duet_pool){.stride = {2, 2}, \
        .padding = {1, 1}})) \
    OP(adaptive_avg_pool, NO_ANSWERS, duet_adaptive_avg_pool2d(t, x, 2, 2)) \
    OP(adaptive_avg_pool_1, NO_ANSWERS, duet_adaptive_avg_pool2d(t, x, 1, 1)) \
    OP(pad, NO_ANSWERS, duet_pad2d(t, x, 1, 1, 1, 1, 0)) \
    OP(flatten, NO_ANSWERS, duet_flatten(t, x)) \
    OP(dropout, NO_ANSWERS, duet_dropout(t, x, 0.5)) \
    OP(dropout2d, NO_ANSWERS, duet_dropout2d(t, x, 0.5)) \
    OP(softmax, NO_ANSWERS, duet_softmax(t, x)) \
    OP(attention, NO_ANSWERS, duet_scaled_dot_product_attention(t, x, x, x, NULL)) \
    OP(log_softmax, NO_ANSWERS, duet_log_softmax(t, x)) \
    OP(layer_norm, NO_ANSWERS, duet_layer_norm(t, x, 1, (int[]){8}, W8, B8, 1e-5)) \
    OP(group_norm, NO_ANSWERS, duet_group_norm(t, x, 3, W6, B6, 1e-5)) \
    OP(batch_norm, NO_ANSWERS, duet_batch_norm(t, x, W6, B6, DUET_NO_BUFFERS, 1e-5, 0.1, 0)) \
    OP(conv2d, NO_ANSWERS, duet_conv2d(t, x, CONV, CONV_BIAS, NULL)) \
    OP(conv_groups, NO_ANSWERS, duet_conv2d(t, x, GROUPS, B6, &(struct duet_conv){{1, 1}, {0, 0}, \
        {1, 1}, 3})) \
    OP(linear, NO_ANSWERS, duet_linear(t, x, LINEAR, CONV_BIAS)) \
    OP(cross_entropy, LABELS, duet_cross_entropy(t, x, answers, DUET_MEAN, NULL)) \
    OP(nll_loss, LABELS, duet_nll_loss(t, x, answers, DUET_MEAN, NULL)) \
    OP(mse_loss, TARGETS, duet_mse_loss(t, x, answers, DUET_MEAN))
// clang-format on
#define FUNCTION(NAME, ANSWERS, CALL)                                                   \
    static duet_var *of_##NAME(duet_tape *t, duet_var *x, const duet_tensor *answers) { \
        (void)answers;                                                                  \
        return CALL;                                                                    \
    }
EACH_OP(FUNCTION)
#define CASE(NAME, ANSWERS, CALL) {#NAME, of_##NAME, ANSWERS},
static const struct op_case {
    const char *name;
    function *call;
    enum answers answers;
} cases[] = {EACH_OP(CASE)};

/* Counts by the rules what one op saves; after the walk the leaf's gradient is left. */
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
