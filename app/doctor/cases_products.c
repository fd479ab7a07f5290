/* Cases of convolutions, linear layers and matrix products, with two kinds of data.
 *
 * Random numbers, in odd shapes that are no multiple of a tile: the error of each output must be
 * within the rounding errors of its own sum.
 *
 * Integers from -4 to 4, in the shapes of LeNet's and ConvNet's layers: every partial sum is an
 * integer below 2^24, so it is exact in float and in tf32, in any order of the terms. A missing,
 * repeated or wrong term changes the result, however long the sum is. */
#include "doctor/cases.h"

static int is_whole(const struct op_case *c) {
    return c->data && *c->data == 'w';
}

static int conv_terms(const struct op_case *c) {
    const int *d = c->dim;
    switch (c->op) {
    case OP_CONV2D_FORWARD: return d['G'] * d['K'] * d['L'] + 1; /* plus one for the bias */
    case OP_CONV2D_BACKWARD_DATA: return d['O'] * d['G'] * d['K'] * d['L'] / d['C'];
    default: return d['N'] * d['P'] * d['Q'];
    }
}

static int pixels(int x, int padding, int dilation, int window, int stride) {
    return (x + 2 * padding - dilation * (window - 1) - 1) / stride + 1;
}

/* One group of square windows: k taps, strides and paddings alike in both directions. */
static void set_conv(struct op_case *c) {
    int *d = c->dim;
    c->a.p.conv = conv_square(d['s'], d['p']);
    d['G'] = d['C'], d['L'] = d['K'];
    d['P'] = pixels(d['H'], d['p'], 1, d['K'], d['s']);
    d['Q'] = pixels(d['W'], d['p'], 1, d['K'], d['s']);
    c->terms = is_whole(c) ? 0 : (size_t)conv_terms(c);
}

static void set_grouped_conv(struct op_case *c) {
    int *d = c->dim;
    c->data = c->turn ? "w" : "r";
    c->a.p.conv =
        (struct conv_args){{d['s'], d['t']}, {d['p'], d['q']}, {d['d'], d['e']}, d['g'], 1};
    d['G'] = d['C'] / d['g'];
    d['P'] = pixels(d['H'], d['p'], d['d'], d['K'], d['s']);
    d['Q'] = pixels(d['W'], d['q'], d['e'], d['L'], d['t']);
    c->terms = is_whole(c) ? 0 : (size_t)conv_terms(c);
}

/* Weights are (in, out), as LeNet's, or (out, in), as ConvNet's. */
static void set_linear(struct op_case *c) {
    c->a.p.linear.weight_is_in_out = c->dim['t'] < 0 ? c->turn : c->dim['t'];
    c->terms = (size_t)(c->op == OP_LINEAR_FORWARD         ? c->dim['K'] + 1
                        : c->op == OP_LINEAR_BACKWARD_DATA ? c->dim['M']
                                                           : c->dim['N']);
    if (is_whole(c)) c->terms = 0;
}

static void set_matmul(struct op_case *c) {
    int stored = c->turn % 3;
    c->data = c->turn / 3 ? "w" : "r";
    c->a.p.matmul = (struct matmul_args){stored == 1, stored == 2};
    c->terms = is_whole(c) ? 0 : (size_t)c->dim['K'];
}

// clang-format off
/*  n   c   h   w out  k  stride, pad */
static const int conv_random[][8] = {
    { 5,  1, 28, 28,  6, 3, 1, 0},
    { 7,  3,  9, 11,  4, 5, 1, 2},
    { 1, 17,  6,  6, 65, 3, 1, 1},
    { 3,  2,  9, 14,  4, 5, 2, 2},
    {33,  2, 10,  9, 11, 2, 1, 0},
    { 2,  9,  7,  8, 10, 1, 2, 0},
    { 1,  1,  1,  1,  1, 1, 1, 0},
    { 2,  3,  3,  3,  5, 5, 1, 2},
    { 1, 33,  9,  7, 40, 3, 1, 1},
    { 2, 35,  6,  7, 32, 3, 1, 2},
    {17, 32, 28, 14, 32, 3, 1, 1},
};

/* The two convolutions of LeNet and of ConvNet and one of ResNet-18, with a last tile of samples
 * that is not full. */
static const int conv_whole[][8] = {
    {35,  1, 28, 28, 20, 3, 1, 0},
    {19, 20, 13, 13, 50, 5, 1, 0},
    {19,  1, 28, 28, 16, 3, 1, 0},
    { 9, 16, 26, 26, 32, 3, 1, 0},
    {19, 64,  4,  4, 64, 3, 1, 1},
};

/* What decides how the host computes a convolution (device/host/kernels/conv_way.h): groups of 16
 * samples that are not full, tiles past the edge, channels that fill no tile. Winograd's tiles are
 * all 2 x 2, since those of 4 x 4, at the end of conv_random, are not exact. The largest case is
 * not among every third, which --quick takes. */
static const int conv_host[][8] = {
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
    {17, 32, 28,  2, 32, 3, 1, 1},
    { 2, 35,  3,  4, 32, 3, 1, 2},
    {33, 40,  8,  4, 51, 3, 1, 1},
    {18, 32,  9, 14, 35, 3, 2, 1},
    { 3, 50,  7,  7, 33, 1, 2, 0},
    { 2, 33,  9,  6, 40, 5, 3, 2},
};

/* On GPUs the number of samples also decides which kernel computes a product (plan.h and
 * conv_planes.h in device/cuda/kernels/). These are the layers with batches of the size that
 * training uses, some of which use kernels that no case above uses. */
static const int conv_large[][8] = {
    { 64, 20, 13, 13, 50, 5, 1, 0},
    {256,  1, 28, 28, 20, 3, 1, 0},
    {256, 20, 13, 13, 50, 5, 1, 0},
    {256,  1, 28, 28, 16, 3, 1, 0},
    {256, 16, 26, 26, 32, 3, 1, 0},
};

/* Depthwise, several outputs a channel, groups of several, dilation, windows that are not square,
 * one group; and more taps, steps and columns than the host's kernels process at once. n, c, h, w,
 * out, rows and columns of the window, groups, strides, paddings, dilations. */
static const int conv_grouped[][14] = {
    {5, 7, 9, 8, 7, 3, 3, 7, 1, 1, 1, 1, 1, 1},
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
    {1, 1, 12, 49, 1, 11, 25, 1, 10, 2, 2, 1, 1, 1},
};

/*  n   in  out */
static const int linear_random[][3] = {
    {1, 1, 1},      {17, 31, 5}, {33, 65, 7},   {2, 300, 11}, {3, 11, 300},
    {130, 70, 129}, {16, 64, 6}, {530, 33, 13}, {0, 5, 3},    {513, 5, 40},
};
/*  n   in  out, are the weights (in, out)? */
static const int linear_whole[][4] = {{67, 800, 128, 0}, {67, 128, 10, 1}, {19, 4608, 64, 0}};
static const int linear_large[][4] = {
    {256, 800, 128, 1}, {1024, 800, 128, 1}, {256, 128, 10, 1}, {256, 4608, 64, 0},
    {256, 64, 10, 0},
};

/* Matrices, rows, columns, depth. Rows of 1024 numbers are whole pages
 * (device/host/kernels/n16_matmul.inc.h). */
static const int matrices[][4] = {
    {1, 1, 1, 1},     {3, 17, 5, 31},   {2, 7, 33, 70},   {0, 13, 40, 3},
    {1, 67, 130, 9},  {4, 64, 48, 300}, {1, 3, 10, 1000}, {1, 1024, 5, 260},
};

#define CONVS OP_CONV2D_FORWARD, OP_CONV2D_BACKWARD_WEIGHT
#define LINEARS OP_LINEAR_FORWARD, OP_LINEAR_BACKWARD_WEIGHT
const struct case_list product_cases[] = {
    {CONVS, "NCHWOKsp", SIZES(conv_random), .when = THINNED, .set = set_conv},
    {CONVS, "NCHWOKsp", SIZES(conv_whole), .in = "w", .when = THINNED, .set = set_conv},
    {CONVS, "NCHWOKsp", SIZES(conv_host), .in = "w", .when = ONLY_N16_THINNED, .set = set_conv},
    {CONVS, "NCHWOKLgstpqde", SIZES(conv_grouped), .turns = 2, .set = set_grouped_conv},
    {CONVS, "NCHWOKsp", SIZES(conv_large), .in = "w", .when = ONLY_LARGE, .set = set_conv},
    {LINEARS, "NKM", SIZES(linear_random), .turns = 2, .when = THINNED, .set = set_linear},
    {LINEARS, "NKMt", SIZES(linear_whole), .in = "w", .when = THINNED, .set = set_linear},
    {LINEARS, "NKMt", SIZES(linear_large), .in = "w", .when = ONLY_LARGE, .set = set_linear},
    {OP_MATMUL, OP_MATMUL, "BIJK", SIZES(matrices), .turns = 6, .set = set_matmul},
    {.count = 0}};
// clang-format on
