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
};

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
CALL(mask, duet_matmul(t, duet_add(t, x, constant), duet_reshape(t, constant, 2, (int[]){5, 4})))
CALL(words, duet_add(t, duet_embedding_of(t, x, 0), duet_embedding_of(t, constant, 1)))
CALL(tied, duet_linear(t, duet_embedding_of(t, x, 0), 0, DUET_NO_BIAS))
CALL(silu, duet_silu(t, duet_multiply_number(t, x, 4)))
CALL(hardswish, duet_hardswish(t, duet_multiply_number(t, x, 4)))
CALL(hardsigmoid, duet_hardsigmoid(t, duet_multiply_number(t, x, 4)))
CALL(clamp, duet_clamp(t, x, -0.3, 0.7))
CALL(pow, duet_pow(t, x, 3))

CALL(depthwise, duet_conv(t, x, 0, 1, &(struct duet_conv){{2, 2}, {1, 1}, {1, 1}, 4}))
CALL(grouped, duet_conv(t, x, 0, DUET_NO_BIAS, &(struct duet_conv){{1, 2}, {2, 0}, {2, 1}, 2}))
CALL(conv1d, duet_conv(t, x, 0, 1, &(struct duet_conv){{2}, {2}, {2}, 1}))
CALL(square, duet_conv(t, x, 0, 1, &(struct duet_conv){{2, 2}, {1, 1}, {1, 1}, 1}))

static const struct function functions[] = {
    {"depthwise", call_depthwise, {4, {3, 4, 6, 5}}, {{4, {4, 1, 3, 3}}, {1, {4}}}, {0}, 0},
    {"grouped", call_grouped, {4, {3, 4, 6, 5}}, {{4, {6, 2, 3, 2}}}, {0}, 0},
    {"conv1d", call_conv1d, {3, {3, 4, 9}}, {{3, {5, 4, 3}}, {1, {5}}}, {0}, 0},
    {"square", call_square, {4, {3, 4, 6, 5}}, {{4, {2, 4, 3, 3}}, {1, {2}}}, {0}, 0},
    {"token", call_token, {3, {3, 4, 5}}, {{3, {1, 1, 5}}, {3, {1, 5, 5}}}, {0}, 0},
    {"scale", call_scale, {4, {3, 4, 2, 3}}, {{3, {4, 1, 1}}}, {0}, 0},
    {"scale_1d", call_scale_1d, {3, {3, 4, 5}}, {{1, {5}}}, {0}, 0},
    {"weight", call_weight, {3, {3, 4, 5}}, {{2, {5, 2}}}, {0}, 0},
    {"mask", call_mask, {3, {3, 4, 5}}, {{0}}, {2, {4, 5}}, 0},
    {"words", call_words, {2, {3, 4}}, {{2, {5, 6}}, {2, {5, 6}}}, {1, {4}}, 3},
    {"tied", call_tied, {2, {3, 4}}, {{2, {5, 6}}}, {0}, 1},
    {"silu", call_silu, {3, {3, 4, 5}}, {{0}}, {0}, 0},
    {"hardswish", call_hardswish, {3, {3, 4, 5}}, {{0}}, {0}, 0},
    {"hardsigmoid", call_hardsigmoid, {3, {3, 4, 5}}, {{0}}, {0}, 0},
    {"clamp", call_clamp, {3, {3, 4, 5}}, {{0}}, {0}, 0},
    {"pow", call_pow, {3, {3, 4, 5}}, {{0}}, {0}, 0},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

/* ---- one pass ---- */

static float value(int i, int a) {
    return (float)((i * a + 13) % 1000 / 500.0 - 1);
}

struct result {
    int y_count; /* of a sample */
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
    struct tensor in = tensor_plain(NULL, DTYPE_F32, f->x.rank, f->x.dims), fixed = {0};
    duet_tape *tape;
    void *at_dy, *at_block;
    int n = 0, count = 0, each = count_of(&f->x, 1);
    for (; count < OP_PARAMS && f->params[count].rank; count++) {
        specs[count] = (struct param_spec){"w", f->params[count].rank, {0}};
        memcpy(specs[count].dims, f->params[count].dims, sizeof specs[count].dims);
    }
    for (int s = 0; s < segments->count; s++)
        for (int k = 0; k < segments->seg[s].n * each; k++, n++) {
            int i = first[segments->seg[s].v] * each + k;
            x[n] = f->tokens & 1 ? (float)(i * 7 % 5) : value(i, 7919);
        }
    for (int i = 0; i < MOST; i++)
        constant[i] = f->tokens & 2 ? (float)(i * 7 % 5) : value(i, 2003);
    in.dims[0] = segments->n;
    upload(device, &in.data, x, sizeof x);
    upload(device, &fixed.data, constant, sizeof constant);
    upload(device, &at_block, (const float *)(const void *)&block, sizeof block);
    if (count) MUST(param_set_init(&params, device, specs, count));
    for (int k = 0; k < count; k++) {
        for (int i = 0; i < count_of(&f->params[k], 0); i++)
            dy[i] = value(i, 6007 + 202 * k) / 2;
        MUST(param_write_value(&params, k, dy));
    }
    MUST(tape_init(&tape, device));
    struct tape_step step = {
        .segments = segments, .params = count ? &params : NULL, .step = at_block, .training = 1};
    MUST(tape_begin(tape, &step));
    duet_var *leaf = tape_leaf(tape, &in, !(f->tokens & 1)), *common = NULL;
    if (f->constant.rank) {
        fixed = tensor_plain(fixed.data, DTYPE_F32, f->constant.rank, f->constant.dims);
        common = tape_constant(tape, &fixed);
    }
    duet_var *y = to_plain(tape, f->call(tape, to_device_layout(tape, leaf), common));
    cr_assert_not_null(y, "%s: %s", f->name, (tape_error(tape), error_message()));
    r->y_count = (int)tensor_sample_count(&y->value);
    cr_assert_leq(segments->n * r->y_count, (int)MOST);
    for (int s = 0, at = 0; s < segments->count; s++)
        for (int k = 0; k < segments->seg[s].n * r->y_count; k++, at++)
            dy[at] = value(first[segments->seg[s].v] * r->y_count + k, 3571);
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
    void *const memory[] = {in.data, fixed.data, at_block, at_dy};
    for (int i = 0; i < 4; i++)
        device_free(device, memory[i]);
}

/* ---- PyTorch's numbers ---- */

static void expect(const char *name, const char *what, const float *got, size_t count) {
    char key[64], *line = NULL, *end;
    size_t size = 0, length = (size_t)snprintf(key, sizeof key, "%s_%s :", name, what);
    FILE *file = fopen("tests/golden/ops.txt", "r");
    cr_assert_not_null(file, "cannot read tests/golden/ops.txt: run in the project's root");
    while (getline(&line, &size, file) > 0 && strncmp(line, key, length) != 0)
        ;
    fclose(file);
    cr_assert(line && !strncmp(line, key, length), "ops.txt has no line %s", key);
    end = line + length;
    for (size_t i = 0; i < count; i++) {
        double want = strtod(end, &end);
        /* some roundings to float: a wrong term is 1e-2 */
        cr_assert(fabs((double)got[i] - want) <= 2e-6 * (1 + fabs(want)),
                  "%s %s[%zu] is %.9g, not %.9g", name, what, i, (double)got[i], want);
    }
    cr_assert_eq(*end, '\n', "%s %s: PyTorch has more numbers", name, what);
    free(line);
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
        expect(f->name, "y", r.y, (size_t)(one.n * r.y_count));
        if (!(f->tokens & 1)) expect(f->name, "dx", r.dx, (size_t)count_of(&f->x, 0));
        for (int k = 0; k < OP_PARAMS && f->params[k].rank; k++)
            expect(f->name, (char[3]){'d', (char)('0' + k), 0}, r.dw[k],
                   (size_t)count_of(&f->params[k], 0));
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
        struct segments segments = {0};
        struct device *device;
        int each = count_of(&f->x, 1);
        for (int v = r; v < V; v += world) {
            segments.seg[segments.count++] = (struct segment){v, counts[v]};
            segments.n += counts[v];
        }
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
