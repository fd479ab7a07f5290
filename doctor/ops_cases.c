/* Cases of convolutions and linear layers. Two sorts of data:
 *
 *     random numbers    odd shapes that fit no tile; every output within the rounding of its own sum
 *     whole numbers     -4 .. 4, over the layers of LeNet and ConvNet. Every partial sum is a whole number below
 *                       2^24, hence exact in float and in tf32 whatever the order: one term that is missing, taken
 *                       twice or from elsewhere changes the result, however long the sum */
#include "base/error.h"
#include "doctor/ops.h"

enum pass { FORWARD, BACKWARD_DATA, BACKWARD_WEIGHT };

struct layer {
    struct tensor x, w, b, y; /* y's data is not read: its shape is dy's */
    struct op_args p;
};

typedef struct tensor maker(struct trial_bed *bed, int rank, int d0, int d1, int d2, int d3);

/* Inputs and outputs of one pass, and the longest sum in it. */
static int run_pass(struct trial_bed *bed, enum op op, enum pass pass, const struct layer *l,
                    maker *make) {
    struct op_args a = {.p = l->p.p};
    const int *yd = l->y.dims;
    struct tensor dy = make(bed, l->y.rank, yd[0], yd[1], yd[2], yd[3]);
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
    for (int i = 0; i < 2; i++) /* outputs: their shapes, NaN */
        if (a.out[i].rank)
            a.out[i] = trial_tensor(bed, DTYPE_F32, a.out[i].rank, a.out[i].dims[0],
                                    a.out[i].dims[1], a.out[i].dims[2], a.out[i].dims[3]);
    return run_trial(bed, op, &a, make == trial_whole ? 0 : terms);
}

static int convolution(struct trial_bed *bed, enum op op, const int s[8], maker *make) {
    int p = (s[2] + 2 * s[7] - s[5]) / s[6] + 1, q = (s[3] + 2 * s[7] - s[5]) / s[6] + 1;
    struct layer l = {make(bed, 4, s[0], s[1], s[2], s[3]),
                      make(bed, 4, s[4], s[1], s[5], s[5]),
                      make(bed, 1, s[4], 1, 1, 1),
                      trial_tensor(bed, DTYPE_F32, 4, s[0], s[4], p, q),
                      {.p.conv = {s[6], s[7]}}};
    CHECK(run_pass(bed, op, (enum pass)(op - OP_CONV2D_FORWARD), &l, make));
    trial_forget(bed);
    return OK;
}

static int linear(struct trial_bed *bed, enum op op, const int s[3], int turned, maker *make) {
    struct layer l = {make(bed, 2, s[0], s[1], 1, 1),
                      turned ? make(bed, 2, s[1], s[2], 1, 1) : make(bed, 2, s[2], s[1], 1, 1),
                      make(bed, 1, s[2], 1, 1, 1),
                      trial_tensor(bed, DTYPE_F32, 2, s[0], s[2], 1, 1),
                      {.p.linear = {turned}}};
    CHECK(run_pass(bed, op, (enum pass)(op - OP_LINEAR_FORWARD), &l, make));
    trial_forget(bed);
    return OK;
}

/*                                   n  C   H   W   O  k  s  p */
static const int conv_random[][8] = {{5, 1, 28, 28, 6, 3, 1, 0},  {7, 3, 9, 11, 4, 5, 1, 2},
                                     {1, 17, 6, 6, 65, 3, 1, 1},  {3, 2, 9, 14, 4, 5, 2, 2},
                                     {33, 2, 10, 9, 11, 2, 1, 0}, {2, 9, 7, 8, 10, 1, 2, 0},
                                     {1, 1, 1, 1, 1, 1, 1, 0},    {2, 3, 3, 3, 5, 5, 1, 2}};
/* LeNet's two layers, ConvNet's two, at batches that end in a part of a tile */
static const int conv_whole[][8] = {{35, 1, 28, 28, 20, 3, 1, 0},
                                    {19, 20, 13, 13, 50, 5, 1, 0},
                                    {19, 1, 28, 28, 16, 3, 1, 0},
                                    {9, 16, 26, 26, 32, 3, 1, 0}};
/*                                     n  in  out */
static const int linear_random[][3] = {{1, 1, 1},    {17, 31, 5},  {33, 65, 7},
                                       {2, 300, 11}, {3, 11, 300}, {130, 70, 129}};
static const int linear_whole[][3] = {{67, 800, 128}, {67, 128, 10}, {19, 4608, 64}};

/* On GPUs, where a product's kernel is chosen by the number of samples too
 * (device/cuda/kernels/plan.h, kernels/planes.h): the layers at batches as they are trained
 * with, which in part take kernels that no case above does. */
static const int conv_large[][8] = {{64, 20, 13, 13, 50, 5, 1, 0},
                                    {256, 1, 28, 28, 20, 3, 1, 0},
                                    {256, 20, 13, 13, 50, 5, 1, 0},
                                    {256, 1, 28, 28, 16, 3, 1, 0},
                                    {256, 16, 26, 26, 32, 3, 1, 0}};
static const int linear_large[][3] = {
    {256, 800, 128}, {1024, 800, 128}, {256, 128, 10}, {256, 4608, 64}, {256, 64, 10}};

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

int product_cases(struct trial_bed *bed, enum op op) {
    int conv = op <= OP_CONV2D_BACKWARD_WEIGHT, every = bed->d->config.quick ? 3 : 1;
    int randoms = conv ? COUNT(conv_random) : COUNT(linear_random);
    int wholes = conv ? COUNT(conv_whole) : COUNT(linear_whole);
    for (int i = 0; i < randoms; i += every) {
        if (conv) CHECK(convolution(bed, op, conv_random[i], trial_random));
        for (int turned = 0; !conv && turned < 2; turned++)
            CHECK(linear(bed, op, linear_random[i], turned, trial_random));
    }
    for (int i = 0; i < wholes; i += every) {
        if (conv)
            CHECK(convolution(bed, op, conv_whole[i], trial_whole));
        else
            CHECK(linear(bed, op, linear_whole[i], i % 2, trial_whole));
    }
    int larges = bed->d->kind != DEVICE_CUDA || bed->d->config.quick ? 0
                 : conv                                              ? COUNT(conv_large)
                                                                     : COUNT(linear_large);
    for (int i = 0; i < larges; i++) {
        if (conv) CHECK(convolution(bed, op, conv_large[i], trial_whole));
        /* LeNet's weights are (in, out) */
        else
            CHECK(linear(bed, op, linear_large[i], i < 3, trial_whole));
    }
    return OK;
}
