/* Cases of attention: with and without masks, causal, with dropout; a row whose keys are all
 * hidden; sizes that are not a multiple of a band, block or vector; strided rows. */
#include <math.h>

#include "base/error.h"
#include "doctor/cases.h"

struct attention_case {
    int samples, heads, queries, keys, width, values;
    int masks, mask_rows, mask_shared; /* masks 0: none */
    int causal;
    float p;
    int apart; /* of samples (L,H,E), with so many unused elements after each row */
};

/* The most roundings of float between two ways to compute a case, in units of 1, if all operands
 * are in -1 .. 1. A score is a sum of E products below 1 and is off by (E + 2) E scale roundings,
 * and so is lse; a weight is off by twice that, relatively, and by one for each term of its row's
 * sum. A slope is a weight times scale times a difference of two sums of V products, at most 2 V
 * together, whose roundings are V + 2 each. A row's weights sum to 1, but a gradient of a key has a
 * term for each query. Dropout makes a weight larger by 1 / (1 - p), at most twice here: once in y,
 * twice in a product of y with a value. */
static size_t roundings_of(const struct attention_case *s, double scale) {
    double weight = 4 * (s->width + 2) * s->width * scale + s->keys + 16,
           sums = 2 * (s->values + 2) + s->queries + s->keys,
           slope = 2 * s->values * scale > 1 ? 2 * s->values * scale : 1;
    return (size_t)((weight + sums) * slope * s->queries * (s->p != 0 ? 4 : 1)) + 1;
}

/* Numbers, some keys hidden, and in mask 0 every key of row 0. */
static struct tensor mask_of(struct op_cases *c, const struct attention_case *s) {
    struct tensor mask = case_random(c, 3, s->masks, s->mask_rows, s->keys, 1);
    for (size_t i = 0; mask.data && i < tensor_count(&mask); i++)
        if (i % 5 == 2 || i < (size_t)s->keys) tensor_f32(&mask)[i] = -INFINITY;
    return mask;
}

/* (N,H,L,E) of NaN, or random. */
static struct tensor rows_of(struct op_cases *c, const struct attention_case *s, int length,
                             int width, int random) {
    int heads = s->apart ? length : s->heads, rows = s->apart ? s->heads : length;
    struct tensor t = random
                          ? case_random(c, 4, s->samples, heads, rows, width + s->apart)
                          : case_tensor(c, DTYPE_F32, 4, s->samples, heads, rows, width + s->apart);
    if (!s->apart) return t;
    t = tensor_permuted(&t, (int[]){0, 2, 1, 3});
    t.dims[3] = width;
    return t;
}

static int attention_case(struct op_cases *c, enum op op, const struct attention_case *s,
                          const struct step_block *step) {
    int l = s->queries, n = s->keys;
    double scale = 1 / sqrt(s->width);
    struct op_args a = {.in = {rows_of(c, s, l, s->width, 1), rows_of(c, s, n, s->width, 1),
                               rows_of(c, s, n, s->values, 1)},
                        .out = {rows_of(c, s, l, s->values, 0),
                                case_tensor(c, DTYPE_F32, 3, s->samples, s->heads, l, 1)},
                        .step = step,
                        .p.attention = {scale, s->causal, s->mask_shared, {s->p, 3, 5, 0, 0}}};
    if (s->masks) a.in[3] = mask_of(c, s);
    if (op == OP_ATTENTION_BACKWARD) {
        for (int i = 0; i < 4; i++)
            if (a.in[i].rank && !a.in[i].data) return case_run(c, op, &a, 0);
        if (a.out[0].data && a.out[1].data) host_reference_kernels[OP_ATTENTION_FORWARD](&a);
        a.in[4] = a.out[0], a.in[5] = a.out[1];
        a.in[6] = rows_of(c, s, l, s->values, 1);
        a.out[0] = rows_of(c, s, l, s->width, 0);
        a.out[1] = rows_of(c, s, n, s->width, 0);
        a.out[2] = rows_of(c, s, n, s->values, 0);
    }
    return case_run(c, op, &a, roundings_of(s, scale));
}

int attention_cases(struct op_cases *c, enum op op) {
    // clang-format off
    static const struct attention_case cases[] = {
        /* samples, heads, queries, keys, width, values; masks and their rows; causal, p, apart */
        {1, 1,  1,   1,  1,   1,  0,  0, 0,  0,    0,  0},
        {3, 2,  5,   7,  3,   4,  2,  5, 1,  0,    0,  0},
        {2, 1, 70,  33, 16,   8,  0,  0, 0,  1,    0,  0},
        {2, 2, 17, 130,  5,  20,  2,  1, 2,  0, .25f,  0},
        {1, 3, 66,  80,  8,   3,  0,  0, 0,  1,  .5f,  0},
        {3, 5, 33,  66, 17,  35,  3, 33, 5,  0,    0, 11},
        {2, 2, 70,   7, 16,  16,  0,  0, 0,  0,    0,  1},
        {1, 1,  3,   5, 70, 130,  0,  0, 0,  0,    0,  0},
        {0, 2,  2,   3,  4,   5,  0,  0, 0,  0,    0,  0},
    };
    // clang-format on
    struct step_block step = {.seed = c->seed, .step = 0x100000007};
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++)
        CHECK(attention_case(c, op, &cases[i], &step));
    return OK;
}
