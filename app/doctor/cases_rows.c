/* Cases of ops that work row by row or channel by channel: softmax and losses, normalisations,
 * recurrent layers, attention. Each op is tested separately: the reference computes the inputs that
 * earlier ops compute in training. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "device/op_table.h"
#include "doctor/cases.h"

/* ---- softmax and losses ---- */

static const int scored[][2] = {{1, 1},    {41, 10},  {5, 31}, {7, 33},
                                {3, 1000}, {256, 10}, {0, 3},  {30, 2}};

/* Scores in [-1, 1), in integers from -4 to 4 (so that there are ties), and in [-60, 60); NaN
 * and infinities where "the first of the largest" looks first and last. */
static void put_scores(struct tensor *x) {
    int rows = x->dims[0], classes = x->dims[1];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < classes; j++) {
            float *score = tensor_f32(x) + (size_t)i * (size_t)classes + j;
            *score = i % 3 == 0 ? *score : i % 3 == 1 ? roundf(*score * 4) : *score * 60;
            if (i % 11 == 3 && j == 0) *score = NAN;
            if (i % 11 == 5 && j == classes - 1) *score = NAN;
            if (i % 11 == 7 && j == i % classes) *score = INFINITY;
            if (i % 11 == 9 && j == i % classes) *score = -INFINITY;
        }
}

static void set_softmax(struct op_case *c) {
    c->a.p.softmax.log = c->turn;
}

static int fill_softmax(struct op_case *c) {
    struct op_case forward;
    put_scores(&c->a.in[0]);
    if (c->op == OP_SOFTMAX_FORWARD) return OK;
    CHECK(case_forward(c, OP_SOFTMAX_FORWARD, &forward));
    c->a.in[0] = forward.a.out[0];
    return OK;
}

/* Every reduction with every distance of MSE; scores, then log-probabilities of cross entropy. */
static void set_loss(struct op_case *c) {
    int i = c->row, mse = c->op == OP_MSE_FORWARD || c->op == OP_MSE_BACKWARD, reduction = i % 3;
    struct loss_args *p = &c->a.p.loss;
    *p = (struct loss_args){.reduction = reduction, .log_probabilities = c->turn};
    c->step.weight = 1.0f / 96;
    if (reduction == REDUCE_MEAN && i) p->positions = 7;
    if (reduction != REDUCE_NONE) c->without |= NO_IN(2);
    if (mse) {
        p->distance = (2 * i + i / 3) % 3;
        return;
    }
    if (!c->turn && i % 2) p->smoothing = .1;
    if (i > 2) p->ignores = 1, p->ignore_index = i % 2 ? c->dim['M'] : c->dim['M'] - 1;
    if (i <= 3) c->without |= NO_IN(3);
}

static int fill_loss(struct op_case *c) {
    int32_t *label = c->a.in[1].data;
    put_scores(&c->a.in[0]);
    if (c->a.in[1].dtype != DTYPE_I32) return OK;
    for (int i = 0, classes = c->dim['M']; i < c->dim['N']; i++)
        label[i] = i % 13 == 12 ? -1 : i % 13 == 6 ? classes : case_index(c, classes);
    return OK;
}

/* ---- batch normalisation ---- */

static const int normed[][4] = {{2, 1, 1, 1},   {3, 5, 4, 3},  {15, 2, 1, 9},
                                {17, 19, 1, 1}, {33, 3, 7, 5}, {32, 16, 8, 8}};
/* A GPU cuts each channel into three parts in the passes over all values. */
static const int normed_in_parts[][4] = {{19, 3, 30, 31}};

static void set_norm(struct op_case *c) {
    int n = c->dim['N'];
    c->a.p.norm = (struct norm_args){1e-5, n % 2 ? 0.1 : -1, 0};
    if (c->op == OP_BATCH_NORM_FORWARD) c->a.p.norm.relu = n % 3 == 0;
    if (c->op == OP_BATCH_NORM_FORWARD && n <= 15) c->without = NO_IN(2);
    c->dim['S'] = 3;
    c->terms = (size_t)n * (size_t)c->dim['n'];
}

static void reference(enum op op, struct op_args args) {
    host_reference_kernels[op](&args);
}

/* The moments of three segments, one of them empty. */
static int put_parts(struct op_case *c) {
    int n = c->dim['N'], channels = c->dim['C'];
    for (int s = 0; s < 3; s++) {
        double *at = (double *)c->a.in[0].data + 3 * channels * s;
        struct tensor x, part = tensor_plain(at, DTYPE_F64, 2, (int[]){3, channels});
        c->dim['N'] = s == 1 ? 0 : n + s;
        CHECK(case_tensor(c, DTYPE_F32, "NC23", 'r', &x));
        reference(OP_BATCH_NORM_MOMENTS, (struct op_args){.in = {x}, .out = {part}});
    }
    return OK;
}

static int fill_norm(struct op_case *c) {
    struct tensor x = c->a.in[0], dy = c->a.in[1], moments, sums;
    if (c->op == OP_BATCH_NORM_MERGE) return put_parts(c);
    if (c->op == OP_BATCH_NORM_TRACK) *(int64_t *)c->a.out[1].data = 6;
    for (size_t i = 0; c->op == OP_BATCH_NORM_TOTAL && i < tensor_count(&x); i++)
        ((double *)x.data)[i] = rng_double(&c->all->rng);
    if (c->op != OP_BATCH_NORM_SUMS) {
        CHECK(case_tensor(c, DTYPE_F32, "NC.", 'r', &x));
        CHECK(case_tensor(c, DTYPE_F32, "NC.", 'r', &dy));
    }
    CHECK(case_tensor(c, DTYPE_F64, "3C", '-', &moments));
    CHECK(case_tensor(c, DTYPE_F64, "2C", '-', &sums));
    reference(OP_BATCH_NORM_MOMENTS, (struct op_args){.in = {x}, .out = {moments}});
    reference(OP_BATCH_NORM_SUMS, (struct op_args){.in = {x, dy, moments}, .out = {sums}});
    for (int i = 0; i < OP_INPUTS && op_table[c->op].in[i].name; i++) {
        if (!strcmp(op_table[c->op].in[i].name, "moments")) c->a.in[i] = moments;
        if (!strcmp(op_table[c->op].in[i].shape, "2C") && c->a.in[i].dtype == DTYPE_F64)
            c->a.in[i] = sums;
    }
    return OK;
}

/* ---- LayerNorm, GroupNorm, and both without weights ---- */

static const int layer_normed[][5] = {/* rows, length, groups, neighbours, are there weights? */
                                      {1, 1, 1, 1, 1},    {7, 33, 1, 1, 1},  {65, 64, 1, 1, 0},
                                      {3, 1000, 1, 1, 1}, {12, 30, 3, 5, 1}, {8, 48, 2, 48, 1},
                                      {0, 9, 1, 1, 1}};

static void set_layer_norm(struct op_case *c) {
    int *d = c->dim;
    c->a.p.layer_norm = (struct layer_norm_args){1e-5, d['g'], d['i']};
    d['K'] = d['g'] * (d['L'] / d['i']);
    if (!d['w'] && c->op == OP_LAYER_NORM_FORWARD) c->without = NO_IN(1) | NO_IN(2);
    if (!d['w'] && c->op == OP_LAYER_NORM_BACKWARD_DATA) c->without = NO_IN(2);
}

static int fill_layer_norm(struct op_case *c) {
    struct op_case forward;
    if (c->op != OP_LAYER_NORM_BACKWARD_WEIGHT) return OK;
    CHECK(case_forward(c, OP_LAYER_NORM_FORWARD, &forward));
    c->a.in[0] = forward.a.in[0], c->a.in[2] = forward.a.out[1];
    return OK;
}

/* ---- recurrent layers ---- */

static const int recurrent[][3] = {{1, 1, 1}, {5, 3, 7}, {13, 6, 33}, {2, 7, 64}, {0, 2, 4}};

/* Every kind forwards with initial states and backwards with a bias. */
static void set_recurrent(struct op_case *c) {
    static const int gates[RECURRENT_COUNT] = {4, 3, 1, 1}, kept[RECURRENT_COUNT] = {6, 5, 1, 1};
    int kind = c->turn % RECURRENT_COUNT, back = c->turn / RECURRENT_COUNT,
        lstm = kind == RECURRENT_LSTM, *d = c->dim;
    c->a.p.recurrent = (struct recurrent_args){(enum recurrent)kind, back};
    d['G'] = gates[kind] * d['H'], d['T'] = kept[kind] * d['H'], d['S'] = 1 + lstm;
    c->terms = (size_t)(d['L'] * (d['G'] + 16));
    if (c->op == OP_RECURRENT_FORWARD)
        c->without = (back ? NO_IN(3) : NO_IN(2)) | (kept[kind] == 1 ? NO_OUT(1) : 0) |
                     (lstm ? 0 : NO_OUT(2));
    else
        c->without = (lstm && !back ? 0 : NO_IN(3)) | (kind == RECURRENT_GRU ? 0 : NO_OUT(2));
}

/* The weights are small: the absolute values of a row, and of a column, add up to at most 1/2. So
 * no step enlarges the error of earlier steps, which the bound of ops_judge.c relies on. */
static int fill_recurrent(struct op_case *c) {
    struct op_case forward;
    struct tensor *w = &c->a.in[1];
    for (size_t i = 0; c->op == OP_RECURRENT_FORWARD && i < tensor_count(w); i++)
        tensor_f32(w)[i] /= (float)(2 * c->dim['G']);
    if (c->op == OP_RECURRENT_FORWARD) return OK;
    CHECK(case_forward(c, OP_RECURRENT_FORWARD, &forward));
    c->a.in[1] = forward.a.out[forward.a.out[1].data ? 1 : 0];
    c->a.in[2] = forward.a.in[1];
    return OK;
}

/* ---- attention ---- */

/* With and without masks, causal, with dropout; a row whose keys are all masked; sizes that are not
 * a multiple of a band, block or vector. Rows apart: of samples (L,H,E), with so many unused
 * elements after each. */
// clang-format off
static const int attended[][12] = {
    /* samples, heads, queries, keys, width, values; masks, rows of a mask, how many samples or
     * heads share it; causal, percent dropped, gap between rows */
    {1, 1,  1,   1,  1,   1,  0,  0, 0,  0,  0,  0},
    {3, 2,  5,   7,  3,   4,  2,  5, 1,  0,  0,  0},
    {2, 1, 70,  33, 16,   8,  0,  0, 0,  1,  0,  0},
    {2, 2, 17, 130,  5,  20,  2,  1, 2,  0, 25,  0},
    {1, 3, 66,  80,  8,   3,  0,  0, 0,  1, 50,  0},
    {3, 5, 33,  66, 17,  35,  3, 33, 5,  0,  0, 11},
    {2, 2, 70,   7, 16,  16,  0,  0, 0,  0,  0,  1},
    {1, 1,  3,   5, 70, 130,  0,  0, 0,  0,  0,  0},
    {0, 2,  2,   3,  4,   5,  0,  0, 0,  0,  0,  0},
};
// clang-format on

/* The most roundings of float between two ways to compute a case, in units of 1, if all operands
 * are in -1 .. 1. A score is a sum of E products below 1 and is off by (E + 2) E scale roundings,
 * and so is lse; a weight is off by twice that, relatively, and by one for each term of its row's
 * sum. A slope is a weight times scale times a difference of two sums of V products, at most 2 V
 * together, whose roundings are V + 2 each. A row's weights sum to 1, but a gradient of a key has a
 * term for each query. Dropout makes a weight larger by 1 / (1 - p), at most twice here: once in y,
 * twice in a product of y with a value. */
static size_t roundings_of(const int *d, double scale) {
    double weight = 4 * (d['E'] + 2) * d['E'] * scale + d['S'] + 16,
           sums = 2 * (d['V'] + 2) + d['L'] + d['S'],
           slope = 2 * d['V'] * scale > 1 ? 2 * d['V'] * scale : 1;
    return (size_t)((weight + sums) * slope * d['L'] * (d['p'] ? 4 : 1)) + 1;
}

static void set_attention(struct op_case *c) {
    const int *d = c->dim;
    double scale = 1 / sqrt(d['E']);
    c->a.p.attention = (struct attention_args){
        scale, d['c'], d['m'], {.p = (float)d['p'] / 100, .layer = 3, .v = 5}};
    c->terms = roundings_of(d, scale);
    if (!d['G']) c->without = NO_IN(3);
}

/* The same operand with its rows apart, if the op takes such. */
static int lay_apart(struct op_case *c, const struct operand *o, char data, struct tensor *t) {
    if (!o->name || !strchr(o->type, 's')) return OK;
    const char shape[] = {'N', o->shape[2], 'H', 'w', 0};
    c->dim['w'] = c->dim[(int)o->shape[3]] + c->dim['a'];
    CHECK(case_tensor(c, DTYPE_F32, shape, data, t));
    *t = tensor_permuted(t, (int[]){0, 2, 1, 3});
    t->dims[3] -= c->dim['a'];
    return OK;
}

static int fill_attention(struct op_case *c) {
    struct tensor *mask = &c->a.in[3];
    struct op_case forward;
    for (int i = 0; c->dim['a'] && i < OP_INPUTS; i++)
        CHECK(lay_apart(c, &op_table[c->op].in[i], 'r', &c->a.in[i]));
    for (int i = 0; c->dim['a'] && i < OP_OUTPUTS; i++)
        CHECK(lay_apart(c, &op_table[c->op].out[i], '-', &c->a.out[i]));
    for (size_t i = 0; mask->data && i < tensor_count(mask); i++)
        if (i % 5 == 2 || i < (size_t)c->dim['S']) tensor_f32(mask)[i] = -INFINITY;
    if (c->op == OP_ATTENTION_FORWARD) return OK;
    CHECK(case_forward(c, OP_ATTENTION_FORWARD, &forward));
    memcpy(c->a.in, forward.a.in, 4 * sizeof *c->a.in);
    c->a.in[4] = forward.a.out[0], c->a.in[5] = forward.a.out[1];
    return OK;
}

/* ---- the lists ---- */

// clang-format off
#define NORMS(FIRST, LAST) OP_BATCH_NORM_##FIRST, OP_BATCH_NORM_##LAST, "NCHW", "HW", \
        .set = set_norm, .fill = fill_norm
const struct case_list row_cases[] = {
    {OP_SOFTMAX_FORWARD, OP_SOFTMAX_BACKWARD, "NM", SIZES(scored), .turns = 2, .set = set_softmax,
        .fill = fill_softmax},
    {OP_CROSS_ENTROPY_FORWARD, OP_CROSS_ENTROPY_BACKWARD, "NM", SIZES(scored), .turns = 2,
        .set = set_loss, .fill = fill_loss},
    {OP_MSE_FORWARD, OP_MSE_BACKWARD, "NM", SIZES(scored), .set = set_loss, .fill = fill_loss},
    {NORMS(MOMENTS, OF_RUNNING), SIZES(normed)},
    {NORMS(TRACK, TRACK), SIZES(normed), .out = "r"},
    {NORMS(FACTORS, BACKWARD_DATA), SIZES(normed)},
    {NORMS(MOMENTS, MOMENTS), SIZES(normed_in_parts)},
    {NORMS(SUMS, SUMS), SIZES(normed_in_parts)},
    {OP_LAYER_NORM_FORWARD, OP_LAYER_NORM_BACKWARD_WEIGHT, "RLgiw", SIZES(layer_normed),
        .set = set_layer_norm, .fill = fill_layer_norm},
    {OP_RECURRENT_FORWARD, OP_RECURRENT_BACKWARD, "NLH", SIZES(recurrent),
        .turns = 2 * RECURRENT_COUNT, .set = set_recurrent, .fill = fill_recurrent},
    {OP_ATTENTION_FORWARD, OP_ATTENTION_BACKWARD, "NHLSEVGRmcpa", SIZES(attended),
        .set = set_attention, .fill = fill_attention},
    {.count = 0}};
// clang-format on
