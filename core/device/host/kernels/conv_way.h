/* Chooses the algorithm of a convolution with square windows in N16 on the host, and the memory
 * that it needs besides the operands. The choice depends only on the shape, so the bits do, too. */
#ifndef DEVICE_HOST_KERNELS_CONV_WAY_H
#define DEVICE_HOST_KERNELS_CONV_WAY_H

#include "device/op.h"

enum conv_way {
    WAY_DIRECT,     /* n16_windows.inc.h, n16_conv_data.inc.h, n16_conv_weight.inc.h */
    WAY_TRANSPOSED, /* n16_transposed.inc.h: to the weights, with channels innermost */
    /* n16_winograd.inc.h: 3 x 3, stride 1; fewer products, but they are prepared. The value is the
     * number of outputs along a side of a tile. */
    WAY_WINOGRAD_2 = 2,
    WAY_WINOGRAD_4 = 4
};

enum {
    LEAST_CHANNELS = 32,    /* with fewer, DIRECT is as fast */
    MOST_FILTERS = 1 << 16, /* for WINOGRAD_4: 36 points of each take 9 MiB, which fits caches */
    MOST_TAPS = 25,         /* TRANSPOSED needs memory for each tap */
    TRANSPOSED_PIXELS = 8,  /* in a block of TRANSPOSED; tiles in WINOGRAD's weight gradient */
    MOST_TILES = 8,         /* per block of WINOGRAD's other two passes */
};

/* The operands of any of the three passes. */
struct conv_shape {
    const int *x, *y, *w; /* the dims of x, y and w */
};

static inline struct conv_shape conv_shape_of(enum op op, const struct op_args *a) {
    if (op == OP_CONV2D_FORWARD)
        return (struct conv_shape){a->in[0].dims, a->out[0].dims, a->in[1].dims};
    if (op == OP_CONV2D_BACKWARD_DATA)
        return (struct conv_shape){a->out[0].dims, a->in[0].dims, a->in[1].dims};
    return (struct conv_shape){a->in[0].dims, a->in[1].dims, a->out[0].dims};
}

/* Compares the products of Winograd's tiles and of direct sums: work on tiles that hang over the
 * image's edge is partly wasted. There must be several tiles of 4 x 4, since each of their 36
 * positions reads its own filters. */
static inline enum conv_way winograd_way(int height, int width, size_t filters) {
    int tiles = ((height + 3) / 4) * ((width + 3) / 4),
        two = 16 * ((height + 1) / 2) * ((width + 1) / 2);
    if (tiles >= 4 && 5 * 36 * tiles < 4 * two && filters <= MOST_FILTERS) return WAY_WINOGRAD_4;
    return 3 * two < 2 * 9 * height * width ? WAY_WINOGRAD_2 : WAY_DIRECT;
}

static inline enum conv_way conv_way(enum op op, const struct op_args *a) {
    struct conv_shape s = conv_shape_of(op, a);
    const int *tiled = op == OP_CONV2D_BACKWARD_DATA ? s.x : s.y, k = s.w[2];
    if (s.x[1] < LEAST_CHANNELS || s.y[1] < LEAST_CHANNELS) return WAY_DIRECT;
    /* In an image of 2 x 2 each sum has at most four of the nine taps, as few products as in a tile
     * of Winograd's. */
    int small = op != OP_CONV2D_BACKWARD_WEIGHT && s.x[2] <= 2 && s.x[3] <= 2 && tiled[2] <= 2;
    if (k == 3 && a->p.conv.stride[0] == 1 && a->p.conv.padding[0] <= 2 && !small) {
        enum conv_way way = winograd_way(tiled[2], tiled[3], (size_t)s.x[1] * (size_t)s.y[1]);
        if (way != WAY_DIRECT) return way;
    }
    return op == OP_CONV2D_BACKWARD_WEIGHT && k * k <= MOST_TAPS ? WAY_TRANSPOSED : WAY_DIRECT;
}

/* Floats in a row of channels: an odd number of groups of 16, which are cache lines. With an even
 * number, rows would map to few cache sets. */
static inline size_t transposed_width(int channels) {
    size_t lines = ((size_t)channels + 15) / 16;
    return (lines + (lines % 2 == 0)) * 16;
}

/* Floats for `positions` positions: the filters of a pass or their gradients, a group's current
 * tiles or pixels, and padding between positions. */
static inline size_t conv_scratch_floats(const struct conv_shape *s, size_t positions) {
    size_t channels = transposed_width(s->x[1]), outputs = transposed_width(s->y[1]);
    return positions *
           (channels * outputs + (size_t)MOST_TILES * MOST_LANES * (channels + outputs) +
            (size_t)3 * MOST_LANES);
}

#endif
