/* Convolution by Winograd's minimal filtering (n16_winograd_transform.inc.h): the forward pass and,
 * with the filters flipped, the backward pass to the data.
 *
 * A few vectors of tiles are taken at a time, so that their v and m stay in the second-level cache.
 * A sum goes channel by channel, whatever the tile, the group and the lane. */

/* Sums in a register tile: outputs by vectors of tiles. */
#if ACCUMULATORS >= 28
#define WINOGRAD_OUTPUTS_OF(T) ((T) > 5 ? 4 : (T) == 5 ? 5 : 6)
enum { WINOGRAD_OUTPUTS = 6 };
#else
#define WINOGRAD_OUTPUTS_OF(T) ((T) > 4 ? 2 : 3)
enum { WINOGRAD_OUTPUTS = 3 };
#endif
enum { SIDE_BY_SIDE = WIDE / LANES }; /* tiles, or pixels, of a wide vector */

/* One pass: y = the sum over x's channels. */
struct winograd {
    struct conv c;         /* forward's convolution; in backward that of dy */
    const float *x, *bias; /* of one part of a group; bias NULL: none */
    float *y;
    int positions;  /* S * S */
    const float *u; /* [positions][outputs][channels], winograd_u_step apart */
    float *v, *m;   /* [positions][channels or outputs][vectors][WIDE] */
    int tiles_x;    /* of a row */
};

/* Floats from one position of v or m to the next: one vector more than they take, since steps of
 * whole pages would put all positions into the same few lines of the first-level cache. */
INLINE size_t winograd_step(int channels, int vectors) {
    return ((size_t)channels * vectors + 1) * WIDE;
}

/* One channel at a time: within it the tiles of a block are adjacent. */
INLINE void winograd_inputs(const int M, const struct winograd *s, int first, int count) {
    int vectors = tiles_of(count, SIDE_BY_SIDE);
    size_t step = winograd_step(s->c.channels, vectors);
    struct winograd_position positions[TILE_MOST * SIDE_BY_SIDE];
    for (int t = 0; t < count; t++)
        positions[t] = winograd_position(M + 2, s->c.height, s->c.width,
                                         M * ((first + t) / s->tiles_x) - s->c.padding,
                                         M * ((first + t) % s->tiles_x) - s->c.padding);
    for (int c = 0; c < s->c.channels; c++) {
        const float *pixels = s->x + (size_t)c * plane(s->c.height, s->c.width);
        for (int t = 0; t < count; t++) {
            vec d[6][6];
            winograd_patch(M + 2, pixels, s->c.width, &positions[t], d);
            winograd_v(M, d, s->v + (size_t)c * vectors * WIDE + t * LANES, step);
        }
    }
}

/* m for T vectors of tiles at one position, OUTPUTS x T sums at a time. */
INLINE void winograd_product(const struct winograd *s, int position, const int OUTPUTS,
                             const int T) {
    const float *u = s->u + (size_t)position * winograd_u_step(s->c.outputs, s->c.channels),
                *v = s->v + (size_t)position * winograd_step(s->c.channels, T);
    float *m = s->m + (size_t)position * winograd_step(s->c.outputs, T);
    for (int o = 0; o < s->c.outputs; o += OUTPUTS) {
        wide acc[WINOGRAD_OUTPUTS][TILE_MOST];
        const float *row[WINOGRAD_OUTPUTS], *pixels = v;
        UNROLL for (int i = 0; i < OUTPUTS; i++) {
            int output = o + i < s->c.outputs ? o + i : s->c.outputs - 1;
            row[i] = u + (size_t)output * s->c.channels;
            UNROLL for (int j = 0; j < T; j++) acc[i][j] = splat_wide(0);
        }
        for (int c = 0; c < s->c.channels; c++, pixels += T * WIDE) {
            wide w[WINOGRAD_OUTPUTS];
            UNROLL for (int i = 0; i < OUTPUTS; i++) w[i] = splat_wide(row[i][c]);
            UNROLL for (int j = 0; j < T; j++) {
                wide pixel = load_wide_once(pixels + j * WIDE);
                UNROLL for (int i = 0; i < OUTPUTS; i++) {
                    acc[i][j] = fused_wide(w[i], pixel, acc[i][j]);
                }
            }
        }
        UNROLL for (int i = 0; i < OUTPUTS; i++) {
            if (o + i >= s->c.outputs) break;
            UNROLL for (int j = 0; j < T; j++) {
                store_wide(m + ((size_t)(o + i) * T + j) * WIDE, acc[i][j]);
            }
        }
    }
}

typedef void winograd_products(const struct winograd *);
#define WINOGRAD_PRODUCTS(T)                                          \
    static void winograd_products_##T(const struct winograd *s) {     \
        for (int position = 0; position < s->positions; position++)   \
            winograd_product(s, position, WINOGRAD_OUTPUTS_OF(T), T); \
    }
EACH_TILE(WINOGRAD_PRODUCTS)

#define WINOGRAD_NAME(T) winograd_products_##T,
static winograd_products *const winograd_all_products[] = {NULL, EACH_TILE(WINOGRAD_NAME)};

/* y = AT m A + bias of the tiles; pixels beyond the image's edge are left out. */
INLINE void winograd_outputs(const int M, const struct winograd *s, int first, int count) {
    int vectors = tiles_of(count, SIDE_BY_SIDE);
    size_t step = winograd_step(s->c.outputs, vectors);
    for (int o = 0; o < s->c.outputs; o++)
        for (int t = 0; t < count; t++) {
            const float *m = s->m + (size_t)o * vectors * WIDE + t * LANES;
            int p = (first + t) / s->tiles_x * M, q = (first + t) % s->tiles_x * M;
            float *y = s->y + o * plane(s->c.out_height, s->c.out_width) +
                       ((size_t)p * s->c.out_width + q) * GROUP;
            vec bias = splat(s->bias ? s->bias[o] : 0), columns[6][4];
            UNROLL for (int j = 0; j < M + 2; j++) {
                vec column[6];
                UNROLL for (int i = 0; i < M + 2; i++) column[i] =
                    load(m + ((M + 2) * i + j) * step);
                winograd_numbers(M, winograd_a, M, column, columns[j]);
            }
            UNROLL for (int i = 0; i < M; i++) {
                vec row[6], out[4];
                if (p + i >= s->c.out_height) break;
                UNROLL for (int j = 0; j < M + 2; j++) row[j] = columns[j][i];
                winograd_numbers(M, winograd_a, M, row, out);
                UNROLL for (int j = 0; j < M; j++) {
                    if (q + j < s->c.out_width)
                        store(y + ((size_t)i * s->c.out_width + j) * GROUP, out[j] + bias);
                }
            }
        }
}

INLINE void winograd_block(const int M, const struct winograd *s, int first, int count) {
    winograd_inputs(M, s, first, count);
    winograd_all_products[tiles_of(count, SIDE_BY_SIDE)](s);
    winograd_outputs(M, s, first, count);
}

/* The forward pass, and with `flip` 1 the backward pass to the data: dx is the convolution of dy
 * with the filters flipped, padded by 2 - the forward padding. */
static void winograd_pass(const struct op_args *a, const struct conv *c, int size, int flip) {
    struct winograd s = {
        flip ? (struct conv){c->groups, c->outputs, c->out_height, c->out_width, c->channels,
                             c->height, c->width, c->k, c->stride, 2 - c->padding, c->w}
             : *c,
        .bias = flip ? NULL : tensor_f32(&a->in[2]), .positions = (size + 2) * (size + 2),
        .u = a->scratch, .tiles_x = tiles_of(flip ? c->width : c->out_width, size)};
    OF_ISA(winograd_filters)(size, c->w, c->outputs, c->channels, flip, a->scratch);
    s.v = (float *)a->scratch + s.positions * winograd_u_step(c->outputs, c->channels);
    s.m = s.v + (size_t)s.positions * winograd_step(s.c.channels, TILE_MOST);
    int tiles = s.tiles_x * tiles_of(s.c.out_height, size), vectors = tiles_of(tiles, SIDE_BY_SIDE),
        blocks = tiles_of(vectors, TILE_MOST);
    for (int g = 0; g < c->groups; g++)
        for (int part = 0; part < PARTS; part++) {
            s.x = tensor_f32(&a->in[0]) + part * LANES +
                  g * s.c.channels * plane(s.c.height, s.c.width);
            s.y = tensor_f32(&a->out[0]) + part * LANES +
                  g * s.c.outputs * plane(s.c.out_height, s.c.out_width);
            for (int b = 0; b < blocks; b++) {
                int first = tile_begin(b, blocks, vectors) * SIDE_BY_SIDE,
                    end = tile_begin(b + 1, blocks, vectors) * SIDE_BY_SIDE,
                    count = (end < tiles ? end : tiles) - first;
                size == 4 ? winograd_block(4, &s, first, count)
                          : winograd_block(2, &s, first, count);
            }
        }
}
