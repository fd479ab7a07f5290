/* Convolutions in N16 that are computed directly, forward and backward to the data: products of the
 * filters and of the pixels that windows reach (n16_product.inc.h). A vector has the pixels of
 * neighbouring windows, so it is full however few samples a group has.
 *
 * A sum adds the taps of all windows in the order of (channel, row, column). Those outside the
 * image add 0. Tile, group and lane do not matter, so a sample has the same bits whichever samples
 * share its batch. */

/* The convolution behind a product: y's pixels are windows, and the terms are the taps of all
 * channels. Tap (i, j) of window (p, q) is on pixel (top + p step + i next, left + q step + j next)
 * of x, which counts as 0 outside the image. */
struct windows {
    int across, rows, columns; /* windows in a row; taps of a window */
    int top, left, step, next;
    int height, width; /* of x */
    size_t w[3];       /* floats between the weights of neighbouring channels, rows, columns */
    size_t y_line, y_apart, y_plane; /* floats between sums of a column, of a row, of channels */
};

/* Floats from a row's first weight to that of term s. */
INLINE size_t windows_weight(const struct windows *k, int s) {
    int taps = k->rows * k->columns, tap = s % taps;
    return (size_t)(s / taps) * k->w[0] + (size_t)(tap / k->columns) * k->w[1] +
           (size_t)(tap % k->columns) * k->w[2];
}

/* Fills vector j of the panel, whose first float is number `at` of all windows of a group. */
static void windows_vector(const struct product *m, struct product_columns *c, int j, int vectors,
                           size_t group, int at, int s0, int terms) {
    const struct windows *k = m->windows;
    int top[WIDE / LANES], left[WIDE / LANES], taps = k->rows * k->columns, adjacent = 1;
    ptrdiff_t corner[WIDE / LANES];
    size_t x_plane = plane(k->height, k->width);
    const float *x = m->x + group * (size_t)(taps ? m->sums / taps : 0) * x_plane + at % GROUP;
    c->y[j] = m->y + group * m->rows * c->y_row + at % GROUP;
    for (int i = 0; i < WIDE / LANES; i++) {
        int p = (at / GROUP + i) / k->across, q = (at / GROUP + i) % k->across;
        top[i] = k->top + p * k->step, left[i] = k->left + q * k->step;
        corner[i] = ((ptrdiff_t)top[i] * k->width + left[i]) * GROUP;
        c->to[j][i] = (size_t)p * k->y_line + (size_t)q * k->y_apart;
        if (corner[i] - corner[0] != i * GROUP) adjacent = 0;
        if (c->to[j][i] - c->to[j][0] != (size_t)i * GROUP) c->whole = 0;
        if (i * LANES >= c->lanes[j]) top[i] = INT_MIN / 2; /* no pixel: outside the image */
    }
    c->y[j] += c->to[j][0];
    for (int i = WIDE / LANES - 1; i >= 0; i--)
        c->to[j][i] -= c->to[j][0];
    for (int tap = 0; tap < taps; tap++) {
        int down = tap / k->columns * k->next, right = tap % k->columns * k->next, inside = 0;
        for (int i = 0; i < WIDE / LANES; i++)
            inside |= (int)(((unsigned)(top[i] + down) < (unsigned)k->height) &
                            ((unsigned)(left[i] + right) < (unsigned)k->width))
                      << i;
        int whole = inside == (1 << WIDE / LANES) - 1, channel = (s0 - tap + taps - 1) / taps;
        const float *from = x + channel * x_plane + ((ptrdiff_t)down * k->width + right) * GROUP;
        for (int s = channel * taps + tap - s0; s < terms; s += taps, from += x_plane) {
            float *to = c->panel + (s * vectors + j) * WIDE;
            if (whole && adjacent) {
                store_wide(to, load_wide(from + corner[0]));
            } else if (whole) {
                UNROLL for (int i = 0; i < WIDE / LANES; i++)
                    store(to + i * LANES, load(from + corner[i]));
            } else {
                for (int i = 0; i < WIDE / LANES; i++)
                    store(to + i * LANES, inside >> i & 1 ? load(from + corner[i]) : splat(0));
            }
        }
    }
}
