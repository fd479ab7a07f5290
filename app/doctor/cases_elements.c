/* Cases of elementwise ops: changes of layout, sums, activations, dropout, optimizers. Also cases
 * of logs, where an op writes one cell and all others keep their value. */
#include <math.h>

#include "doctor/cases.h"
#include "nn/optimizer/optimizer.h"

static const int elements[][2] = {{1, 1}, {3, 1}, {1, 127}, {5, 128}, {17, 401}, {64, 1021},
                                  {0, 3}, {1, 2}, {1, 31},  {15, 1},  {16, 7},   {33, 5}};
static const int activated[][2] = {{1, 1}, {17, 401}, {0, 7}, {16, 9}};

static void set_activation(struct op_case *c) {
    c->a.p.activation = (struct activation_args){(enum activation)c->turn, .3f, .7f};
    if (c->turn == ACTIVATION_POW && c->dim['A'] == 16) c->a.p.activation.a = -3;
}

static void set_fill(struct op_case *c) {
    c->a.p.fill.value = 1.0f / 3;
}

/* ---- optimizers ---- */

static void set_sgd(struct op_case *c) {
    int i = c->row;
    c->step.learning_rate = .37f;
    c->step.first_update = i % 2;
    c->a.p.sgd = (struct sgd_args){i % 3 ? .9f : 0, i % 2 ? .013f : 0, i == 2 ? .3 : 0, i == 4};
    if (i % 3 == 0) c->without = NO_OUT(1);
}

static void set_adam(struct op_case *c) {
    int i = c->row;
    struct optimizer_config update = optimizer_default(c->op == OP_ADADELTA ? OPTIMIZER_ADADELTA
                                                       : i % 3 == 0         ? OPTIMIZER_ADAMW
                                                                            : OPTIMIZER_ADAM);
    update.weight_decay = i % 2 ? .013 : 0;
    optimizer_op(&update, &c->a);
    c->step.first_update = i % 2;
    optimizer_schedule(&c->step, &update, .37, 2 * i);
}

/* Two means per parameter: Adam's first is a mean of gradients, the others are means of squares,
 * hence not negative. */
static int fill_adam(struct op_case *c) {
    float *mean = tensor_f32(&c->a.out[1]);
    for (size_t i = 0; i < tensor_count(&c->a.out[1]); i++)
        if (c->op == OP_ADADELTA || i % 2) mean[i] = fabsf(mean[i]);
    return OK;
}

/* ---- random numbers, and planes of every size that a quad of elements can cut ---- */

static const int dropped[][4] = {{1, 1, 1, 1},  {17, 5, 1, 1}, {33, 3, 1, 2},
                                 {16, 7, 3, 1}, {5, 12, 5, 5}, {40, 2, 8, 8}};

static void set_dropout(struct op_case *c) {
    int i = c->row;
    c->a.p.dropout = (struct dropout_args){.25f * (float)(i % 5), i, 3 * i, 0, i % 2};
}

static void set_dropped_planes(struct op_case *c) {
    c->a.p.dropout = (struct dropout_args){.2f * (float)c->row, c->row, 3 * c->row, 1, 0};
}

/* ---- logs ---- */

static const int losses[][3] = {{0, 4, 3},   {1, 4, 3},   {2, 4, 3},
                                {255, 4, 3}, {257, 4, 3}, {1000, 4, 3}};
static const int hashed[][3] = {{1, 3, 4},    {3, 3, 4},    {255, 3, 4},
                                {1023, 3, 4}, {4097, 3, 4}, {70003, 3, 4}};

static void set_loss_sum(struct op_case *c) {
    c->step.row = 2;
    c->a.p.loss = (struct loss_args){.column = 1, .positions = c->row};
}

static int fill_loss_sum(struct op_case *c) {
    for (int i = 0; i < c->dim['N']; i++) {
        ((double *)c->a.in[0].data)[i] = exp(9 * rng_double(&c->all->rng)) / 3;
        ((int32_t *)c->a.in[1].data)[i] = case_index(c, 2);
    }
    return OK;
}

static void set_hash(struct op_case *c) {
    c->step.row = 1;
    c->a.p.hash.column = 2;
}

/* ---- clipping: norms above and below the maximum, none, an infinite one and a NaN ---- */

static const int clipped[][2] = {{1, 1}, {70, 4099}, {3, 31}, {2, 5}, {0, 7}, {4, 128}, {1, 6}};
static const double clip_sums[][2] = {/* sum of squares, maximum */
                                      {4, 1}, {1, .3},       {1, 1e9}, {1, 0},
                                      {0, 1}, {INFINITY, 1}, {NAN, 1}};

static int fill_clip(struct op_case *c) {
    c->a.p.clip.max_norm = clip_sums[c->row][1];
    for (int i = 0; i < c->dim['P']; i++)
        ((double *)c->a.in[0].data)[i] = clip_sums[c->row][0] * (1 + rng_double(&c->all->rng));
    return OK;
}

/* Pieces of every length around whole rounds of lanes, one after another and with gaps. */
static const int pieces[] = {1, 255, 256, 257, 4099, 0, 33000};
static const int summed[][2] = {{40000, CASE_COUNT(pieces)}};

static int fill_square_sums(struct op_case *c) {
    int32_t *piece = c->a.in[1].data;
    for (int i = 0, first = 0; i < CASE_COUNT(pieces); i++) {
        piece[2 * i] = first, piece[2 * i + 1] = pieces[i];
        first += pieces[i] + i % 3;
    }
    if (c->turn) put_special_values(&c->a.in[0]);
    return OK;
}

/* ---- conditions that are 0, -0, NaN and others, of every quad ---- */

static const int chosen[][1] = {{1}, {3}, {65}, {4097}};

/* Each operand is left out in turn. */
static void set_where(struct op_case *c) {
    int left_out = (3 * c->row + c->turn) % 3;
    if (!left_out) return;
    c->without = NO_IN(left_out);
    c->data = left_out == 1 ? "rrR" : "rRr";
    c->a.p.fill.value = -1.5f;
}

static int fill_where(struct op_case *c) {
    static const float odd[] = {0, 1, -0.0f, -3, 0, NAN, 0.25f, INFINITY, 0};
    for (int i = 0; i < c->dim['A']; i++)
        tensor_f32(&c->a.in[0])[i] = odd[(i + 3 * c->row + c->turn) % CASE_COUNT(odd)];
    return OK;
}

/* ---- the lists ---- */

/* Numbers of samples around multiples of 16, the size of a group. */
static const int laid[][4] = {
    {1, 1, 1, 1}, {15, 3, 5, 4}, {16, 2, 3, 3}, {17, 5, 1, 7}, {50, 4, 9, 9}};

// clang-format off
const struct case_list element_cases[] = {
    {OP_TO_N16, OP_TO_PLAIN, "NCHW", "NCHW", SIZES(laid)},
    {OP_ADD_FORWARD, OP_MULTIPLY_FORWARD, "AB", "AB", SIZES(elements), .in = "Rr"},
    {OP_WHERE, OP_WHERE, "A", "A", SIZES(chosen), .turns = 3, .set = set_where, .fill = fill_where},
    {OP_ACTIVATION_FORWARD, OP_ACTIVATION_BACKWARD, "AB", "AB", SIZES(activated),
        .turns = ACTIVATION_COUNT, .in = "Rr", .set = set_activation},
    {OP_DROPOUT, OP_DROPOUT, "NCHW", "NCHW", SIZES(dropped), .in = "R", .set = set_dropped_planes},
    {OP_DROPOUT, OP_RANDOM, "AB", "AB", SIZES(elements), .in = "R", .set = set_dropout},
    {OP_LOSS_SUM, OP_LOSS_SUM, "NRS", SIZES(losses), .set = set_loss_sum, .fill = fill_loss_sum},
    {OP_FILL, OP_FILL, "AB", "AB", SIZES(elements), .set = set_fill},
    {OP_SQUARE_SUMS, OP_SQUARE_SUMS, "NP", SIZES(summed), .turns = 2, .fill = fill_square_sums},
    {OP_CLIP, OP_CLIP, "PA", "A", SIZES(clipped), .out = "R", .fill = fill_clip},
    {OP_SGD, OP_SGD, "AB", "AB", SIZES(elements), .in = "R", .out = "r", .set = set_sgd},
    {OP_ADADELTA, OP_ADAM, "AB", "AB", SIZES(elements), .in = "R", .out = "r", .set = set_adam,
        .fill = fill_adam},
    {OP_HASH, OP_HASH, "ARS", "A", SIZES(hashed), .in = "R", .set = set_hash},
    {.count = 0}};
// clang-format on
