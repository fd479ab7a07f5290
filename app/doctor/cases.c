/* Cases of the operations without products: elementwise, dropout, softmax and losses, logs,
 * batches; and which file has the cases of an op. Among the random values are special ones: 0 and
 * -0, infinities, NaN, denormal numbers, and ties. */
#include <math.h>

#include "base/error.h"
#include "device/op_table.h"
#include "doctor/cases.h"
#include "nn/optimizer/optimizer.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* ---- element by element ---- */

static int activations(struct op_cases *c, enum op op) {
    static const int shapes[][2] = {{1, 1}, {17, 401}, {0, 7}, {16, 9}};
    for (int i = 0; i < COUNT(shapes) * ACTIVATION_COUNT; i++) {
        const int *s = shapes[i / ACTIVATION_COUNT];
        struct op_args a = {.in = {case_random(c, 2, s[0], s[1], 1, 1)},
                            .out = {case_tensor(c, DTYPE_F32, 2, s[0], s[1], 1, 1)}};
        enum activation kind = (enum activation)(i % ACTIVATION_COUNT);
        a.p.activation = (struct activation_args){kind, .3f, .7f};
        if (kind == ACTIVATION_POW && s[0] == 16) a.p.activation.a = -3;
        if (op == OP_ACTIVATION_BACKWARD) a.in[1] = case_random(c, 2, s[0], s[1], 1, 1);
        put_special_values(&a.in[0]);
        CHECK(case_run(c, op, &a, 0));
    }
    return OK;
}

static int elementwise(struct op_cases *c, enum op op) {
    static const int shapes[][2] = {{1, 1}, {3, 1}, {1, 127}, {5, 128}, {17, 401}, {64, 1021},
                                    {0, 3}, {1, 2}, {1, 31},  {15, 1},  {16, 7},   {33, 5}};
    for (int i = 0; i < COUNT(shapes); i++) {
        int n = shapes[i][0], k = shapes[i][1];
        struct step_block step = {
            .seed = c->seed, .step = 0x100000007, .learning_rate = .37f, .first_update = i % 2};
        struct tensor x = case_random(c, 2, n, k, 1, 1), dy = case_random(c, 2, n, k, 1, 1);
        struct op_args a = {.out = {case_tensor(c, DTYPE_F32, 2, n, k, 1, 1)}};
        struct optimizer_config update;
        put_special_values(&x);
        if (op != OP_FILL && op != OP_RANDOM) a.in[0] = x;
        switch (op) {
        case OP_SUBTRACT_FORWARD:
        case OP_MULTIPLY_FORWARD:
        case OP_ADD_FORWARD: a.in[1] = dy; break;
        case OP_FILL: a.p.fill.value = 1.0f / 3; break;
        case OP_SGD:
            a.step = &step;
            a.p.sgd =
                (struct sgd_args){i % 3 ? .9f : 0, i % 2 ? .013f : 0, i == 2 ? .3 : 0, i == 4};
            a.out[0] = case_random(c, 2, n, k, 1, 1);
            if (i % 3) a.out[1] = case_random(c, 2, n, k, 1, 1);
            break;
        case OP_ADADELTA:
        case OP_ADAM:
            update = optimizer_default(op == OP_ADADELTA ? OPTIMIZER_ADADELTA
                                       : i % 3 == 0      ? OPTIMIZER_ADAMW
                                                         : OPTIMIZER_ADAM);
            update.weight_decay = i % 2 ? .013 : 0;
            optimizer_op(&update, &a);
            optimizer_schedule(&step, &update, .37, 2 * i);
            a.step = &step;
            a.out[0] = case_random(c, 2, n, k, 1, 1);
            a.out[1] = case_random(c, 2, n * k, 2, 1, 1);
            /* out[1] holds the means, two per parameter: Adam's first is a mean of gradients, the
             * others are means of squares, hence not negative. */
            for (size_t e = 0; a.out[1].data && e < tensor_count(&a.out[1]); e++)
                if (op == OP_ADADELTA || e % 2)
                    tensor_f32(&a.out[1])[e] = fabsf(tensor_f32(&a.out[1])[e]);
            break;
        case OP_RANDOM:
        case OP_DROPOUT:
            a.step = &step;
            a.p.dropout = (struct dropout_args){.25f * (float)(i % 5), i, 3 * i, 0, i % 2};
            break;
        default: break;
        }
        CHECK(case_run(c, op, &a, 0));
    }
    return OK;
}

/* Numbers of samples around multiples of 16, the size of a group. */
static int layout(struct op_cases *c, enum op op) {
    static const int shapes[][4] = {
        {1, 1, 1, 1}, {15, 3, 5, 4}, {16, 2, 3, 3}, {17, 5, 1, 7}, {50, 4, 9, 9}};
    for (int i = 0; i < COUNT(shapes); i++) {
        const int *s = shapes[i];
        struct op_args a = {.in = {case_random(c, 4, s[0], s[1], s[2], s[3])},
                            .out = {case_tensor(c, DTYPE_F32, 4, s[0], s[1], s[2], s[3])}};
        CHECK(case_run(c, op, &a, 0));
    }
    return OK;
}

/* Planes of every size that a quad of elements can cut. */
static int dropped_planes(struct op_cases *c) {
    static const int shapes[][4] = {{1, 1, 1, 1},  {17, 5, 1, 1}, {33, 3, 1, 2},
                                    {16, 7, 3, 1}, {5, 12, 5, 5}, {40, 2, 8, 8}};
    for (int i = 0; i < COUNT(shapes); i++) {
        const int *s = shapes[i];
        struct step_block step = {.seed = c->seed, .step = 0x100000007};
        struct op_args a = {.in = {case_random(c, 4, s[0], s[1], s[2], s[3])},
                            .out = {case_tensor(c, DTYPE_F32, 4, s[0], s[1], s[2], s[3])},
                            .step = &step,
                            .p.dropout = {.2f * (float)i, i, 3 * i, 1, 0}};
        put_special_values(&a.in[0]);
        CHECK(case_run(c, OP_DROPOUT, &a, 0));
    }
    return OK;
}

/* ---- row by row ---- */

static struct tensor labels_of(struct op_cases *c, int rows, int classes) {
    struct tensor labels = case_tensor(c, DTYPE_I32, 1, rows, 1, 1, 1);
    for (int i = 0; labels.data && i < rows; i++)
        ((int32_t *)labels.data)[i] = i % 13 == 12 ? -1
                                      : i % 13 == 6
                                          ? classes
                                          : (int32_t)(rng_u32(&c->rng) % (uint32_t)classes);
    return labels;
}

/* Scores in [-1, 1), in integers from -4 to 4 (so that there are ties), and in [-60, 60); NaN
 * and infinities where "the first of the largest" looks first and last. */
static struct tensor scores_of(struct op_cases *c, int rows, int classes) {
    struct tensor x = case_random(c, 2, rows, classes, 1, 1);
    for (int i = 0; x.data && i < rows; i++)
        for (int j = 0; j < classes; j++) {
            float *score = tensor_f32(&x) + (size_t)i * (size_t)classes + j;
            *score = i % 3 == 0 ? *score : i % 3 == 1 ? roundf(*score * 4) : *score * 60;
            if (i % 11 == 3 && j == 0) *score = NAN;
            if (i % 11 == 5 && j == classes - 1) *score = NAN;
            if (i % 11 == 7 && j == i % classes) *score = INFINITY;
            if (i % 11 == 9 && j == i % classes) *score = -INFINITY;
        }
    return x;
}

static int rows(struct op_cases *c, enum op op) {
    static const int shapes[][2] = {{1, 1},    {41, 10},  {5, 31}, {7, 33},
                                    {3, 1000}, {256, 10}, {0, 3},  {30, 2}};
    int softmax = op == OP_SOFTMAX_FORWARD || op == OP_SOFTMAX_BACKWARD,
        mse = op == OP_MSE_FORWARD || op == OP_MSE_BACKWARD,
        forward = op == OP_CROSS_ENTROPY_FORWARD || op == OP_MSE_FORWARD;
    for (int turn = 0; turn < COUNT(shapes) * (2 - mse); turn++) {
        int i = turn % COUNT(shapes), n = shapes[i][0], k = shapes[i][1], reduction = i % 3,
            log = turn != i;
        struct step_block step = {.weight = 1.0f / 96};
        struct op_args a = {.in = {scores_of(c, n, k)},
                            .out = {case_tensor(c, DTYPE_F32, 2, n, k, 1, 1)}};
        if (softmax) a.p.softmax.log = log;
        if (op == OP_SOFTMAX_BACKWARD) {
            struct tensor y = case_tensor(c, DTYPE_F32, 2, n, k, 1, 1);
            if (a.in[0].data && y.data) /* the first input is the output of forward */
                host_reference_kernels[OP_SOFTMAX_FORWARD](
                    &(struct op_args){.in = {a.in[0]}, .out = {y}, .p = a.p});
            a.in[0] = y;
            a.in[1] = case_random(c, 2, n, k, 1, 1);
        }
        if (!softmax) {
            a.in[1] = mse ? case_random(c, 2, n, k, 1, 1) : labels_of(c, n, k);
            a.step = &step;
            a.p.loss = (struct loss_args){.reduction = reduction, .log_probabilities = log};
            if (!log && !mse && i % 2) a.p.loss.smoothing = .1;
            if (mse) a.p.loss.distance = (2 * i + i / 3) % 3; /* with each reduction */
            if (reduction == REDUCE_MEAN && i) a.p.loss.places = 7;
            if (!forward && reduction == REDUCE_NONE) a.in[2] = case_random(c, 1, n, 1, 1, 1);
            if (!mse && i > 2) a.p.loss.ignores = 1, a.p.loss.ignore_index = i % 2 ? k : k - 1;
            if (!mse && i > 3) a.in[3] = case_random(c, 1, k, 1, 1, 1);
        }
        if (forward) {
            a.out[0] = case_tensor(c, DTYPE_F64, 1, n, 1, 1, 1);
            a.out[1] = case_tensor(c, DTYPE_I32, 1, n, 1, 1, 1);
        }
        CHECK(case_run(c, op, &a, 0));
    }
    return OK;
}

/* ---- logs: one cell is written, all others keep their value ---- */

static int loss_sum(struct op_cases *c) {
    static const int samples[] = {0, 1, 2, 255, 257, 1000};
    for (int i = 0; i < COUNT(samples); i++) {
        struct step_block step = {.row = 2};
        struct op_args a = {.in = {case_tensor(c, DTYPE_F64, 1, samples[i], 1, 1, 1),
                                   case_tensor(c, DTYPE_I32, 1, samples[i], 1, 1, 1)},
                            .out = {case_tensor(c, DTYPE_F64, 2, 4, 3, 1, 1),
                                    case_tensor(c, DTYPE_I64, 2, 4, 3, 1, 1)},
                            .step = &step,
                            .p.loss = {.column = 1, .places = i}};
        for (int k = 0; a.in[0].data && a.in[1].data && k < samples[i]; k++) {
            ((double *)a.in[0].data)[k] = exp(9 * rng_double(&c->rng)) / 3;
            ((int32_t *)a.in[1].data)[k] = (int32_t)(rng_u32(&c->rng) % 2);
        }
        CHECK(case_run(c, OP_LOSS_SUM, &a, 0));
    }
    return OK;
}

static int hash(struct op_cases *c) {
    static const int sizes[] = {1, 3, 255, 1023, 4097, 70003};
    for (int i = 0; i < COUNT(sizes); i++) {
        struct step_block step = {.row = 1};
        struct op_args a = {.in = {case_random(c, 1, sizes[i], 1, 1, 1)},
                            .out = {case_tensor(c, DTYPE_U64, 2, 3, 4, 1, 1)},
                            .step = &step,
                            .p.hash = {2}};
        put_special_values(&a.in[0]);
        CHECK(case_run(c, OP_HASH, &a, 0));
    }
    return OK;
}

/* Pieces of every length around whole rounds of lanes, behind one another and with gaps. */
static int square_sums(struct op_cases *c) {
    static const int sizes[] = {1, 255, 256, 257, 4099, 0, 33000};
    enum { PIECES = COUNT(sizes), GAP = 3 };
    for (int special = 0; special < 2; special++) {
        struct op_args a = {.in = {case_random(c, 1, 40000, 1, 1, 1),
                                   case_tensor(c, DTYPE_I32, 2, PIECES, 2, 1, 1)},
                            .out = {case_tensor(c, DTYPE_F64, 1, PIECES, 1, 1, 1)}};
        int32_t *piece = a.in[1].data;
        for (int i = 0, first = 0; piece && i < PIECES; i++) {
            piece[2 * i] = first, piece[2 * i + 1] = sizes[i];
            first += sizes[i] + i % GAP;
        }
        if (special) put_special_values(&a.in[0]);
        CHECK(case_run(c, OP_SQUARE_SUMS, &a, 0));
    }
    return OK;
}

/* Norms above and below the maximum, none, an infinite one and a NaN. */
static int clip(struct op_cases *c) {
    static const struct {
        int pieces, count;
        double sum, max_norm;
    } cases[] = {{1, 1, 4, 1}, {70, 4099, 1, .3},     {3, 31, 1, 1e9}, {2, 5, 1, 0},
                 {0, 7, 0, 1}, {4, 128, INFINITY, 1}, {1, 6, NAN, 1}};
    for (int i = 0; i < COUNT(cases); i++) {
        struct op_args a = {.in = {case_tensor(c, DTYPE_F64, 1, cases[i].pieces, 1, 1, 1)},
                            .out = {case_random(c, 1, cases[i].count, 1, 1, 1)},
                            .p.clip = {cases[i].max_norm}};
        for (int k = 0; a.in[0].data && k < cases[i].pieces; k++)
            ((double *)a.in[0].data)[k] = cases[i].sum * (1 + rng_double(&c->rng));
        put_special_values(&a.out[0]);
        CHECK(case_run(c, OP_CLIP, &a, 0));
    }
    return OK;
}

/* Conditions that are 0, -0, NaN and others, of every quad; each operand is left out in turn. */
static int where(struct op_cases *c) {
    static const int sizes[] = {1, 3, 65, 4097};
    static const float odd[] = {0, 1, -0.0f, -3, 0, NAN, 0.25f, INFINITY, 0};
    for (int i = 0; i < 3 * COUNT(sizes); i++) {
        int n = sizes[i / 3];
        struct op_args a = {.in = {case_random(c, 1, n, 1, 1, 1)},
                            .out = {case_tensor(c, DTYPE_F32, 1, n, 1, 1, 1)}};
        for (int k = 0; a.in[0].data && k < n; k++)
            tensor_f32(&a.in[0])[k] = odd[(k + i) % COUNT(odd)];
        for (int k = 1; k < 3; k++)
            if (k != i % 3) a.in[k] = case_random(c, 1, n, 1, 1, 1);
        if (i % 3) put_special_values(&a.in[3 - i % 3]), a.p.fill.value = -1.5f;
        CHECK(case_run(c, OP_WHERE, &a, 0));
    }
    return OK;
}

static int pointwise(struct op_cases *c, enum op op) {
    switch (op) {
    case OP_WHERE: return where(c);
    case OP_CLIP: return clip(c);
    case OP_ACTIVATION_FORWARD:
    case OP_ACTIVATION_BACKWARD: return activations(c, op);
    case OP_DROPOUT: CHECK(dropped_planes(c)); return elementwise(c, op);
    default: return elementwise(c, op);
    }
}

int op_cases(struct op_cases *c, enum op op) {
    switch (op_table[op].family) {
    case LAYOUT: return layout(c, op);
    case PRODUCT: return product_cases(c, op);
    case POINTWISE: return pointwise(c, op);
    case PICTURE: return picture_cases(c, op);
    case LOSS: return rows(c, op);
    case NORM: return norm_cases(c, op);
    case LAYER_NORM: return layer_norm_cases(c, op);
    case LOG: return op == OP_HASH ? hash(c) : op == OP_LOSS_SUM ? loss_sum(c) : square_sums(c);
    case ALGEBRA: return algebra_cases(c, op);
    case ALONG: return places_cases(c, op);
    case RECURRENT: return recurrent_cases(c, op);
    case ATTENTION: return attention_cases(c, op);
    }
    return fail(ERR_FAILED, "%s: it is of no family: device/op_table.c", op_name(op));
}
