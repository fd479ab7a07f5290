/* The functions that a model out of PyTorch is made of: PyTorch's numbers forward and backward, and
 * equal bits on 1, 2 and 4 devices that share 4 virtual ones. A row of the table is a function; the
 * row of that name in tests/golden/make_ops.py says it in PyTorch's words. */
#include "base/fold.h"
#include "tests/golden/golden.h"
#include "tests/nn/step.h"

enum { V = 4, MOST = 1 << 14, OP_PARAMS = 4 };

struct shape {
    int rank, dims[4];
};

struct function {
    const char *name;
    duet_var *(*call)(duet_tape *t, duet_var *x, duet_var *constant);
    struct shape x; /* dims[0]: of the golden facts */
    struct shape params[OP_PARAMS], constant;
    int tokens; /* bit 0: x is of indices, bit 1: the constant is */
    int own;    /* 1: x has the numbers of NAME_x, in place of a formula's */
};

static const char *const FACTS = "tests/golden/ops.txt";

/* ---- the functions; parameters are 0, 1, ... ---- */

#define CALL(name, expression)                                                    \
    static duet_var *call_##name(duet_tape *t, duet_var *x, duet_var *constant) { \
        (void)x, (void)constant;                                                  \
        return expression;                                                        \
    }

static duet_var *call_token(duet_tape *t, duet_var *x, duet_var *constant) {
    duet_var *both[2] = {duet_expand(t, duet_parameter(t, 0), 3, (int[]){-1, -1, -1}), x};
    (void)constant;
    return duet_add(t, duet_cat(t, both, 2, 1), duet_parameter(t, 1));
}
CALL(scale, duet_subtract(t, duet_multiply(t, x, duet_parameter(t, 0)), duet_parameter(t, 0)))
CALL(scale_1d, duet_multiply(t, duet_multiply(t, duet_parameter(t, 0), x),
                             duet_reshape(t, duet_parameter(t, 0), 2, (int[]){1, 5})))
CALL(weight, duet_matmul(t, x, duet_parameter(t, 0)))
CALL(left, duet_matmul(t, duet_parameter(t, 0), x))
CALL(view, duet_matmul(t, x, duet_reshape(t, duet_parameter(t, 0), 2, (int[]){5, 2})))
CALL(constant_left, duet_matmul(t, constant, x))
CALL(constant_right, duet_matmul(t, x, constant))
CALL(mask, duet_matmul(t, duet_add(t, x, constant), duet_reshape(t, constant, 2, (int[]){5, 4})))
CALL(words, duet_add(t, duet_embedding_of(t, x, 0, -1), duet_embedding_of(t, constant, 1, -1)))
CALL(tied, duet_linear(t, duet_embedding_of(t, x, 0, -1), 0, DUET_NO_BIAS))
CALL(silu, duet_silu(t, duet_multiply_number(t, x, 4)))
CALL(hardswish, duet_hardswish(t, duet_multiply_number(t, x, 4)))
CALL(hardsigmoid, duet_hardsigmoid(t, duet_multiply_number(t, x, 4)))
CALL(clamp, duet_clamp(t, x, -0.3, 0.7))
CALL(clamp_below, duet_clamp(t, x, -0.5, INFINITY))
CALL(clamp_above, duet_clamp(t, x, -INFINITY, 0.5))
CALL(pow, duet_pow(t, x, 3))
CALL(pow_minus_1, duet_pow(t, x, -1))
CALL(pow_minus_2, duet_pow(t, x, -2))
CALL(pow_0, duet_pow(t, x, 0))
CALL(pow_1, duet_pow(t, x, 1))
CALL(pow_2, duet_pow(t, x, 2))
CALL(pow_3, duet_pow(t, x, 3))
CALL(pow_half, duet_pow(t, x, 0.5))
CALL(pow_three_halves, duet_pow(t, x, 1.5))
CALL(pow_65, duet_pow(t, x, 65))

CALL(where, duet_where(t, duet_above(t, x, 0), duet_multiply(t, x, x), duet_parameter(t, 0)))
CALL(taken, duet_take_along_dim(t, x, constant, 1))
CALL(taken_rows, duet_take_along_dim(t, x, constant, -2))
CALL(taken_of_table, duet_take_along_dim(t, duet_parameter(t, 0), x, 1))
CALL(added, duet_scatter_add(t, constant, x, 2, 5))
CALL(added_rows, duet_scatter_add(t, constant, x, 1, 5))
CALL(argsort, duet_multiply(t, x, duet_argsort(t, x, 1, 0)))
CALL(argsort_last, duet_multiply(t, x, duet_argsort(t, x, -1, 1)))
CALL(sorted, duet_take_along_dim(t, x, duet_argsort(t, x, 2, 1), 2))
CALL(masked_fill, duet_masked_fill(t, x, constant, -2.5))
CALL(erf, duet_erf(t, duet_multiply_number(t, x, 2)))
CALL(sin, duet_sin(t, duet_multiply_number(t, x, 4)))
CALL(cos, duet_cos(t, duet_multiply_number(t, x, 4)))
CALL(sin_far, duet_sin(t, x))
CALL(cos_far, duet_cos(t, x))
CALL(round, duet_round(t, x, DUET_NEAREST))
CALL(floor, duet_round(t, x, DUET_FLOOR))
CALL(ceil, duet_round(t, x, DUET_CEIL))
CALL(remainder_by_3, duet_modulo(t, x, 3, DUET_REMAINDER))
CALL(remainder_by_minus, duet_modulo(t, x, -2.5, DUET_REMAINDER))
CALL(fmod_by_3, duet_modulo(t, x, 3, DUET_FMOD))
CALL(fmod_by_minus, duet_modulo(t, x, -2.5, DUET_FMOD))
CALL(divide_by_3, duet_modulo(t, x, 3, DUET_FLOOR_DIVIDE))
CALL(divide_by_minus, duet_modulo(t, x, -2.5, DUET_FLOOR_DIVIDE))
CALL(trunc, duet_round(t, x, DUET_TRUNC))
CALL(padded, duet_embedding_of(t, x, 0, 2))
CALL(windows, duet_reshape(t,
                           duet_permute(t, duet_reshape(t, x, 6, (int[]){-1, 2, 2, 3, 2, 2}),
                                        (int[]){0, 1, 3, 5, 2, 4}),
                           4, (int[]){-1, 6, 2, 4}))
CALL(transposed,
     duet_conv_transpose(t, x, 0, 1, &(struct duet_conv){{2, 2}, {1, 1}, {1, 1}, 1}, (int[]){1, 1}))
CALL(transposed_groups,
     duet_conv_transpose(t, x, 0, DUET_NO_BIAS, &(struct duet_conv){{2, 1}, {0, 1}, {1, 2}, 2},
                         (int[]){1, 0}))
CALL(transposed_1d,
     duet_conv_transpose(t, x, 0, 1, &(struct duet_conv){{3}, {1}, {1}, 1}, (int[]){2, 0}))
CALL(depthwise, duet_conv2d(t, x, 0, 1, &(struct duet_conv){{2}, {1}, {1}, 4}))
CALL(grouped, duet_conv2d(t, x, 0, DUET_NO_BIAS,
                          &(struct duet_conv){{1, 2}, {2, DUET_NO_PADDING}, {2, 1}, 2}))
CALL(conv1d, duet_conv2d(t, x, 0, 1, &(struct duet_conv){{2}, {2}, {2}, 1}))
CALL(square, duet_conv2d(t, x, 0, 1, &(struct duet_conv){{2, 2}, {1, 1}, {1, 1}, 1}))

/* Keys and values are made of x too, so that all three get gradients. */
static duet_var *attention_of(duet_tape *t, duet_var *x, const struct duet_attention_options *o) {
    duet_var *k = duet_multiply(t, x, duet_parameter(t, 0)),
             *v = duet_matmul(t, x, duet_parameter(t, 1));
    return duet_scaled_dot_product_attention(t, x, k, v, o);
}
CALL(attention, attention_of(t, x, NULL))
CALL(attention_causal,
     attention_of(t, x, &(struct duet_attention_options){.is_causal = 1, .scale = 3}))
CALL(attention_mask, attention_of(t, x,
                                  &(struct duet_attention_options){
                                      .attn_mask = duet_multiply_number(t, constant, 9)}))
CALL(attention_learned, duet_scaled_dot_product_attention(t, duet_parameter(t, 0), x, x, NULL))

static const struct function functions[] = {
    {"attention", call_attention, {4, {3, 2, 5, 4}}, {{1, {4}}, {2, {4, 3}}}, {0}, 0, 0},
    {"attention_causal", call_attention_causal, {3, {3, 5, 4}}, {{1, {4}}, {2, {4, 3}}}, {0}, 0, 0},
    {"attention_mask",
     call_attention_mask,
     {4, {3, 2, 5, 4}},
     {{1, {4}}, {2, {4, 3}}},
     {3, {2, 1, 5}},
     0,
     0},
    {"attention_learned", call_attention_learned, {3, {3, 5, 4}}, {{2, {6, 4}}}, {0}, 0, 0},
    {"where", call_where, {3, {3, 4, 5}}, {{1, {5}}}, {0}, 0, 0},
    {"taken", call_taken, {3, {3, 6, 4}}, {{0}}, {2, {9, 4}}, 2, 0},
    {"taken_rows", call_taken_rows, {3, {3, 6, 4}}, {{0}}, {2, {3, 1}}, 2, 0},
    {"taken_of_table", call_taken_of_table, {2, {3, 4}}, {{1, {6}}}, {0}, 1, 0},
    {"added", call_added, {3, {3, 4, 6}}, {{0}}, {1, {6}}, 2, 0},
    {"added_rows", call_added_rows, {3, {3, 7, 4}}, {{0}}, {2, {7, 1}}, 2, 0},
    {"argsort", call_argsort, {3, {3, 6, 4}}, {{0}}, {0}, 0, 0},
    {"argsort_last", call_argsort_last, {2, {2, 7}}, {{0}}, {0}, 0, 1},
    {"sorted", call_sorted, {3, {3, 4, 37}}, {{0}}, {0}, 0, 0},
    {"masked_fill", call_masked_fill, {2, {3, 4}}, {{0}}, {1, {4}}, 2, 0},
    {"erf", call_erf, {3, {3, 4, 5}}, {{0}}, {0}, 0, 0},
    {"sin", call_sin, {3, {3, 4, 5}}, {{0}}, {0}, 0, 0},
    {"cos", call_cos, {3, {3, 4, 5}}, {{0}}, {0}, 0, 0},
    {"sin_far", call_sin_far, {2, {2, 4}}, {{0}}, {0}, 0, 1},
    {"cos_far", call_cos_far, {2, {2, 4}}, {{0}}, {0}, 0, 1},
    {"round", call_round, {2, {2, 4}}, {{0}}, {0}, 0, 1},
    {"floor", call_floor, {2, {2, 4}}, {{0}}, {0}, 0, 1},
    {"ceil", call_ceil, {2, {2, 4}}, {{0}}, {0}, 0, 1},
    {"remainder_by_3", call_remainder_by_3, {2, {2, 4}}, {{0}}, {0}, 0, 1},
    {"remainder_by_minus", call_remainder_by_minus, {2, {2, 4}}, {{0}}, {0}, 0, 1},
    {"fmod_by_3", call_fmod_by_3, {2, {2, 4}}, {{0}}, {0}, 0, 1},
    {"fmod_by_minus", call_fmod_by_minus, {2, {2, 4}}, {{0}}, {0}, 0, 1},
    {"divide_by_3", call_divide_by_3, {2, {2, 4}}, {{0}}, {0}, 0, 1},
    {"divide_by_minus", call_divide_by_minus, {2, {2, 4}}, {{0}}, {0}, 0, 1},
    {"trunc", call_trunc, {2, {2, 4}}, {{0}}, {0}, 0, 1},
    {"padded", call_padded, {2, {3, 4}}, {{2, {5, 6}}}, {0}, 1, 0},
    {"windows", call_windows, {3, {3, 4, 12}}, {{0}}, {0}, 0, 0},
    {"transposed", call_transposed, {4, {3, 4, 3, 2}}, {{4, {4, 2, 3, 3}}, {1, {2}}}, {0}, 0, 0},
    {"transposed_groups",
     call_transposed_groups,
     {4, {3, 4, 3, 2}},
     {{4, {4, 3, 2, 3}}},
     {0},
     0,
     0},
    {"transposed_1d", call_transposed_1d, {3, {3, 4, 3}}, {{3, {4, 2, 4}}, {1, {2}}}, {0}, 0, 0},
    {"depthwise", call_depthwise, {4, {3, 4, 6, 5}}, {{4, {4, 1, 3, 3}}, {1, {4}}}, {0}, 0, 0},
    {"grouped", call_grouped, {4, {3, 4, 6, 5}}, {{4, {6, 2, 3, 2}}}, {0}, 0, 0},
    {"conv1d", call_conv1d, {3, {3, 4, 9}}, {{3, {5, 4, 3}}, {1, {5}}}, {0}, 0, 0},
    {"square", call_square, {4, {3, 4, 6, 5}}, {{4, {2, 4, 3, 3}}, {1, {2}}}, {0}, 0, 0},
    {"token", call_token, {3, {3, 4, 5}}, {{3, {1, 1, 5}}, {3, {1, 5, 5}}}, {0}, 0, 0},
    {"scale", call_scale, {4, {3, 4, 2, 3}}, {{3, {4, 1, 1}}}, {0}, 0, 0},
    {"scale_1d", call_scale_1d, {3, {3, 4, 5}}, {{1, {5}}}, {0}, 0, 0},
    {"weight", call_weight, {3, {3, 4, 5}}, {{2, {5, 2}}}, {0}, 0, 0},
    {"vector", call_weight, {3, {3, 4, 5}}, {{1, {5}}}, {0}, 0, 0},
    {"vector_2d", call_weight, {2, {5, 5}}, {{1, {5}}}, {0}, 0, 0},
    {"vector_4d", call_weight, {4, {3, 2, 4, 5}}, {{1, {5}}}, {0}, 0, 0},
    {"left_vector", call_left, {3, {3, 4, 5}}, {{1, {4}}}, {0}, 0, 0},
    {"left_vector_4d", call_left, {4, {3, 2, 4, 5}}, {{1, {4}}}, {0}, 0, 0},
    {"view", call_view, {3, {3, 4, 5}}, {{1, {10}}}, {0}, 0, 0},
    {"view_2d", call_view, {2, {5, 5}}, {{1, {10}}}, {0}, 0, 0},
    {"constant_left", call_constant_left, {3, {3, 4, 5}}, {{0}}, {1, {4}}, 0, 0},
    {"constant_right", call_constant_right, {2, {5, 5}}, {{0}}, {1, {5}}, 0, 0},
    {"mask", call_mask, {3, {3, 4, 5}}, {{0}}, {2, {4, 5}}, 0, 0},
    {"words", call_words, {2, {3, 4}}, {{2, {5, 6}}, {2, {5, 6}}}, {1, {4}}, 3, 0},
    {"word", call_words, {2, {3, 1}}, {{2, {5, 6}}, {2, {5, 6}}}, {1, {1}}, 3, 0},
    {"word_row", call_words, {2, {3, 4}}, {{2, {5, 6}}, {2, {5, 6}}}, {2, {1, 4}}, 3, 0},
    {"tied", call_tied, {2, {3, 4}}, {{2, {5, 6}}}, {0}, 1, 0},
    {"silu", call_silu, {3, {3, 4, 5}}, {{0}}, {0}, 0, 0},
    {"hardswish", call_hardswish, {3, {3, 4, 5}}, {{0}}, {0}, 0, 0},
    {"hardsigmoid", call_hardsigmoid, {3, {3, 4, 5}}, {{0}}, {0}, 0, 0},
    {"clamp", call_clamp, {3, {3, 4, 5}}, {{0}}, {0}, 0, 0},
    {"pow", call_pow, {3, {3, 4, 5}}, {{0}}, {0}, 0, 0},
    {"clamp_below", call_clamp_below, {2, {2, 4}}, {{0}}, {0}, 0, 1},
    {"clamp_above", call_clamp_above, {2, {2, 4}}, {{0}}, {0}, 0, 1},
    {"pow_minus_1", call_pow_minus_1, {2, {2, 4}}, {{0}}, {0}, 0, 1},
    {"pow_minus_2", call_pow_minus_2, {2, {2, 4}}, {{0}}, {0}, 0, 1},
    {"pow_0", call_pow_0, {2, {2, 4}}, {{0}}, {0}, 0, 1},
    {"pow_1", call_pow_1, {2, {2, 4}}, {{0}}, {0}, 0, 1},
    {"pow_2", call_pow_2, {2, {2, 4}}, {{0}}, {0}, 0, 1},
    {"pow_3", call_pow_3, {2, {2, 4}}, {{0}}, {0}, 0, 1},
    {"pow_half", call_pow_half, {2, {2, 4}}, {{0}}, {0}, 0, 1},
    {"pow_three_halves", call_pow_three_halves, {2, {2, 4}}, {{0}}, {0}, 0, 1},
    {"pow_65", call_pow_65, {2, {2, 4}}, {{0}}, {0}, 0, 1},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

/* ---- one pass ---- */

struct result {
    int y_rank, y_dims[MAX_RANK], y_count; /* y_count: of a sample */
    float y[MOST], dx[MOST], dw[OP_PARAMS][MOST];
};

static int count_of(const struct shape *s, int from) {
    int count = 1;
    for (int i = from; i < s->rank; i++)
        count *= s->dims[i];
    return count;
}

static void upload(struct device *device, void **to, const float *from, size_t bytes) {
    MUST(device_alloc(device, to, MOST * sizeof(float), MEM_WORKSPACE));
    MUST(copy_to_device(device_compute(device), *to, from, bytes));
}

/* Sample i of the batch is sample first[segment] + i of all. */
static void run(struct device *device, const struct function *f, const struct segments *segments,
                const int *first, struct result *r) {
    static float x[MOST], dy[MOST], constant[MOST];
    struct param_spec specs[OP_PARAMS] = {{0}};
    struct param_set params = {0};
    struct step_block block = {.seed = 7, .step = 3};
    struct tensor in = tensor_plain(NULL, DTYPE_F32, f->x.rank, f->x.dims);
    duet_tensor fixed = {.device = device};
    struct golden_tensor own = {.count = 0};
    duet_tape *tape;
    void *at_dy, *at_block;
    int n = 0, count = 0, each = count_of(&f->x, 1);
    for (; count < OP_PARAMS && f->params[count].rank; count++) {
        specs[count] = (struct param_spec){"w", f->params[count].rank, {0}, 0};
        memcpy(specs[count].dims, f->params[count].dims, sizeof f->params[count].dims);
    }
    if (f->own) {
        char key[64];
        snprintf(key, sizeof key, "%s_x", f->name);
        own = golden_tensor(FACTS, key);
    }
    for (int s = 0; s < segments->count; s++)
        for (int k = 0; k < segments->seg[s].n * each; k++, n++) {
            int i = first[segments->seg[s].v] * each + k;
            x[n] = f->tokens & 1 ? (float)(i * 7 % 5)
                   : f->own      ? (float)own.x[(size_t)i % own.count]
                                 : golden_value(i, 7919);
        }
    for (int i = 0; i < MOST; i++)
        constant[i] = f->tokens & 2 ? (float)(i * 7 % 5) : golden_value(i, 2003);
    in.dims[0] = segments->n;
    upload(device, &in.data, x, sizeof x);
    upload(device, &fixed.t.data, constant, sizeof constant);
    upload(device, &at_block, (const float *)(const void *)&block, sizeof block);
    if (count) MUST(param_set_init(&params, device, specs, count));
    for (int k = 0; k < count; k++) {
        for (int i = 0; i < count_of(&f->params[k], 0); i++)
            dy[i] = golden_value(i, 6007 + 202 * k) / 2;
        MUST(param_write_value(&params, k, dy));
    }
    MUST(tape_init(&tape, device));
    struct tape_step step = {
        .segments = segments, .params = count ? &params : NULL, .step = at_block, .training = 1};
    MUST(tape_begin(tape, &step));
    duet_var *leaf = tape_leaf(tape, &in, !(f->tokens & 1)), *common = NULL;
    if (f->constant.rank) {
        fixed.t = tensor_plain(fixed.t.data, DTYPE_F32, f->constant.rank, f->constant.dims);
        common = duet_constant(tape, &fixed);
    }
    duet_var *y = to_plain(tape, f->call(tape, to_device_layout(tape, leaf), common));
    cr_assert_not_null(y, "%s: %s", f->name, (tape_error(tape), error_message()));
    r->y_count = (int)tensor_sample_count(&y->value);
    r->y_rank = y->value.rank;
    memcpy(r->y_dims, y->value.dims, sizeof r->y_dims);
    cr_assert_leq(segments->n * r->y_count, (int)MOST);
    for (int s = 0, at = 0; s < segments->count; s++)
        for (int k = 0; k < segments->seg[s].n * r->y_count; k++, at++)
            dy[at] = golden_value(first[segments->seg[s].v] * r->y_count + k, 3571);
    upload(device, &at_dy, dy, sizeof dy);
    struct tensor root = y->value;
    root.data = at_dy;
    MUST(tape_backward(tape, y, &root));
    MUST(copy_to_host(device_compute(device), r->y, y->value.data, tensor_bytes(&y->value)));
    if (leaf->needs_grad)
        MUST(copy_to_host(device_compute(device), r->dx, leaf->grad.data, tensor_bytes(&in)));
    for (int k = 0; k < count; k++)
        MUST(param_read_grad(&params, k, r->dw[k]));
    MUST(stream_sync(device_compute(device)));
    duet_tape_free(tape);
    param_set_free(&params);
    void *const memory[] = {in.data, fixed.t.data, at_block, at_dy};
    for (int i = 0; i < 4; i++)
        device_free(device, memory[i]);
}

/* ---- PyTorch's numbers ---- */

/* Some roundings to float; a wrong term is 1e-2. */
static void expect(const struct function *f, const char *what, const float *got, int rank,
                   const int *dims) {
    char key[64];
    snprintf(key, sizeof key, "%s_%s", f->name, what);
    struct golden_tensor want = golden_tensor(FACTS, key);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(i < rank ? dims[i] : 0, want.dims[i], "%s: dimension %d is %d, not %d", key, i,
                     i < rank ? dims[i] : 0, want.dims[i]);
    golden_near(FACTS, key, got, want.count, 2e-6);
}

static struct device_config config_of(enum device_kind kind, int index, int reference) {
    return (struct device_config){.kind = kind,
                                  .index = index,
                                  .memory_bytes = 16 << 20,
                                  .check_operands = 1,
                                  .reference_math = reference};
}

Test(ops, pytorch_has_the_same_numbers, .timeout = 60) {
    static struct result r;
    static const int zero[1] = {0};
    for (int i = 0; i < 2 * FUNCTIONS; i++) {
        const struct function *f = &functions[i / 2];
        struct segments one = {.count = 1, .n = f->x.dims[0], .seg = {{0, f->x.dims[0]}}};
        struct device_config config = config_of(DEVICE_HOST, 0, i % 2);
        struct device *device;
        MUST(device_open(&device, &config));
        run(device, f, &one, zero, &r);
        device_close(device);
        expect(f, "y", r.y, r.y_rank, r.y_dims);
        if (!(f->tokens & 1)) expect(f, "dx", r.dx, f->x.rank, f->x.dims);
        for (int k = 0; k < OP_PARAMS && f->params[k].rank; k++)
            expect(f, (char[3]){'d', (char)('0' + k), 0}, r.dw[k], f->params[k].rank,
                   f->params[k].dims);
    }
}

/* ---- equal bits ---- */

static const int counts[V] = {9, 17, 0, 10}, firsts[V] = {0, 9, 26, 26};

/* The gradients of W devices are folded as DP folds them. */
static void train_on(int world, enum device_kind kind, const struct function *f,
                     struct result *all) {
    static struct result part[V];
    for (int r = 0; r < world; r++) {
        struct device_config config = config_of(kind, r, 0);
        struct segments segments = segments_of(counts, V, r, world);
        struct device *device;
        int each = count_of(&f->x, 1);
        MUST(device_open(&device, &config));
        memset(&part[r], 0, sizeof part[r]);
        run(device, f, &segments, firsts, &part[r]);
        device_close(device);
        int width = all->y_count = part[r].y_count;
        for (int s = 0, at = 0; s < segments.count; at += segments.seg[s++].n) {
            int v = segments.seg[s].v, n = segments.seg[s].n;
            memcpy(all->y + firsts[v] * width, part[r].y + at * width,
                   (size_t)(n * width) * sizeof(float));
            memcpy(all->dx + firsts[v] * each, part[r].dx + at * each,
                   (size_t)(n * each) * sizeof(float));
        }
    }
    for (struct fold fold = fold_begin(world); fold_next(&fold);)
        for (int k = 0; k < OP_PARAMS; k++)
            for (int i = 0; i < MOST; i++)
                part[fold.to].dw[k][i] += part[fold.from].dw[k][i];
    memcpy(all->dw, part[0].dw, sizeof all->dw);
}

Test(ops, bits_do_not_depend_on_the_number_of_devices, .timeout = 120) {
    static struct result single, other;
    for (int i = 0; i < FUNCTIONS; i++) {
        memset(&single, 0, sizeof single), memset(&other, 0, sizeof other);
        train_on(1, DEVICE_HOST, &functions[i], &single);
        for (int world = 1; world <= V; world *= 2) {
            train_on(world, DEVICE_HOST_LATE, &functions[i], &other);
            cr_assert(!memcmp(&other, &single, sizeof single), "%s on %d devices",
                      functions[i].name, world);
        }
    }
}
