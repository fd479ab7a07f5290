/* Cases of the normalisations' ops. Each op is checked by itself: the reference makes the inputs
 * that earlier ops make in training. */
#include "base/error.h"
#include "doctor/cases.h"

static struct tensor of(struct op_cases *c, enum dtype dtype, int rows, int channels) {
    return case_tensor(c, dtype, 2, rows, channels, 1, 1);
}

/* Runs the reference on tensors of this case, unless memory for them was missing. */
static void prepare(enum op op, struct op_args args) {
    for (int i = 0; i < 3; i++)
        if (args.in[i].rank && !args.in[i].data) return;
    if (args.out[0].data) host_reference_kernels[op](&args);
}

/* The moments of three segments, one of them empty. */
static struct tensor parts_of(struct op_cases *c, int n, int channels) {
    struct tensor parts = case_tensor(c, DTYPE_F64, 3, 3, 3, channels, 1);
    for (int s = 0; s < 3; s++) {
        struct tensor part = tensor_plain(NULL, DTYPE_F64, 2, (int[]){3, channels});
        struct tensor x = case_random(c, 4, s == 1 ? 0 : n + s, channels, 2, 3);
        if (parts.data) part.data = (double *)parts.data + (size_t)s * 3 * (size_t)channels;
        prepare(OP_BATCH_NORM_MOMENTS, (struct op_args){.in = {x}, .out = {part}});
    }
    return parts;
}

static int norm_case(struct op_cases *c, enum op op, const int s[4]) { /* n C H W */
    int channels = s[1];
    struct tensor x = case_random(c, 4, s[0], channels, s[2], s[3]),
                  dy = case_random(c, 4, s[0], channels, s[2], s[3]),
                  y = case_tensor(c, DTYPE_F32, 4, s[0], channels, s[2], s[3]),
                  w = case_random(c, 1, channels, 1, 1, 1),
                  b = case_random(c, 1, channels, 1, 1, 1), moments = of(c, DTYPE_F64, 3, channels),
                  sums = of(c, DTYPE_F64, 2, channels),
                  fresh_moments = of(c, DTYPE_F64, 3, channels),
                  running = case_random(c, 2, 2, channels, 1, 1);
    struct op_args a = {.p.norm = {1e-5, s[0] % 2 ? 0.1 : -1, 0}};
    prepare(OP_BATCH_NORM_MOMENTS, (struct op_args){.in = {x}, .out = {moments}});
    prepare(OP_BATCH_NORM_SUMS, (struct op_args){.in = {x, dy, moments}, .out = {sums}});
    switch (op) {
    case OP_BATCH_NORM_MOMENTS: a.in[0] = x, a.out[0] = fresh_moments; break;
    case OP_BATCH_NORM_MERGE:
        a.in[0] = parts_of(c, s[0], channels), a.out[0] = fresh_moments;
        break;
    case OP_BATCH_NORM_OF_RUNNING: a.in[0] = running, a.out[0] = fresh_moments; break;
    case OP_BATCH_NORM_TRACK:
        a.in[0] = moments, a.out[0] = running;
        a.out[1] = case_tensor(c, DTYPE_I64, 1, 1, 1, 1, 1);
        if (a.out[1].data) *(int64_t *)a.out[1].data = 6;
        break;
    case OP_BATCH_NORM_FACTORS:
        a.in[0] = moments, a.in[1] = w, a.in[2] = b, a.out[0] = of(c, DTYPE_F32, 2, channels);
        break;
    case OP_BATCH_NORM_FORWARD:
        a.in[0] = x, a.in[1] = running, a.out[0] = y;
        a.p.norm.relu = s[0] % 3 == 0;
        if (s[0] > 15) a.in[2] = dy;
        break;
    case OP_BATCH_NORM_SUMS:
        a.in[0] = x, a.in[1] = dy, a.in[2] = moments, a.out[0] = of(c, DTYPE_F64, 2, channels);
        break;
    case OP_BATCH_NORM_TOTAL: { /* the moments' rows serve as sums */
        a.in[0] = parts_of(c, s[0], channels), a.out[0] = of(c, DTYPE_F64, 2, channels);
        a.in[0].dims[1] = 2;
        break;
    }
    case OP_BATCH_NORM_BACKWARD_WEIGHT:
        a.in[0] = sums, a.in[1] = moments, a.out[0] = w, a.out[1] = b;
        break;
    case OP_BATCH_NORM_BACKWARD_FACTORS:
        a.in[0] = sums, a.in[1] = moments, a.in[2] = w, a.out[0] = of(c, DTYPE_F32, 4, channels);
        break;
    default: /* OP_BATCH_NORM_BACKWARD_DATA */
        a.in[0] = x, a.in[1] = dy, a.in[2] = case_random(c, 2, 4, channels, 1, 1), a.out[0] = y;
        break;
    }
    return case_run(c, op, &a, (size_t)s[0] * (size_t)(s[2] * s[3]));
}

int norm_cases(struct op_cases *c, enum op op) {
    /* A GPU cuts each channel of the last one into three parts in the passes over all values. */
    static const int shapes[][4] = {{2, 1, 1, 1},  {3, 5, 4, 3},   {15, 2, 1, 9},  {17, 19, 1, 1},
                                    {33, 3, 7, 5}, {32, 16, 8, 8}, {19, 3, 30, 31}};
    const int cut = op == OP_BATCH_NORM_MOMENTS || op == OP_BATCH_NORM_SUMS;
    for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes) - !cut; i++)
        CHECK(norm_case(c, op, shapes[i]));
    return OK;
}

/* LayerNorm, GroupNorm, and both without weights. */
int layer_norm_cases(struct op_cases *c, enum op op) {
    static const int shapes[][5] = {/* rows, length, groups, neighbours, are there weights? */
                                    {1, 1, 1, 1, 1},    {7, 33, 1, 1, 1},  {65, 64, 1, 1, 0},
                                    {3, 1000, 1, 1, 1}, {12, 30, 3, 5, 1}, {8, 48, 2, 48, 1},
                                    {0, 9, 1, 1, 1}};
    for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); i++) {
        const int *s = shapes[i];
        int weights = s[2] * (s[1] / s[3]), back = op != OP_LAYER_NORM_FORWARD;
        struct op_args a = {.p.layer_norm = {1e-5, s[2], s[3]}},
                       forward = {.p.layer_norm = {1e-5, s[2], s[3]}};
        struct tensor x = case_random(c, 2, s[0], s[1], 1, 1),
                      y = case_tensor(c, DTYPE_F32, 2, s[0], s[1], 1, 1),
                      moments = of(c, DTYPE_F64, s[0], 2), w = case_random(c, 1, weights, 1, 1, 1),
                      b = case_random(c, 1, weights, 1, 1, 1);
        a.in[0] = x, a.out[0] = y;
        if (s[4]) a.in[back ? 2 : 1] = w;
        if (s[4] && !back) a.in[2] = b;
        if (!back) a.out[1] = moments;
        if (back) a.in[1] = case_random(c, 2, s[0], s[1], 1, 1);
        if (op == OP_LAYER_NORM_BACKWARD_WEIGHT) {
            forward.in[0] = x, forward.out[0] = y, forward.out[1] = moments;
            prepare(OP_LAYER_NORM_FORWARD, forward);
            a.in[2] = moments, a.out[0] = w, a.out[1] = b;
        }
        CHECK(case_run(c, op, &a, 0));
    }
    return OK;
}
