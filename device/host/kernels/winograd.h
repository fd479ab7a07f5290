/* Which convolutions of the host go by Winograd's minimal filtering (n16_winograd.inc.h), and how
 * much memory that takes beside the operands. The choice follows from the shape alone, so that the
 * bits do too. */
#ifndef DEVICE_HOST_KERNELS_WINOGRAD_H
#define DEVICE_HOST_KERNELS_WINOGRAD_H

#include "device/op.h"

enum {
    WINOGRAD_LEAST_CHANNELS = 32, /* with fewer the transforms cost more than they save */
    WINOGRAD_MOST_TILES = 8,      /* tiles of 2 x 2 outputs that are under way at a time */
};

/* Of a convolution from `channels` to `outputs` with filters of k x k; the smaller of both pictures
 * is height x width. Tiles that hang over its edge are computed in vain: it has to be worth it. */
static inline int winograd_pays(int channels, int outputs, int height, int width, int k,
                                const struct conv_args *p) {
    int tiles = (height + 1) / 2 * ((width + 1) / 2);
    return k == 3 && p->stride == 1 && p->padding <= 2 && channels >= WINOGRAD_LEAST_CHANNELS &&
           outputs >= WINOGRAD_LEAST_CHANNELS && 3 * 16 * tiles < 2 * 9 * height * width;
}

/* Bytes for the filters of one pass, and for the tiles under way of 16 samples. */
static inline size_t winograd_bytes(int channels, int outputs) {
    size_t width = ((size_t)channels + GROUP - 1) / GROUP * GROUP,
           filters = width * (size_t)outputs,
           tiles = (size_t)WINOGRAD_MOST_TILES * GROUP * (width + (size_t)outputs);
    return 16 * (filters + tiles + 3 * GROUP) * sizeof(float);
}

/* The shape of one pass, as winograd_pays is asked about it; 0: it does not pay. */
static inline int winograd_takes(enum op op, const struct op_args *a) {
    const int *x = op == OP_CONV2D_BACKWARD_DATA ? a->out[0].dims : a->in[0].dims,
              *y = op == OP_CONV2D_FORWARD         ? a->out[0].dims
                   : op == OP_CONV2D_BACKWARD_DATA ? a->in[0].dims
                                                   : a->in[1].dims,
              *w = op == OP_CONV2D_BACKWARD_WEIGHT ? a->out[0].dims : a->in[1].dims;
    const int *tiled = op == OP_CONV2D_BACKWARD_DATA ? x : y;
    return winograd_pays(x[1], y[1], tiled[2], tiled[3], w[2], &a->p.conv);
}

#endif
