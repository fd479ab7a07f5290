/* Every function and layer of the tape, in one table (op_rows.h, layer_rows.h). A row is checked in
 * three ways: with PyTorch's numbers forward and backward on every kind of device, also with the
 * reference kernels; with central differences of its own forward pass; and by equal bits on 1, 2
 * and 4 devices that share 4 virtual devices. */
#include "base/philox.h"
#include "tests/core/nn/op_bed.h"

/* ---- functions of several lines ---- */

#define S(...) \
    { sizeof((int[]){__VA_ARGS__}) / sizeof(int), {__VA_ARGS__}, 0 }
#define L(factor, ...) \
    { sizeof((int[]){__VA_ARGS__}) / sizeof(int), {__VA_ARGS__}, factor }
#define I(...)      \
    (int[]) {       \
        __VA_ARGS__ \
    }
#define VARS(...)    \
    (duet_var *[]) { \
        __VA_ARGS__  \
    }
#define TIMES(a, number) duet_multiply_number(t, a, number)
#define ADD(a, b) duet_add(t, a, b)
#define RELU(a) duet_relu(t, a)
#define OF(a, KIND, number) tape_function(t, a, ACTIVATION_##KIND, number)
#define P(i) duet_parameter(t, i)
#define WORDS(a, i) duet_embedding_of(t, a, i, -1)
/* A second setting of 0 would be the first again. */
#define SECOND(p, p1) ((p) && !(p1) ? DUET_NO_PADDING : (p1))
#define CONV(s, s1, p, p1, d, d1, groups)            \
    &(struct duet_conv) {                            \
        {s, s1}, {p, SECOND(p, p1)}, {d, d1}, groups \
    }
#define CONV1D(s, p, d)   \
    &(struct duet_conv) { \
        {s}, {p}, {d}, 1  \
    }
#define POOL(width, s, s1, p, p1, ceil)          \
    &(struct duet_pool) {                        \
        {s, s1}, {p, SECOND(p, p1)}, ceil, width \
    }
#define HOW(...)                       \
    &(struct duet_attention_options) { \
        __VA_ARGS__                    \
    }

/* One operand of a sum is used again, after the sum or before it. */
static duet_var *use_behind(duet_tape *t, duet_var *x, int before) {
    duet_var *b = RELU(x), *a = RELU(x), *c = RELU(before ? b : a);
    return before ? ADD(ADD(ADD(a, b), RELU(a)), c) : ADD(c, ADD(ADD(a, b), RELU(b)));
}
static duet_var *more_uses(duet_tape *t, duet_var *x) {
    duet_var *a = RELU(x), *b = RELU(x), *c = RELU(a), *d = RELU(b);
    return ADD(ADD(ADD(a, b), ADD(c, d)), ADD(RELU(c), RELU(d)));
}
static duet_var *residual(duet_tape *t, duet_var *x) {
    return RELU(ADD(RELU(RELU(x)), x));
}
/* Both terms of a difference are used again after it, so no gradient may be written in place. */
static duet_var *difference(duet_tape *t, duet_var *a, duet_var *b) {
    duet_var *d = duet_subtract(t, a, b);
    return ADD(duet_multiply(t, d, d), duet_subtract(t, duet_multiply(t, a, d), RELU(b)));
}
static duet_var *views(duet_tape *t, duet_var *a, duet_var *b) {
    duet_var *p = duet_reshape(t, a, 4, I(-1, 1, 3, 2)),
             *q = duet_reshape(t, duet_reshape(t, b, 3, I(-1, 2, 3)), 4, I(-1, 1, 3, 2));
    return duet_reshape(t, duet_multiply(t, p, q), 2, I(-1, 6));
}
/* A token of each sample is looked up, and stands beside the numbers. */
static duet_var *looked_up(duet_tape *t, duet_var *x) {
    duet_var *word = WORDS(OF(duet_narrow(t, x, 1, 0, 2), ABOVE, 0), 0);
    return duet_multiply(t, duet_flatten(t, word), duet_narrow(t, x, 1, 4, 16));
}
/* Products of words with each other, as attention without weights. */
static duet_var *mixed_words(duet_tape *t, duet_var *x) {
    duet_var *words = WORDS(x, 0), *row = duet_reshape(t, words, 4, I(-1, 1, 3, 4)),
             *columns = duet_reshape(t, words, 4, I(-1, 3, 4, 1)),
             *products = duet_reshape(t, duet_matmul(t, row, columns), 3, I(-1, 3, 3)),
             *scores = duet_matmul(t, words, duet_reshape(t, words, 3, I(-1, 4, 3))),
             *mean = duet_mean(t, words, I(1), 1, 1);
    return duet_mean(t, duet_multiply(t, duet_matmul(t, ADD(scores, products), words), mean), I(1),
                     1, 0);
}
static duet_var *windows(duet_tape *t, duet_var *x) {
    duet_var *y = duet_reshape(t, x, 6, I(-1, 2, 2, 3, 2, 2));
    return duet_reshape(t, duet_permute(t, y, I(0, 1, 3, 5, 2, 4)), 4, I(-1, 6, 2, 4));
}
/* Keys and values are made of x too, so that all three get gradients. */
static duet_var *attention(duet_tape *t, duet_var *x, const struct duet_attention_options *o) {
    duet_var *k = duet_multiply(t, x, P(0)), *v = duet_matmul(t, x, P(1));
    return duet_scaled_dot_product_attention(t, x, k, v, o);
}
/* With all optional arguments (biases and first states), or with none. */
static duet_var *recurrent(struct call *c, enum duet_recurrent_kind kind, int states, int reverse,
                           int full) {
    const int none = DUET_NO_BIAS;
    const struct duet_recurrent layer = {kind, 0, 1, full ? 2 : none, full ? 3 : none, reverse};
    c->more[0] = c->b[0], c->more[1] = c->b[1];
    return duet_recurrent(c->t, c->x, &layer, &c->more[0], states > 1 ? &c->more[1] : NULL);
}

/* ---- the table ---- */

#define ROW(name, expression, ...)                          \
    static duet_var *call_##name(struct call *c) {          \
        duet_tape *t = c->t;                                \
        duet_var *x = c->x, *b = c->b[0], *k = c->constant; \
        const duet_tensor *index = c->index;                \
        (void)t, (void)x, (void)b, (void)k, (void)index;    \
        return expression;                                  \
    }
#include "tests/core/nn/layer_rows.h"
#include "tests/core/nn/op_rows.h"
#undef ROW
#undef TERMS
#undef PRODUCT
#undef SUMS
#undef STATES_1
#undef STATES_2
#undef RECURRENT

#define ROW(row_name, expression, ...) {.name = #row_name, .call = call_##row_name, __VA_ARGS__},
static const struct row rows[] = {
#include "tests/core/nn/layer_rows.h"
#include "tests/core/nn/op_rows.h"
};
enum { ROWS = sizeof rows / sizeof *rows };

/* ---- PyTorch's numbers ---- */

/* Relative to 1 + |want|: a few roundings to float, of numbers whose parts are at most 10 times as
 * large as they (a norm divides by a deviation of 0.3 or more); a wrong term is 1e-2. */
static const double TOLERANCE = 4e-6;

static void expect(const struct row *r, const char *what, int number, const float *got, int rank,
                   const int *dims) {
    static const char *const file = "tests/golden/ops.txt";
    char key[64];
    snprintf(key, sizeof key, number < 0 ? "%s_%s" : "%s_%s%d", r->as ? r->as : r->name, what,
             number);
    struct golden_tensor want = golden_tensor(file, key);
    for (int i = 0; i < 4; i++) {
        int dim = i < rank ? dims[i] : rank || i ? 0 : 1;
        cr_assert_eq(dim, want.dims[i], "%s: dimension %d is %d, not %d", key, i, dim,
                     want.dims[i]);
    }
    golden_near(file, key, got, want.count, TOLERANCE);
}

static struct device *open_kind(enum device_kind kind, int index, int reference) {
    struct device_config config = {.kind = kind,
                                   .index = index,
                                   .memory_bytes = kind == DEVICE_CUDA ? 96 << 20 : 16 << 20,
                                   .check_operands = 1,
                                   .reference_math = reference,
                                   .timeout_s = 20};
    struct device *device;
    MUST(device_open(&device, &config));
    return device;
}

static struct bed one_segment(const struct row *r, struct device *device) {
    static const int zero[1] = {0};
    int n = r->samples ? r->samples : r->x.dims[0];
    return (struct bed){.row = r,
                        .device = device,
                        .segments = {.count = 1, .n = n, .seg = {{0, n}}},
                        .first = zero};
}

static void check_facts(const struct row *r, struct device *device, int n16) {
    static struct result got;
    struct bed b = one_segment(r, device);
    b.n16 = n16;
    bed_open(&b);
    bed_forward(&b);
    bed_backward(&b);
    bed_read(&b, &got);
    expect(r, "y", -1, got.y[0], got.ranks[0], got.dims[0]);
    for (int k = 1; k < MOST_Y && b.y[k]; k++)
        expect(r, "y", k, got.y[k], got.ranks[k], got.dims[k]);
    if (!(r->is & TOKENS)) expect(r, "dx", -1, got.dx, r->x.rank, r->x.dims);
    for (int l = 0; l < MOST_B && r->b[l].rank; l++)
        expect(r, "b", l, got.db[l], r->b[l].rank, r->b[l].dims);
    for (int k = 0; k < b.params_count; k++)
        expect(r, "d", k, got.dw[k], r->w[k].rank, r->w[k].dims);
    bed_close(&b);
}

/* n16: x comes in the device's own layout, and other leaves do not. */
Test(ops, pytorch_has_the_same_numbers, .timeout = 120) {
    static const struct {
        enum device_kind kind;
        int reference, n16;
    } ways[] = {{DEVICE_HOST, 0, 0},
                {DEVICE_HOST, 0, 1},
                {DEVICE_HOST, 1, 0},
#ifdef CUDA_EMULATION
                {DEVICE_CUDA, 0, 0},
#endif
                {DEVICE_HOST_LATE, 0, 0}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct device *device = open_kind(ways[i].kind, 0, ways[i].reference);
        for (int r = 0; r < ROWS; r++)
            if (!(rows[r].is & NO_FACT)) check_facts(&rows[r], device, ways[i].n16);
        device_close(device);
    }
}

/* ---- central differences ---- */

/* A step of H errs by H^2 times a third derivative, and by float32's roundings over H; together, on
 * 1 + the gradient's size, below this. A term that is missing is a tenth. */
static const double OF_DIFFERENCE = 3e-3;

/* The sum of dy[i] y[i] over all roots. */
static double value(struct bed *b) {
    static float y[MOST];
    double sum = 0;
    bed_forward(b);
    for (int k = 0; k < MOST_Y && b->y[k]; k++) {
        take(b, y, &b->y[k]->value);
        MUST(stream_sync(device_compute(b->device)));
        for (size_t i = 0; i < tensor_count(&b->y[k]->value); i++)
            sum += (double)b->dy[k][i] * (double)y[i];
    }
    return sum;
}

/* `gradient` is what backward says of these numbers: a leaf's, or, at NULL, parameter p's. */
static void judge(struct bed *b, const char *what, const struct tensor *at, int p,
                  const float *gradient, size_t count) {
    static float numbers[MOST];
    if (at)
        take(b, numbers, at);
    else
        MUST(param_read_value(&b->params, p, numbers));
    MUST(stream_sync(device_compute(b->device)));
    for (size_t i = 0; i < count; i++) {
        const float was = numbers[i];
        double side[2];
        for (int s = 0; s < 2; s++) {
            numbers[i] = was + (float)(s ? H : -H);
            if (at)
                MUST(copy_to_device(device_compute(b->device), at->data, numbers,
                                    count * sizeof *numbers));
            else
                MUST(param_write_value(&b->params, p, numbers));
            MUST(stream_sync(device_compute(b->device)));
            side[s] = value(b);
        }
        numbers[i] = was;
        double want = (side[1] - side[0]) / (2 * H), off = fabs(want - (double)gradient[i]);
        cr_expect(off <= OF_DIFFERENCE * (1 + fabs(want)), "%s, %s %zu: %g, differences say %g",
                  b->row->name, what, i, (double)gradient[i], want);
    }
    if (at)
        MUST(copy_to_device(device_compute(b->device), at->data, numbers, count * sizeof *numbers));
    else
        MUST(param_write_value(&b->params, p, numbers));
    MUST(stream_sync(device_compute(b->device)));
}

static void check_differences(const struct row *r, struct device *device) {
    static struct result got;
    struct bed b = one_segment(r, device);
    b.numbers = OF_DIFFERENCES;
    bed_open(&b);
    bed_forward(&b);
    bed_backward(&b);
    bed_read(&b, &got);
    if (!(r->is & TOKENS)) judge(&b, "x", &b.x, 0, got.dx, tensor_count(&b.x));
    for (int l = 0; l < MOST_B && r->b[l].rank; l++)
        judge(&b, "b", &b.b[l], 0, got.db[l], tensor_count(&b.b[l]));
    for (int k = 0; k < b.params_count; k++)
        judge(&b, "w", NULL, k, got.dw[k], (size_t)count_of(&r->w[k], 0));
    bed_close(&b);
}

Test(ops, gradients_are_those_of_differences, .timeout = 240) {
    for (int reference = 0; reference < 2 - test_short(); reference++) {
        struct device *device = open_kind(DEVICE_HOST, 0, reference);
        for (int r = 0; r < ROWS; r++)
            if (!(rows[r].is & (CORNERS | OWN))) check_differences(&rows[r], device);
        device_close(device);
    }
}

/* ---- equal bits ---- */

static const int counts[V] = {9, 17, 0, 10}, firsts[V] = {0, 9, 26, 26};

/* The gradients of W devices are folded as DP folds them. */
static void train_on(int world, enum device_kind kind, const struct row *r, struct result *all) {
    static struct result part[V];
    for (int rank = 0; rank < world; rank++) {
        int each = count_of(&r->x, 1);
        struct bed b = {.row = r,
                        .device = open_kind(kind, rank, 0),
                        .segments = segments_of(counts, V, rank, world),
                        .first = firsts,
                        .n16 = 1};
        memset(&part[rank], 0, sizeof part[rank]);
        bed_open(&b);
        bed_forward(&b);
        bed_backward(&b);
        bed_read(&b, &part[rank]);
        bed_close(&b);
        device_close(b.device);
        int width = all->y_count = part[rank].y_count;
        for (int s = 0, at = 0; s < b.segments.count; at += b.segments.seg[s++].n) {
            int v = b.segments.seg[s].v, n = b.segments.seg[s].n;
            memcpy(all->y[0] + firsts[v] * width, part[rank].y[0] + at * width,
                   (size_t)(n * width) * sizeof(float));
            memcpy(all->dx + firsts[v] * each, part[rank].dx + at * each,
                   (size_t)(n * each) * sizeof(float));
        }
    }
    for (struct fold fold = fold_begin(world); fold_next(&fold);)
        for (int k = 0; k < MOST_W; k++)
            for (int i = 0; i < count_of(&r->w[k], 0); i++)
                part[fold.to].dw[k][i] += part[fold.from].dw[k][i];
    memcpy(all->dw, part[0].dw, sizeof all->dw);
}

Test(ops, bits_do_not_depend_on_the_number_of_devices, .timeout = 240) {
    static struct result single, other;
    for (int i = 0; i < ROWS; i++) {
        if (rows[i].samples || rows[i].b[0].rank) continue;
        memset(&single, 0, sizeof single), memset(&other, 0, sizeof other);
        train_on(1, DEVICE_HOST, &rows[i], &single);
        for (int world = 1; world <= V; world *= 2) {
            train_on(world, DEVICE_HOST_LATE, &rows[i], &other);
            cr_assert(!memcmp(&other, &single, sizeof single), "%s on %d devices", rows[i].name,
                      world);
        }
    }
}

/* ---- what no row shows ---- */

/* dropout2d draws for planes, by virtual device and by the number of the layer. */
Test(ops, dropout2d_draws_for_planes, .timeout = 60) {
    enum { N = 19, CHANNELS = 5, PIXELS = 9 };
    static struct result got;
    static const int first[V] = {0};
    const struct row *r = rows;
    while (strcmp(r->name, "dropout2d"))
        r++;
    struct bed b = {.row = r,
                    .device = open_kind(DEVICE_HOST, 0, 0),
                    .segments = {.count = 2, .n = N, .seg = {{1, 17}, {3, 2}}},
                    .first = first};
    bed_open(&b);
    bed_forward(&b);
    bed_backward(&b);
    bed_read(&b, &got);
    for (int i = 0; i < N * CHANNELS * PIXELS; i++) {
        int n = i / PIXELS / CHANNELS, c = i / PIXELS % CHANNELS, v = n < 17 ? 1 : 3;
        uint64_t plane = (uint64_t)((n < 17 ? n : n - 17) * CHANNELS + c);
        int kept = philox_keep(7, (uint32_t)v, 3, 0, plane, philox_threshold(0.75)) &&
                   philox_keep(7, (uint32_t)v, 3, 1, plane, philox_threshold(0.5));
        float want = kept ? 1 / 0.75f * 2 : 0;
        cr_assert(fabsf(got.dx[i] - want * b.dy[0][i]) <= 1e-6f, "gradient of element %d", i);
    }
    bed_close(&b);
    device_close(b.device);
}

/* A pass without samples: sums of nothing are 0, means are NaN, gradients are 0. */
Test(ops, no_samples, .timeout = 30) {
    static struct result got;
    static const int zero[1] = {0};
    for (int i = 0; i < ROWS; i++) {
        int mean = !strcmp(rows[i].name, "mean_0");
        if (!mean && strcmp(rows[i].name, "sum_0")) continue;
        struct row r = rows[i];
        r.samples = 0;
        struct bed b = {.row = &r,
                        .device = open_kind(DEVICE_HOST, 0, 0),
                        .segments = {.count = 1},
                        .first = zero};
        bed_open(&b);
        bed_forward(&b);
        bed_backward(&b);
        bed_read(&b, &got);
        cr_assert(mean ? isnan(got.y[0][0]) : got.y[0][0] == 0);
        bed_close(&b);
        device_close(b.device);
    }
}
