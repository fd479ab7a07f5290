/* Cases of convolutions and linear layers, with two kinds of data.
 *
 * Random numbers, in odd shapes that are not a multiple of a tile: every output must be within the
 * rounding errors of its own sum.
 *
 * Integers from -4 to 4, in the shapes of LeNet's and ConvNet's layers: every partial sum is an
 * integer below 2^24, hence exact in float and in tf32 in whatever order the terms are added. A
 * term that is missing, added twice or wrong changes the result, however long the sum. */
#include "base/error.h"
#include "doctor/cases.h"

enum pass { FORWARD, BACKWARD_DATA, BACKWARD_WEIGHT };

/* A layer's operands. Only the shape of y is used, and dy has the same. */
struct layer {
    struct tensor x, w, b, y;
    struct op_args p; /* only its parameters */
};

/* case_random or case_whole. */
typedef struct tensor maker(struct op_cases *c, int rank, int d0, int d1, int d2, int d3);

/* Runs one pass with the operands that it takes. terms: how many products its longest sum has. */
static int run_pass(struct op_cases *c, enum op op, enum pass pass, const struct layer *l,
                    maker *make) {
    struct op_args a = {.p = l->p.p};
    const int *yd = l->y.dims;
    struct tensor dy = make(c, l->y.rank, yd[0], yd[1], yd[2], yd[3]);
    size_t terms = 0;
    const struct tensor nothing = {.data = NULL};
    a.in[2] = pass == FORWARD ? l->b : nothing;
    if (pass == FORWARD) {
        a.in[0] = l->x, a.in[1] = l->w, a.out[0] = l->y;
        terms = tensor_count(&l->w) / (size_t)l->b.dims[0] + 1; /* and the bias */
    } else if (pass == BACKWARD_DATA) {
        a.in[0] = dy, a.in[1] = l->w, a.out[0] = l->x;
        terms = tensor_count(&l->w) / (size_t)l->x.dims[1];
    } else {
        a.in[0] = l->x, a.in[1] = dy, a.out[0] = l->w, a.out[1] = l->b;
        terms = (size_t)l->x.dims[0] * (l->y.rank == 4 ? (size_t)(yd[2] * yd[3]) : 1);
    }
    for (int i = 0; i < 2; i++) /* outputs have the same shapes and begin as NaN */
        if (a.out[i].rank)
            a.out[i] = case_tensor(c, DTYPE_F32, a.out[i].rank, a.out[i].dims[0], a.out[i].dims[1],
                                   a.out[i].dims[2], a.out[i].dims[3]);
    return case_run(c, op, &a, make == case_whole ? 0 : terms);
}

/* x (n, c, h, w), weights (out, c, k, k), y (n, out, p, q). */
struct conv_shape {
    int n, c, h, w, out, k, stride, pad;
};

static int convolution(struct op_cases *c, enum op op, const struct conv_shape *s, maker *make) {
    int p = (s->h + 2 * s->pad - s->k) / s->stride + 1;
    int q = (s->w + 2 * s->pad - s->k) / s->stride + 1;
    struct layer l = {make(c, 4, s->n, s->c, s->h, s->w),
                      make(c, 4, s->out, s->c, s->k, s->k),
                      make(c, 1, s->out, 1, 1, 1),
                      case_tensor(c, DTYPE_F32, 4, s->n, s->out, p, q),
                      {.p.conv = conv_square(s->stride, s->pad)}};
    CHECK(run_pass(c, op, (enum pass)(op - OP_CONV2D_FORWARD), &l, make));
    return OK;
}

/* x (n, in), y (n, out); weights (out, in), or with `turned` (in, out). */
struct linear_shape {
    int n, in, out;
};

static int linear(struct op_cases *c, enum op op, const struct linear_shape *s, int turned,
                  maker *make) {
    int rows = turned ? s->in : s->out, columns = turned ? s->out : s->in;
    struct layer l = {make(c, 2, s->n, s->in, 1, 1),
                      make(c, 2, rows, columns, 1, 1),
                      make(c, 1, s->out, 1, 1, 1),
                      case_tensor(c, DTYPE_F32, 2, s->n, s->out, 1, 1),
                      {.p.linear = {turned}}};
    CHECK(run_pass(c, op, (enum pass)(op - OP_LINEAR_FORWARD), &l, make));
    return OK;
}

// clang-format off
/*  n   c   h   w out  k  stride, pad */
static const struct conv_shape conv_random[] = {
    { 5,  1, 28, 28,  6, 3, 1, 0},
    { 7,  3,  9, 11,  4, 5, 1, 2},
    { 1, 17,  6,  6, 65, 3, 1, 1},
    { 3,  2,  9, 14,  4, 5, 2, 2},
    {33,  2, 10,  9, 11, 2, 1, 0},
    { 2,  9,  7,  8, 10, 1, 2, 0},
    { 1,  1,  1,  1,  1, 1, 1, 0},
    { 2,  3,  3,  3,  5, 5, 1, 2},
    { 3, 33,  9,  7, 40, 3, 1, 1},
};

/* The two convolutions of LeNet and of ConvNet and one of ResNet-18, with a last tile of samples
 * that is not full. */
static const struct conv_shape conv_whole[] = {
    {35,  1, 28, 28, 20, 3, 1, 0},
    {19, 20, 13, 13, 50, 5, 1, 0},
    {19,  1, 28, 28, 16, 3, 1, 0},
    { 9, 16, 26, 26, 32, 3, 1, 0},
    {19, 64,  7,  7, 64, 3, 1, 1},
};

/* What decides how the host computes a convolution: groups of 16 samples that are not full, tiles
 * past the edge, Winograd's filtering and weight gradients with channels innermost, each with
 * channels that fill no tile (device/host/kernels/conv_way.h). The largest is not among every
 * third, which --quick takes. */
static const struct conv_shape conv_host[] = {
    { 0,  2,  6,  6,  3, 3, 1, 0},
    {15,  1, 28, 28,  6, 3, 1, 0},
    {16,  2, 13, 13,  5, 5, 1, 0},
    { 3,  7,  8,  5,  9, 1, 1, 0},
    { 5,  3, 12, 31,  2, 3, 1, 1},
    { 2,  2,  9,  9,  7, 7, 1, 2},
    { 2,  3, 13,  8,  5, 2, 2, 0},
    { 1,  2, 14, 15,  3, 7, 2, 2},
    { 2,  1, 10, 11,  6, 3, 3, 0},
    { 1,  1,  5, 40,  1, 5, 1, 0},
    { 1,  2,  6, 30,  4, 3, 1, 2},
    { 2,  1,  4,  4,  1, 7, 3, 2},
    { 1, 50,  4,  4, 34, 3, 1, 0},
    {17, 32, 28, 14, 32, 3, 1, 1},
    { 2, 35,  6,  7, 32, 3, 1, 2},
    {33, 40,  8,  4, 51, 3, 1, 1},
    {18, 32,  9, 14, 35, 3, 2, 1},
    { 3, 50,  7,  7, 33, 1, 2, 0},
    { 2, 33,  9,  6, 40, 5, 3, 2},
};

/* On GPUs the number of samples also decides which kernel computes a product
 * (device/cuda/kernels/plan.h, device/cuda/kernels/planes.h). These are the layers with batches of
 * the size that training uses, some of which use kernels that no case above uses. */
static const struct conv_shape conv_large[] = {
    { 64, 20, 13, 13, 50, 5, 1, 0},
    {256,  1, 28, 28, 20, 3, 1, 0},
    {256, 20, 13, 13, 50, 5, 1, 0},
    {256,  1, 28, 28, 16, 3, 1, 0},
    {256, 16, 26, 26, 32, 3, 1, 0},
};
// clang-format on

static const struct linear_shape linear_random[] = {
    {1, 1, 1},      {17, 31, 5}, {33, 65, 7},   {2, 300, 11}, {3, 11, 300},
    {130, 70, 129}, {16, 64, 6}, {530, 33, 13}, {0, 5, 3},    {513, 5, 40}};
static const struct linear_shape linear_whole[] = {{67, 800, 128}, {67, 128, 10}, {19, 4608, 64}};
/* The layers of LeNet come first: its weights are (in, out), ConvNet's are (out, in). */
enum { LENET_LINEARS = 3 };
static const struct linear_shape linear_large[] = {
    {256, 800, 128}, {1024, 800, 128}, {256, 128, 10}, {256, 4608, 64}, {256, 64, 10}};

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static int convolutions(struct op_cases *c, enum op op, const struct conv_shape *shapes, int count,
                        maker *make) {
    for (int i = 0; i < count; i += c->quick ? 3 : 1)
        CHECK(convolution(c, op, &shapes[i], make));
    return OK;
}

/* Depthwise, several outputs a channel, groups of several, dilation, windows that are not square,
 * one group; and more taps, steps and columns than the host's kernels process at once. n, c, h, w,
 * out, rows and columns of the window, groups, strides, paddings, dilations. */
static int grouped_cases(struct op_cases *c, enum op op) {
    static const int shapes[][14] = {{5, 7, 9, 8, 7, 3, 3, 7, 1, 1, 1, 1, 1, 1},
                                     {17, 4, 11, 7, 8, 3, 3, 4, 2, 2, 1, 1, 1, 1},
                                     {2, 6, 7, 9, 4, 5, 1, 2, 1, 2, 2, 0, 1, 1},
                                     {3, 2, 10, 9, 3, 3, 2, 1, 1, 3, 2, 1, 2, 3},
                                     {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1},
                                     {0, 2, 5, 5, 2, 3, 3, 2, 1, 1, 1, 1, 1, 1},
                                     {33, 3, 1, 40, 6, 1, 9, 3, 1, 4, 0, 8, 1, 2},
                                     {2, 2, 3, 3, 2, 7, 7, 2, 1, 1, 3, 3, 1, 1},
                                     {3, 2, 10, 9, 2, 9, 9, 2, 1, 1, 4, 4, 1, 1},
                                     {2, 1, 2, 80, 1, 1, 3, 1, 1, 70, 0, 0, 1, 1},
                                     {2, 1, 1, 70, 1, 1, 66, 1, 1, 1, 0, 65, 1, 1},
                                     {2, 3, 5, 26, 3, 3, 3, 3, 1, 1, 1, 1, 1, 1},
                                     {1, 2, 4, 60, 2, 3, 3, 2, 2, 2, 1, 1, 1, 1},
                                     {1, 2, 6, 60, 2, 5, 5, 2, 2, 2, 2, 2, 1, 1},
                                     {2, 2, 8, 28, 2, 7, 7, 2, 1, 1, 3, 3, 1, 1},
                                     {1, 2, 4, 60, 2, 3, 7, 2, 2, 2, 1, 3, 1, 1},
                                     {1, 1, 12, 49, 1, 11, 25, 1, 10, 2, 2, 1, 1, 1}};
    for (int i = 0; i < 2 * COUNT(shapes); i++) {
        const int *s = shapes[i / 2];
        maker *make = i % 2 ? case_whole : case_random;
        int p = (s[2] + 2 * s[10] - s[12] * (s[5] - 1) - 1) / s[8] + 1,
            q = (s[3] + 2 * s[11] - s[13] * (s[6] - 1) - 1) / s[9] + 1;
        struct layer l = {make(c, 4, s[0], s[1], s[2], s[3]),
                          make(c, 4, s[4], s[1] / s[7], s[5], s[6]),
                          make(c, 1, s[4], 1, 1, 1),
                          case_tensor(c, DTYPE_F32, 4, s[0], s[4], p, q),
                          {.p.conv = {{s[8], s[9]}, {s[10], s[11]}, {s[12], s[13]}, s[7], 1}}};
        CHECK(run_pass(c, op, (enum pass)(op - OP_CONV2D_FORWARD), &l, make));
    }
    return OK;
}

static int conv_cases(struct op_cases *c, enum op op) {
    CHECK(convolutions(c, op, conv_random, COUNT(conv_random), case_random));
    CHECK(convolutions(c, op, conv_whole, COUNT(conv_whole), case_whole));
    if (c->layout == LAYOUT_N16)
        CHECK(convolutions(c, op, conv_host, COUNT(conv_host), case_whole));
    CHECK(grouped_cases(c, op));
    return c->large ? convolutions(c, op, conv_large, COUNT(conv_large), case_whole) : OK;
}

static int linear_cases(struct op_cases *c, enum op op) {
    int every = c->quick ? 3 : 1;
    for (int i = 0; i < 2 * COUNT(linear_random); i += every)
        CHECK(linear(c, op, &linear_random[i / 2], i % 2, case_random));
    for (int i = 0; i < COUNT(linear_whole); i += every)
        CHECK(linear(c, op, &linear_whole[i], i % 2, case_whole));
    for (int i = 0; c->large && i < COUNT(linear_large); i++)
        CHECK(linear(c, op, &linear_large[i], i < LENET_LINEARS, case_whole));
    return OK;
}

int product_cases(struct op_cases *c, enum op op) {
    return op <= OP_CONV2D_BACKWARD_WEIGHT ? conv_cases(c, op) : linear_cases(c, op);
}
