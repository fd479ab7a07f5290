/* Compares scaled dot product attention with matmul, softmax and dropout: with one seed both drop
 * the same weights. (test_ops.c compares it with PyTorch.) The file also tests its memory, which
 * grows with the sequence, a row that sees no key, and what is refused. */
#include <math.h>

#include "duet.h"
#include "tests/core/nn/step.h"

enum { HEADS = 2, QUERIES = 70, KEYS = 37, WIDTH = 6, VALUES = 5, SAMPLES = 5, INPUTS = 4 };
static const struct segments three = {.count = 3, .n = SAMPLES, .seg = {{0, 3}, {1, 0}, {3, 2}}};
static const int sizes[INPUTS][4] = {{SAMPLES, HEADS, QUERIES, WIDTH},
                                     {SAMPLES, HEADS, KEYS, WIDTH},
                                     {SAMPLES, HEADS, KEYS, VALUES},
                                     {SAMPLES, 1, 1, KEYS}}; /* the mask: of positions, by sample */

struct bed {
    struct device *device;
    duet_tape *tape;
    struct tensor in[INPUTS], dy;
    void *block;
};

static void upload(struct bed *b, struct tensor *t, const int *dims, uint64_t seed) {
    struct rng r;
    *t = tensor_plain(NULL, DTYPE_F32, 4, dims);
    size_t count = tensor_count(t);
    float *numbers = malloc(count * sizeof *numbers);
    cr_assert_not_null(numbers);
    rng_seed(&r, seed);
    rng_uniform(&r, numbers, (int)count, -2, 2);
    for (size_t i = 0; seed == INPUTS - 1 && i < count; i++) /* sample 1 sees no key */
        if (i % 4 == 2 || i / KEYS == 1) numbers[i] = -INFINITY;
    MUST(device_alloc(b->device, &t->data, count * sizeof *numbers, MEM_WORKSPACE));
    MUST(copy_to_device(device_compute(b->device), t->data, numbers, count * sizeof *numbers));
    MUST(stream_sync(device_compute(b->device)));
    free(numbers);
}

static void open_bed(struct bed *b, const int dims[INPUTS][4], enum device_kind kind,
                     uint64_t memory) {
    const struct step_block block = {.seed = 7, .step = 3};
    struct device_config config = {
        .kind = kind, .index = 0, .memory_bytes = memory, .check_operands = 1};
    MUST(device_open(&b->device, &config));
    MUST(tape_init(&b->tape, b->device));
    for (int i = 0; i < INPUTS; i++)
        upload(b, &b->in[i], dims[i], (uint64_t)i);
    upload(b, &b->dy, (int[]){dims[0][0], dims[0][1], dims[0][2], dims[2][3]}, 9);
    MUST(device_alloc(b->device, &b->block, sizeof block, MEM_WORKSPACE));
    MUST(stream_write(device_compute(b->device), b->block, &block, sizeof block));
}

static void close_bed(struct bed *b) {
    duet_tape_free(b->tape);
    for (int i = 0; i < INPUTS; i++)
        device_free(b->device, b->in[i].data);
    device_free(b->device, b->dy.data);
    device_free(b->device, b->block);
    device_close(b->device);
}

static void begin_pass(struct bed *b, const struct segments *segments, duet_var *x[INPUTS]) {
    struct tape_step step = {.segments = segments, .step = b->block, .training = 1};
    MUST(tape_begin(b->tape, &step));
    for (int i = 0; i < INPUTS; i++)
        x[i] = tape_leaf(b->tape, &b->in[i], i < INPUTS - 1);
}

/* The product form. Scores far below all others have weight 0, as hidden ones have. */
static duet_var *products(duet_tape *t, duet_var *x[INPUTS], double p, int masked) {
    duet_var *scores = duet_matmul(t, duet_multiply_number(t, x[0], 1 / sqrt(WIDTH)),
                                   duet_transpose(t, x[1], 2, 3));
    if (masked) scores = duet_add(t, scores, x[3]);
    return duet_matmul(t, duet_dropout(t, duet_softmax(t, scores), p), x[2]);
}

/* y, then the gradients of query, key and value. */
enum { NUMBERS = SAMPLES * HEADS * (QUERIES * (VALUES + WIDTH) + KEYS * (VALUES + WIDTH)) };

static void run(struct bed *b, double p, int masked, int as_products, float *out) {
    duet_var *x[INPUTS];
    struct stream *stream = device_compute(b->device);
    begin_pass(b, &three, x);
    struct duet_attention_options how = {.dropout_p = p, .attn_mask = masked ? x[3] : NULL};
    duet_var *y = as_products ? products(b->tape, x, p, masked)
                              : duet_scaled_dot_product_attention(b->tape, x[0], x[1], x[2], &how);
    cr_assert_not_null(y, "%s", (tape_error(b->tape), error_message()));
    MUST(tape_backward(b->tape, y, &b->dy));
    const struct tensor *results[] = {&y->value, &x[0]->grad, &x[1]->grad, &x[2]->grad};
    for (int i = 0; i < 4; out += tensor_count(results[i++]))
        MUST(copy_to_host(stream, out, results[i]->data, tensor_bytes(results[i])));
    MUST(stream_sync(stream));
}

Test(attention, equals_its_product_form_and_drops_the_same_weights, .timeout = 60) {
    static float got[NUMBERS], want[NUMBERS];
    const int each = HEADS * QUERIES * VALUES;
    struct bed b;
    open_bed(&b, sizes, DEVICE_HOST, 64 << 20);
    for (int way = 0; way < 4; way++) {
        int masked = way & 1;
        double p = way & 2 ? 0.3 : 0, most = 0;
        run(&b, p, masked, 0, got);
        run(&b, p, masked, 1, want);
        for (int i = 0; i < NUMBERS; i++) {
            if (masked && isnan(want[i])) { /* PyTorch's function gives 0 where softmax has NaN */
                cr_assert_eq(got[i], 0, "number %d is %g", i, (double)got[i]);
                continue;
            }
            most = fmax(most, fabs((double)got[i] - (double)want[i]));
        }
        cr_assert_lt(most, 3e-6, "masked %d, p %g", masked, p);
        for (int i = 0; masked && i < each; i++)
            cr_assert_eq(got[each + i], 0, "sample 1 sees no key");
        cr_assert_neq(got[0], 0);
    }
    close_bed(&b);
}

/* Without a mask; what one training pass allocates in addition to its inputs. */
static uint64_t memory_of(int length) {
    const int dims[INPUTS][4] = {
        {1, 2, length, 8}, {1, 2, length, 8}, {1, 2, length, 8}, {1, 1, 1, length}};
    const struct segments one = {.count = 1, .n = 1, .seg = {{0, 1}}};
    duet_var *x[INPUTS];
    struct bed b;
    open_bed(&b, dims, DEVICE_DRY, (uint64_t)1 << 30);
    begin_pass(&b, &one, x);
    uint64_t before = device_ledger(b.device).total;
    duet_var *y = duet_scaled_dot_product_attention(b.tape, x[0], x[1], x[2], NULL);
    MUST(tape_backward(b.tape, y, &b.dy));
    uint64_t peak = device_ledger(b.device).total_peak;
    close_bed(&b);
    return peak - before;
}

Test(attention, memory_grows_with_the_sequence, .timeout = 60) {
    uint64_t first = memory_of(1024), second = memory_of(2048), third = memory_of(4096);
    cr_assert_gt(second, first);
    cr_assert_leq(second, 2 * first + first / 4);
    cr_assert_leq(third, 2 * second + second / 4);
    cr_assert_lt(third, (uint64_t)4096 * 4096 * sizeof(float), "less than one matrix of scores");
}

static void refused(struct bed *b, const struct duet_attention_options *how, int query,
                    const char *words) {
    duet_var *x[INPUTS];
    struct duet_attention_options mine = *how;
    begin_pass(b, &three, x);
    if (how->attn_mask) mine.attn_mask = x[0]; /* wrong shape, and needs a gradient */
    if (query < 0) mine.attn_mask = duet_narrow(b->tape, x[3], 3, 0, KEYS - 1);
    cr_assert_null(
        duet_scaled_dot_product_attention(b->tape, x[query > 0 ? query : 0], x[1], x[2], &mine));
    cr_assert_neq(tape_error(b->tape), OK);
    cr_assert(strstr(error_message(), words), "%s", error_message());
}

Test(attention, wrong_calls_are_refused, .timeout = 60) {
    duet_var any;
    struct bed b;
    open_bed(&b, sizes, DEVICE_HOST, 64 << 20);
    refused(&b, &(struct duet_attention_options){.attn_mask = &any}, 0, "needs a gradient");
    refused(&b, &(struct duet_attention_options){.attn_mask = &any, .is_causal = 1}, 0,
            "is_causal=True");
    refused(&b, &(struct duet_attention_options){.dropout_p = 1.5}, 0, "between 0 and 1");
    refused(&b, &(struct duet_attention_options){.scale = NAN}, 0, "scale nan");
    refused(&b, &(struct duet_attention_options){0}, 2, "give (N,..,L,E)");
    refused(&b, &(struct duet_attention_options){0}, -1, "attn_mask (5, 1, 1, 36)");
    close_bed(&b);
}
