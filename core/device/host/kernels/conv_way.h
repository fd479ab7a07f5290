/* Which algorithm a convolution with square windows uses in N16 on the host, and how much memory it
 * takes in addition to the operands. The choice depends only on the shape, so the bits do, too. */
#ifndef DEVICE_HOST_KERNELS_CONV_WAY_H
#define DEVICE_HOST_KERNELS_CONV_WAY_H

#include "device/op.h"

enum conv_way {
    WAY_DIRECT,     /* n16_conv_forward.inc.h, n16_conv_data.inc.h, n16_conv_weight.inc.h */
    WAY_WINOGRAD,   /* n16_winograd.inc.h: 3 x 3, stride 1; fewer products, but they are prepared */
    WAY_TRANSPOSED, /* n16_transposed.inc.h: to the weights, with channels innermost */
};

enum {
    LEAST_CHANNELS = 32,   /* with fewer, direct is as fast */
    MOST_TAPS = 25,        /* TRANSPOSED takes memory for each */
    TRANSPOSED_PIXELS = 4, /* of a block of TRANSPOSED, and tiles of WINOGRAD's weight gradient */
    MOST_TILES = 7,        /* of a block of WINOGRAD's other two passes */
};

/* The operands of any of the three passes. */
struct conv_shape {
    const int *x, *y, *w; /* their dims */
};

static inline struct conv_shape conv_shape_of(enum op op, const struct op_args *a) {
    if (op == OP_CONV2D_FORWARD)
        return (struct conv_shape){a->in[0].dims, a->out[0].dims, a->in[1].dims};
    if (op == OP_CONV2D_BACKWARD_DATA)
        return (struct conv_shape){a->out[0].dims, a->in[0].dims, a->in[1].dims};
    return (struct conv_shape){a->in[0].dims, a->in[1].dims, a->out[0].dims};
}

/* Work on 2 x 2 tiles that hang over the image's edge is partly wasted: it has to be worth it. */
static inline int winograd_pays(int height, int width) {
    return 3 * 16 * ((height + 1) / 2) * ((width + 1) / 2) < 2 * 9 * height * width;
}

static inline enum conv_way conv_way(enum op op, const struct op_args *a) {
    struct conv_shape s = conv_shape_of(op, a);
    const int *tiled = op == OP_CONV2D_BACKWARD_DATA ? s.x : s.y, k = s.w[2];
    if (s.x[1] < LEAST_CHANNELS || s.y[1] < LEAST_CHANNELS) return WAY_DIRECT;
    if (k == 3 && a->p.conv.stride[0] == 1 && a->p.conv.padding[0] <= 2 &&
        winograd_pays(tiled[2], tiled[3]))
        return WAY_WINOGRAD;
    return op == OP_CONV2D_BACKWARD_WEIGHT && k * k <= MOST_TAPS ? WAY_TRANSPOSED : WAY_DIRECT;
}

/* Floats of a row of channels: whole groups of 16, which are lines of a cache, and an odd number of
 * them. Rows of an even number would fall into few of its sets. */
static inline size_t transposed_width(int channels) {
    size_t lines = ((size_t)channels + 15) / 16;
    return (lines + (lines % 2 == 0)) * 16;
}

/* Floats at `places` places: the filters of a pass or their gradients, the tiles or pixels under
 * way of a group, and what keeps places apart. */
static inline size_t conv_scratch_floats(const struct conv_shape *s, size_t places) {
    size_t channels = transposed_width(s->x[1]), outputs = transposed_width(s->y[1]);
    return places * (channels * outputs + (size_t)MOST_TILES * MOST_LANES * (channels + outputs) +
                     (size_t)3 * MOST_LANES);
}

#endif
