/* Strided views: each net of narrow, permute, transpose and reshape gives the same bits as with
 * every view copied at once, in values and gradients, on one device and on two that share the
 * samples. For views without a copy the tests also check where they are. */
#include "tests/core/nn/step.h"

enum { SAMPLES = 5, TOKENS = 6, HEADS = 2, WIDTH = 4, C = HEADS * WIDTH, LINE = 3 * C };
enum { EACH = TOKENS * LINE, MOST = SAMPLES * EACH };

/* solid 1: a product by 1, which has its own memory. */
static duet_var *part(duet_tape *t, duet_var *x, int solid) {
    return solid ? duet_multiply_number(t, x, 1) : x;
}

static duet_var *narrow(duet_tape *t, duet_var *x, int dim, int start, int length, int solid) {
    return part(t, duet_narrow(t, x, dim, start, length), solid);
}

static duet_var *turn(duet_tape *t, duet_var *x, int a, int b, int solid) {
    return part(t, duet_transpose(t, x, a, b), solid);
}

static duet_var *heads_of(duet_tape *t, duet_var *x, int i, int solid) {
    x = narrow(t, x, 2, i * C, C, solid);
    return turn(t, duet_reshape(t, x, 4, (int[]){-1, TOKENS, HEADS, WIDTH}), 1, 2, solid);
}

static duet_var *attend(duet_tape *t, duet_var *q, duet_var *k, duet_var *v, double p, int solid) {
    const struct duet_attention_options how = {.dropout_p = p};
    duet_var *y = duet_scaled_dot_product_attention(t, q, k, v, &how);
    return duet_reshape(t, turn(t, y, 1, 2, solid), 3, (int[]){-1, TOKENS, C});
}

/* Views whose gradients are written in place by the op that reads them. */
static duet_var *placed[3];

/* A transformer's block, in which nothing is copied. */
static duet_var *block(duet_tape *t, duet_var *x, int solid) {
    duet_var *part[3], *y;
    for (int i = 0; i < 3; i++)
        part[i] = heads_of(t, x, i, solid);
    y = attend(t, part[0], part[1], part[2], 0, solid);
    for (int i = 0; !solid && x->value.dims[0] > 1 && i < 3; i++) {
        cr_expect(part[i]->value.strided, "part %d is a copy", i);
        placed[i] = part[i];
        cr_expect_eq(tensor_f32(&part[i]->value), tensor_f32(&x->value) + (ptrdiff_t)i * C);
    }
    return y;
}

/* One of three positions of a token is read: the gradients of the others are 0. */
static duet_var *middle(duet_tape *t, duet_var *x, int solid) {
    return duet_tanh(t, narrow(t, x, 2, C, C, solid));
}

static duet_var *overlap(duet_tape *t, duet_var *x, int solid) {
    duet_var *a = narrow(t, x, 2, 0, 9, solid), *b = narrow(t, x, 2, 5, 9, solid);
    return duet_multiply(t, duet_multiply(t, a, b), narrow(t, x, 2, 15, 9, solid));
}

/* x itself is read too, before its views and after them. */
static duet_var *beside(duet_tape *t, duet_var *x, int solid) {
    duet_var *y = duet_tanh(t, x), *a = narrow(t, x, 1, 1, 2, solid),
             *b = narrow(t, x, 1, 4, 2, solid);
    return duet_cat(t, (duet_var *[]){duet_multiply(t, a, b), duet_multiply(t, x, y)}, 2, 1);
}

/* One view as query, key and value; dropout draws by segment. */
static duet_var *same_three(duet_tape *t, duet_var *x, int solid) {
    duet_var *q = heads_of(t, x, 1, solid);
    return attend(t, q, q, q, .3, solid);
}

/* A view is read, and a part of it; a key is read again after attention. */
static duet_var *read_twice(duet_tape *t, duet_var *x, int solid) {
    duet_var *q = heads_of(t, x, 0, solid), *k = heads_of(t, x, 1, solid),
             *v = heads_of(t, x, 2, solid), *y = attend(t, q, k, v, .3, solid);
    duet_var *k_part = narrow(t, k, 3, 1, 2, solid), *k_end = narrow(t, k, 3, 2, 2, solid);
    duet_var *more =
        duet_multiply(t, duet_multiply(t, k_part, k_end), narrow(t, k, 3, 0, 2, solid));
    more = duet_reshape(t, turn(t, more, 1, 2, solid), 3, (int[]){-1, TOKENS, 4});
    return duet_multiply(t, narrow(t, y, 2, 0, 4, solid), more);
}

/* Transposed and transposed back it is x again; and a reshape that no view can be. */
static duet_var *there_and_back(duet_tape *t, duet_var *x, int solid) {
    duet_var *transposed = turn(t, x, 1, 2, solid), *back = turn(t, transposed, 1, 2, solid);
    if (!solid) cr_expect_eq(back->value.data, x->value.data);
    return duet_multiply(t, duet_reshape(t, transposed, 3, (int[]){-1, LINE / 2, 2 * TOKENS}),
                         duet_reshape(t, back, 3, (int[]){-1, LINE / 2, 2 * TOKENS}));
}

/* The thirds of each token lie one after the other, as unbind and select leave them. */
static duet_var *selected(duet_tape *t, duet_var *x, int solid) {
    x = part(t,
             duet_permute(t, duet_reshape(t, x, 4, (int[]){-1, TOKENS, C, 3}), (int[]){0, 3, 1, 2}),
             solid);
    duet_var *y = NULL;
    for (int i = 0; i < 3; i++) {
        duet_var *one = duet_reshape(t, narrow(t, x, 1, i, 1, solid), 3, (int[]){-1, TOKENS, C});
        y = y ? duet_multiply(t, y, one) : one;
    }
    return y;
}

/* More views than are compared with each other. */
static duet_var *columns(duet_tape *t, duet_var *x, int solid) {
    x = duet_reshape(t, x, 2, (int[]){-1, EACH});
    duet_var *y = narrow(t, x, 1, 0, 1, solid);
    for (int i = 1; i < EACH; i += 2)
        y = duet_multiply(t, duet_add_number(t, y, 1), narrow(t, x, 1, i, 1, solid));
    return y;
}

/* Views whose elements follow each other where there is one sample. */
static duet_var *rows(duet_tape *t, duet_var *x, int solid) {
    duet_var *a = narrow(t, x, 1, 0, 3, solid), *b = narrow(t, x, 1, 3, 3, solid);
    return duet_multiply(t, a, duet_tanh(t, b));
}

/* Rolled along both dimensions, as Swin rolls its windows: parts of parts, joined again. */
static duet_var *rolled(duet_tape *t, duet_var *x, int solid) {
    for (int dim = 1; dim < 3; dim++) {
        duet_var *end = narrow(t, x, dim, 2, x->value.dims[dim] - 2, solid),
                 *begin = narrow(t, x, dim, 0, 2, solid);
        x = duet_cat(t, (duet_var *[]){end, begin}, 2, dim);
    }
    duet_var *three[3] = {narrow(t, x, 2, 5, 4, solid), duet_tanh(t, narrow(t, x, 2, 1, 4, solid)),
                          narrow(t, x, 2, 9, 4, solid)};
    return duet_multiply(t, duet_cat(t, three, 3, 2), narrow(t, x, 2, 12, 12, solid));
}

/* A view without its gradient, and a view of that. */
static duet_var *detached(duet_tape *t, duet_var *x, int solid) {
    duet_var *fixed = duet_detach(t, narrow(t, x, 2, 3, 8, solid));
    duet_var *whole = turn(t, duet_detach(t, turn(t, x, 1, 2, solid)), 1, 2, solid);
    fixed = duet_multiply(t, turn(t, fixed, 1, 2, solid),
                          turn(t, narrow(t, whole, 2, 1, 8, solid), 1, 2, solid));
    return duet_multiply(t, turn(t, fixed, 1, 2, solid), narrow(t, x, 2, 3, 8, solid));
}

/* Images in the layout of the device, or solid in plain. */
static duet_var *pictures(duet_tape *t, duet_var *x, int solid) {
    x = duet_reshape(t, x, 4, (int[]){-1, TOKENS, 4, 6});
    return solid ? x : to_device_layout(t, x);
}

/* One number for each channel, as the gate of squeeze and excitation has it; one for each row and
 * one for each pixel. */
static duet_var *gated(duet_tape *t, duet_var *x, int solid) {
    x = pictures(t, x, solid);
    duet_var *row = duet_narrow(t, x, 3, 1, 1), *gate = duet_tanh(t, duet_narrow(t, row, 2, 3, 1)),
             *y = duet_multiply(t, gate, x);
    duet_var *mean = duet_mean(t, x, (int[]){-1, 2}, 2, 1);
    if (!solid) cr_expect_eq(y->value.layout, x->value.layout);
    if (!solid) cr_expect_eq(mean->value.layout, x->value.layout);
    y = duet_multiply(t, y, duet_sum(t, duet_multiply(t, y, mean), (int[]){2, 3}, 2, 1));
    return duet_add(t, duet_subtract(t, y, row), duet_multiply(t, x, duet_narrow(t, x, 1, 2, 1)));
}

/* The reader of a view changes its layout, in both directions, and its gradient comes back into
 * the place of the view. */
static duet_var *channels_last(duet_tape *t, duet_var *x, int solid) {
    x = pictures(t, x, solid);
    duet_var *y = part(t, duet_permute(t, x, (int[]){0, 2, 3, 1}), solid);
    const int n16 = !solid && x->value.layout == LAYOUT_N16;
    if (n16) cr_expect(!y->value.strided && y->value.layout == LAYOUT_PLAIN);
    duet_var *a =
                 part(t, duet_permute(t, narrow(t, y, 3, 0, 4, solid), (int[]){0, 3, 1, 2}), solid),
             *b =
                 part(t, duet_permute(t, narrow(t, y, 3, 4, 2, solid), (int[]){0, 3, 1, 2}), solid);
    if (n16) {
        placed[0] = a, placed[1] = b;
        a = to_device_layout(t, a), b = to_device_layout(t, b);
    }
    return duet_multiply(t, duet_cat(t, (duet_var *[]){b, duet_tanh(t, a)}, 2, 1), x);
}

/* Parts of images: of all channels and rows, of some, of a part, and with one that is read beside
 * its parts. */
static duet_var *parts_of_pictures(duet_tape *t, duet_var *x, int solid) {
    x = part(t, pictures(t, x, solid), 1); /* otherwise ops would read the leaf's own memory */
    duet_var *y = duet_tanh(t, x), *a = narrow(t, x, 1, 0, 3, solid),
             *b = narrow(t, x, 1, 3, 3, solid), *up = narrow(t, y, 2, 0, 2, solid),
             *down = narrow(t, y, 2, 1, 2, solid), *left = narrow(t, up, 3, 0, 3, solid);
    y = duet_cat(t, (duet_var *[]){duet_multiply(t, a, b), b}, 2, 1);
    up = duet_multiply(t, duet_multiply(t, up, down), narrow(t, y, 2, 2, 2, solid));
    return duet_multiply(t, duet_multiply(t, narrow(t, up, 3, 2, 3, solid), left),
                         narrow(t, narrow(t, y, 3, 3, 3, solid), 2, 0, 2, solid));
}

/* The halves of an image's channels, which in one group are where they were; and so are their
 * gradients. */
static duet_var *whole, *half[2];

static duet_var *halves(duet_tape *t, duet_var *x, int solid) {
    x = part(t, pictures(t, x, solid), 1);
    const int one = !solid && x->value.groups == 1;
    for (int i = 0; i < 2; i++) {
        half[i] = narrow(t, x, 1, 3 * i, 3, solid);
        if (one)
            cr_expect_eq(tensor_f32(&half[i]->value),
                         tensor_f32(&x->value) + i * EACH / 2 * x->value.lanes);
    }
    for (int i = 0; one && i < 2; i++)
        half[i]->keeps_grad = 1;
    whole = one ? x : NULL;
    if (one) x->keeps_grad = 1;
    return duet_tanh(t, duet_cat(t, (duet_var *[]){half[1], half[0]}, 2, 1));
}

/* Several vars are joined, one of them twice, and the result is joined again. solid:
 * pair by pair. */
static duet_var *join(duet_tape *t, duet_var *const *x, int count, int dim, int solid) {
    if (!solid) return duet_cat(t, x, count, dim);
    duet_var *y = x[0];
    for (int i = 1; i < count; i++)
        y = duet_cat(t, (duet_var *[]){y, x[i]}, 2, dim);
    return y;
}

static duet_var *joined(duet_tape *t, duet_var *x, int solid) {
    x = pictures(t, x, solid);
    duet_var *a = narrow(t, x, 1, 0, 2, solid), *b = duet_tanh(t, narrow(t, x, 1, 2, 1, solid)),
             *fixed = duet_detach(t, b);
    duet_var *y = join(t, (duet_var *[]){fixed, b, a, fixed, a}, 5, 1, solid);
    y = duet_multiply(t, y, y);
    duet_var *rows[3] = {narrow(t, y, 3, 0, 1, solid), narrow(t, y, 3, 3, 2, solid),
                         narrow(t, y, 3, 1, 2, solid)};
    y = join(t, rows, 3, 3, solid);
    return duet_add(t, y, narrow(t, y, 1, 4, 1, solid));
}

/* Channels change positions in their layout, as in a ShuffleNet. */
static duet_var *shuffled(duet_tape *t, duet_var *x, int solid) {
    x = pictures(t, x, solid);
    duet_var *y = duet_reshape(t, x, 5, (int[]){-1, 2, 3, 4, 6});
    y = part(t, duet_transpose(t, y, 1, 2), solid);
    if (!solid) cr_expect_eq(y->value.layout, x->value.layout);
    return duet_multiply(t, duet_reshape(t, y, 4, (int[]){-1, TOKENS, 4, 6}), x);
}

/* The tokens of a sample as rows of their own, each an image; solid: one token after the other. A
 * layer that looks at a row by itself gives the same numbers. */
static duet_var *of_each(duet_tape *t, duet_var *x, int rows) {
    x = duet_max_pool2d(t, duet_tanh(t, duet_reshape(t, x, 4, (int[]){rows, 2, 3, 4})), 2, NULL);
    return duet_softmax(t, duet_group_norm(t, x, 1, DUET_NO_WEIGHT, DUET_NO_BIAS, 1e-5));
}

static duet_var *as_rows(duet_tape *t, duet_var *x, int solid) {
    int n = x->value.dims[0];
    if (!solid) return duet_reshape(t, of_each(t, x, n * TOKENS), 3, (int[]){n, TOKENS, 4});
    duet_var *one[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        one[i] = duet_reshape(t, of_each(t, duet_narrow(t, x, 1, i, 1), n), 3, (int[]){n, 1, 4});
    return duet_cat(t, one, TOKENS, 1);
}

/* For rows made of parts, random draws and sums are the same wherever their sample is. */
static duet_var *parts_as_rows(duet_tape *t, duet_var *x, int solid) {
    int n = x->value.dims[0];
    x = turn(t, narrow(t, x, 2, 4, 8, solid), 1, 2, solid);
    x = duet_dropout2d(t, duet_reshape(t, x, 4, (int[]){n * 8, TOKENS, 1, 1}), .4);
    duet_var *y = tape_random(t, 2, (int[]){n * 8, TOKENS}, RANDOM_NORMAL);
    x = duet_multiply(t, duet_reshape(t, x, 2, (int[]){n * 8, TOKENS}), y);
    return duet_reshape(t, x, 3, (int[]){n, 2 * TOKENS, 4});
}

static duet_var *(*const nets[])(duet_tape *, duet_var *, int) = {
    block,      middle,        overlap,        beside,
    same_three, read_twice,    there_and_back, selected,
    columns,    rows,          rolled,         detached,
    gated,      channels_last, shuffled,       parts_of_pictures,
    joined,     halves,        as_rows,        parts_as_rows};
enum { NETS = sizeof nets / sizeof *nets };

/* ---- one pass ---- */

struct result {
    int count; /* of y, of a sample */
    float y[MOST * 2], dx[MOST];
};

static void *upload(struct device *device, const void *from, size_t bytes) {
    void *to;
    MUST(device_alloc(device, &to, bytes, MEM_WORKSPACE));
    MUST(copy_to_device(device_compute(device), to, from, bytes));
    return to;
}

/* Samples of `segments`, the first of which is sample `first` of all. */
static void run(int net, int solid, const struct segments *segments, int first, int math,
                struct result *r) {
    static float x[MOST], dy[2 * MOST];
    const struct step_block block = {.seed = 7, .step = 3};
    struct device_config config = {.kind = DEVICE_HOST_LATE,
                                   .memory_bytes = 32 << 20,
                                   .check_operands = 1,
                                   .reference_math = math};
    struct device *device;
    duet_tape *tape;
    MUST(device_open(&device, &config));
    for (int i = 0; i < segments->n * EACH; i++)
        x[i] = (float)((first * EACH + i) * 37 % 101 - 50) / 40;
    void *memory[3] = {upload(device, x, sizeof x), upload(device, &block, sizeof block)};
    struct tensor in = tensor_plain(memory[0], DTYPE_F32, 3, (int[]){segments->n, TOKENS, LINE});
    struct tape_step step = {.segments = segments, .step = memory[1], .training = 1};
    MUST(tape_init(&tape, device));
    MUST(tape_begin(tape, &step));
    duet_var *leaf = tape_leaf(tape, &in, 1), *y = to_plain(tape, nets[net](tape, leaf, solid));
    cr_assert_not_null(y, "net %d: %s", net, (tape_error(tape), error_message()));
    r->count = (int)tensor_sample_count(&y->value);
    cr_assert_leq(segments->n * r->count, 2 * MOST);
    for (int i = 0; i < segments->n * r->count; i++)
        dy[i] = (float)((first * r->count + i) * 11 % 19 - 9) / 7;
    memory[2] = upload(device, dy, sizeof dy);
    struct tensor root = y->value;
    root.data = memory[2];
    MUST(tape_backward(tape, y, &root));
    for (int i = 0; i < 3; placed[i++] = NULL)
        if (placed[i]) cr_expect(placed[i]->in_place, "the gradient of part %d is copied", i);
    for (int i = 0; whole && i < 2; i++)
        cr_expect_eq(tensor_f32(&half[i]->grad),
                     tensor_f32(&whole->grad) + i * EACH / 2 * whole->grad.lanes);
    whole = NULL;
    struct stream *stream = device_compute(device);
    MUST(copy_to_host(stream, r->y, y->value.data, tensor_bytes(&y->value)));
    MUST(copy_to_host(stream, r->dx, leaf->grad.data, tensor_bytes(&in)));
    MUST(stream_sync(stream));
    duet_tape_free(tape);
    for (int i = 0; i < 3; i++)
        device_free(device, memory[i]);
    device_close(device);
}

static const struct segments all = {.count = 3, .n = SAMPLES, .seg = {{0, 3}, {1, 0}, {2, 2}}};

static void equal(const float *got, const float *want, int count, int net, const char *what) {
    for (int i = 0; i < count; i++)
        cr_assert_eq(got[i], want[i], "net %d: %s %d is %.9g, not %.9g", net, what, i,
                     (double)got[i], (double)want[i]);
}

Test(views, have_the_bits_of_copies, .timeout = 60) {
    static struct result view, copy;
    for (int net = 0; net < NETS; net++)
        for (int math = 0; math < 2; math++) {
            float sum = 0;
            run(net, 0, &all, 0, math, &view);
            run(net, 1, &all, 0, math, &copy);
            cr_assert_eq(view.count, copy.count);
            equal(view.y, copy.y, SAMPLES * copy.count, net, "value");
            equal(view.dx, copy.dx, MOST, net, "gradient");
            for (int i = 0; i < MOST; i++)
                sum += fabsf(view.dx[i]);
            cr_assert_gt(sum, 1, "net %d", net);
        }
}

Test(views, have_equal_bits_on_one_device_and_two, .timeout = 60) {
    static const struct segments parts[] = {{.count = 1, .n = 3, .seg = {{0, 3}}},
                                            {.count = 2, .n = 2, .seg = {{1, 0}, {2, 2}}}};
    static struct result whole, half;
    for (int net = 0; net < NETS; net++) {
        run(net, 0, &all, 0, 0, &whole);
        for (int i = 0, first = 0; i < 2; first += parts[i++].n) {
            run(net, 0, &parts[i], first, 0, &half);
            equal(half.y, whole.y + (ptrdiff_t)first * whole.count, parts[i].n * half.count, net,
                  "value");
            equal(half.dx, whole.dx + (ptrdiff_t)first * EACH, parts[i].n * EACH, net, "gradient");
        }
    }
}

Test(views, of_no_sample_and_of_one, .timeout = 60) {
    static const struct segments none = {.count = 1, .n = 0, .seg = {{0, 0}}},
                                 one = {.count = 1, .n = 1, .seg = {{0, 1}}};
    static struct result view, whole;
    for (int net = 0; net < NETS; net++) {
        run(net, 0, &none, 0, 0, &view);
        run(net, 0, &one, 0, 0, &view);
        run(net, 0, &all, 0, 0, &whole);
        equal(view.y, whole.y, whole.count, net, "value");
        equal(view.dx, whole.dx, EACH, net, "gradient");
    }
}
