/* Convolution by Winograd's minimal filtering F(2x2, 3x3): 16 products instead of 36 for a tile of
 * 2 x 2 outputs, for filters of 3 x 3, stride 1 and many channels. The forward pass and, with the
 * filters turned around, the backward pass to the data.
 *
 *     u = G w GT      of each filter, 4 x 4
 *     v = BT x B      of the 4 x 4 pixels of x that a tile needs; tiles overlap by two pixels
 *     m = sum over channels of u v, element by element: for each of the 16 places a product of
 *         matrices, (outputs x channels) by (channels x tiles)
 *     y = AT m A + bias
 *
 *          | 1   0   0 |         | 1  0 -1  0 |
 *     G  = | 1/2 1/2 1/2 |  BT = | 0  1  1  0 |    AT = | 1  1  1  0 |
 *          | 1/2 -1/2 1/2 |      | 0 -1  1  0 |         | 0  1 -1 -1 |
 *          | 0   0   1 |         | 0  1  0 -1 |
 *
 * (Lavin and Gray, "Fast algorithms for convolutional neural networks".) The transforms are sums
 * of vectors, 16 samples at once, as all of N16; only u has halves in it. So whole numbers stay
 * exact, and the error on others is about that of the direct sum.
 *
 * Tiles are taken TILES at a time: their v and m stay in the second-level cache while u streams by
 * once. The order of a sum is channel by channel, whatever the tile, the group and the lane. */

enum { WINOGRAD_TILES = FORWARD_TILE_MOST, PLACES = 16 };

/* One pass: y = the sum over x's channels. */
struct winograd {
    const float *x, *bias; /* of one part of a group; bias NULL: none */
    float *y;
    int channels, height, width, outputs, out_height, out_width, padding;
    const float *u;     /* [PLACES][outputs][channels] */
    float *v, *m;       /* [PLACES][channels or outputs][tiles][LANES] */
    int tiles_x, tiles; /* of a row, of the picture */
};

/* ---- u ---- */

/* Element (ky, kx) of LANES filters, `step` floats apart; past `count` the last one again. */
INLINE vec winograd_filters(const float *w, size_t step, int count, int element) {
    vec v;
    for (int lane = 0; lane < LANES; lane++)
        v[lane] = w[(size_t)(lane < count ? lane : count - 1) * step + (size_t)element];
    return v;
}

INLINE void winograd_g(vec a, vec b, vec c, vec out[4]) {
    vec ends = a + c, half = splat(0.5f);
    out[0] = a;
    out[1] = (ends + b) * half;
    out[2] = (ends - b) * half;
    out[3] = c;
}

/* u of `count` filters of `step` floats distance, `flip` 1: turned around; u's places are
 * `place_step` floats apart. */
INLINE void winograd_u(const float *w, size_t step, int count, int flip, float *u,
                       size_t place_step) {
    vec rows[3][4], out[4];
    for (int ky = 0; ky < 3; ky++) {
        vec g[3];
        for (int kx = 0; kx < 3; kx++)
            g[kx] = winograd_filters(w, step, count, flip ? 8 - (3 * ky + kx) : 3 * ky + kx);
        winograd_g(g[0], g[1], g[2], rows[ky]);
    }
    for (int j = 0; j < 4; j++) {
        winograd_g(rows[0][j], rows[1][j], rows[2][j], out);
        for (int i = 0; i < 4; i++)
            memcpy(u + (size_t)(4 * i + j) * place_step, &out[i],
                   (size_t)(count < LANES ? count : LANES) * sizeof(float));
    }
}

/* w is (first, second, 3, 3). `flip` 0: u is [place][first][second]; 1: [place][second][first],
 * of the filters turned around. */
static void winograd_filters_of(const float *w, int first, int second, int flip, float *u) {
    size_t place = (size_t)first * (size_t)second;
    int outer = flip ? second : first, inner = flip ? first : second;
    for (int i = 0; i < outer; i++)
        for (int j = 0; j < inner; j += LANES) {
            const float *from = w + (flip ? (size_t)j * second + i : (size_t)i * second + j) * 9;
            winograd_u(from, flip ? (size_t)second * 9 : 9, inner - j, flip,
                       u + (size_t)i * inner + j, place);
        }
}

/* ---- v and m ---- */

INLINE void winograd_b(const vec d[4], vec out[4]) {
    out[0] = d[0] - d[2];
    out[1] = d[1] + d[2];
    out[2] = d[2] - d[1];
    out[3] = d[1] - d[3];
}

/* The 4 x 4 pixels from (top, left) on of a plane; 0 outside the picture. */
INLINE void winograd_patch(const float *plane, int height, int width, int top, int left,
                           vec d[4][4]) {
    int inside = top >= 0 && left >= 0 && top + 4 <= height && left + 4 <= width;
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            int h = top + i, w = left + j;
            int here = inside || (h >= 0 && h < height && w >= 0 && w < width);
            d[i][j] = here ? load(plane + ((ptrdiff_t)h * width + w) * GROUP) : splat(0);
        }
}

/* v = BT d B; its places go `step` floats apart. */
INLINE void winograd_v(vec d[4][4], float *v, size_t step) {
    vec rows[4][4];
    UNROLL for (int i = 0; i < 4; i++) winograd_b(d[i], rows[i]);
    UNROLL for (int j = 0; j < 4; j++) {
        vec column[4] = {rows[0][j], rows[1][j], rows[2][j], rows[3][j]}, out[4];
        winograd_b(column, out);
        UNROLL for (int i = 0; i < 4; i++) store(v + (size_t)(4 * i + j) * step, out[i]);
    }
}

static void winograd_inputs(const struct winograd *s, int first, int count) {
    size_t step = (size_t)s->channels * (size_t)count * LANES;
    for (int c = 0; c < s->channels; c++)
        for (int t = 0; t < count; t++) {
            vec d[4][4];
            int row = (first + t) / s->tiles_x, column = (first + t) % s->tiles_x;
            winograd_patch(s->x + (size_t)c * plane(s->height, s->width), s->height, s->width,
                           2 * row - s->padding, 2 * column - s->padding, d);
            winograd_v(d, s->v + ((size_t)c * count + t) * LANES, step);
        }
}

/* m of T tiles at one place: FORWARD_CHANNELS x T sums at a time. */
INLINE void winograd_product(const struct winograd *s, int place, const int T) {
    const float *u = s->u + (size_t)place * s->outputs * s->channels,
                *v = s->v + (size_t)place * s->channels * T * LANES;
    float *m = s->m + (size_t)place * s->outputs * T * LANES;
    for (int o = 0; o < s->outputs; o += FORWARD_CHANNELS) {
        vec acc[FORWARD_CHANNELS][WINOGRAD_TILES];
        const float *row[FORWARD_CHANNELS];
        UNROLL for (int i = 0; i < FORWARD_CHANNELS; i++) {
            int output = o + i < s->outputs ? o + i : s->outputs - 1;
            row[i] = u + (size_t)output * s->channels;
            UNROLL for (int j = 0; j < T; j++) acc[i][j] = splat(0);
        }
        const float *pixels = v;
        for (int c = 0; c < s->channels; c++, pixels += T * LANES) {
            vec w[FORWARD_CHANNELS];
            UNROLL for (int i = 0; i < FORWARD_CHANNELS; i++) w[i] = splat(row[i][c]);
            UNROLL for (int j = 0; j < T; j++) {
                vec pixel = load_once(pixels + j * LANES);
                UNROLL for (int i = 0; i < FORWARD_CHANNELS; i++) {
                    acc[i][j] = fused(w[i], pixel, acc[i][j]);
                }
            }
        }
        UNROLL for (int i = 0; i < FORWARD_CHANNELS; i++) {
            if (o + i >= s->outputs) break;
            UNROLL for (int j = 0; j < T; j++)
                store(m + ((size_t)(o + i) * T + j) * LANES, acc[i][j]);
        }
    }
}

typedef void winograd_products(const struct winograd *);
#define WINOGRAD_PRODUCTS(T)                                      \
    static void winograd_products_##T(const struct winograd *s) { \
        for (int place = 0; place < PLACES; place++)              \
            winograd_product(s, place, T);                        \
    }
WINOGRAD_PRODUCTS(1)
WINOGRAD_PRODUCTS(2)
WINOGRAD_PRODUCTS(3)
WINOGRAD_PRODUCTS(4)
WINOGRAD_PRODUCTS(5)
WINOGRAD_PRODUCTS(6)
#if ACCUMULATORS >= 28
WINOGRAD_PRODUCTS(7)
#endif

static winograd_products *const winograd_all_products[WINOGRAD_TILES + 1] = {
    NULL,
    winograd_products_1,
    winograd_products_2,
    winograd_products_3,
    winograd_products_4,
    winograd_products_5,
    winograd_products_6,
#if ACCUMULATORS >= 28
    winograd_products_7,
#endif
};

/* y = AT m A + bias of the tiles; what hangs over the picture's edge is left out. */
static void winograd_outputs(const struct winograd *s, int first, int count) {
    size_t step = (size_t)s->outputs * (size_t)count * LANES;
    for (int o = 0; o < s->outputs; o++)
        for (int t = 0; t < count; t++) {
            const float *m = s->m + ((size_t)o * count + t) * LANES;
            int p = (first + t) / s->tiles_x * 2, q = (first + t) % s->tiles_x * 2;
            float *y = s->y + o * plane(s->out_height, s->out_width) +
                       ((size_t)p * s->out_width + q) * GROUP;
            vec bias = splat(s->bias ? s->bias[o] : 0), rows[2][4];
            UNROLL for (int j = 0; j < 4; j++) {
                vec a = load(m + j * step), b = load(m + (4 + j) * step),
                    c = load(m + (8 + j) * step), d = load(m + (12 + j) * step);
                rows[0][j] = (a + b) + c;
                rows[1][j] = (b - c) - d;
            }
            UNROLL for (int i = 0; i < 2; i++) {
                if (p + i >= s->out_height) break;
                float *out = y + (size_t)i * s->out_width * GROUP;
                store(out, (rows[i][0] + rows[i][1]) + rows[i][2] + bias);
                if (q + 1 < s->out_width)
                    store(out + GROUP, (rows[i][1] - rows[i][2]) - rows[i][3] + bias);
            }
        }
}

/* All groups, part by part. x and y begin at the tensor; `scratch` has room for u, v and m. */
static void winograd_run(struct winograd s, int groups, const struct tensor *x,
                         const struct tensor *y, float *scratch) {
    s.v = scratch;
    s.m = s.v + (size_t)PLACES * s.channels * WINOGRAD_TILES * LANES;
    s.tiles_x = (s.out_width + 1) / 2;
    s.tiles = s.tiles_x * ((s.out_height + 1) / 2);
    int blocks = tiles_of(s.tiles, WINOGRAD_TILES);
    for (int g = 0; g < groups; g++)
        for (int part = 0; part < PARTS; part++) {
            s.x = tensor_f32(x) + g * s.channels * plane(s.height, s.width) + part * LANES;
            s.y = tensor_f32(y) + g * s.outputs * plane(s.out_height, s.out_width) + part * LANES;
            for (int b = 0; b < blocks; b++) {
                int first = tile_begin(b, blocks, s.tiles),
                    count = tile_begin(b + 1, blocks, s.tiles) - first;
                winograd_inputs(&s, first, count);
                winograd_all_products[count](&s);
                winograd_outputs(&s, first, count);
            }
        }
}

static void winograd_forward(const struct op_args *a, const struct conv *c) {
    struct winograd s = {NULL,
                         tensor_f32(&a->in[2]),
                         NULL,
                         c->channels,
                         c->height,
                         c->width,
                         c->outputs,
                         c->out_height,
                         c->out_width,
                         c->padding,
                         a->scratch,
                         NULL,
                         NULL,
                         0,
                         0};
    size_t filters = (size_t)PLACES * c->outputs * c->channels;
    winograd_filters_of(c->w, c->outputs, c->channels, 0, a->scratch);
    winograd_run(s, c->groups, &a->in[0], &a->out[0], (float *)a->scratch + filters);
}

/* dx is the convolution of dy with the filters turned around; what padding took away from y, dy
 * gets back here. */
static void winograd_backward_data(const struct op_args *a, const struct conv *c) {
    struct winograd s = {NULL,         NULL,        NULL,      c->outputs, c->out_height,
                         c->out_width, c->channels, c->height, c->width,   2 - c->padding,
                         a->scratch,   NULL,        NULL,      0,          0};
    size_t filters = (size_t)PLACES * c->outputs * c->channels;
    winograd_filters_of(c->w, c->outputs, c->channels, 1, a->scratch);
    winograd_run(s, c->groups, &a->in[0], &a->out[0], (float *)a->scratch + filters);
}
