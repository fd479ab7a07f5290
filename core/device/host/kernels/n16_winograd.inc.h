/* Convolution by Winograd's minimal filtering F(2x2, 3x3): 16 products instead of 36 for a tile of
 * 2 x 2 outputs, for filters of 3 x 3, stride 1 and many channels. The forward pass and, with the
 * filters flipped, the backward pass to the data.
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
 * (Lavin and Gray, "Fast algorithms for convolutional neural networks".) The transforms are sums of
 * vectors, a group at once, as always in N16; only u has halves in it. So integers stay exact,
 * and the error on others is about that of the direct sum.
 *
 * Tiles are taken some vectors at a time: their v and m stay in the second-level cache while u
 * streams by. A sum goes channel by channel, whatever the tile, the group and the lane. */

/* Sums of a register tile: outputs by vectors of tiles. */
#if ACCUMULATORS >= 28
#define WINOGRAD_OUTPUTS_OF(T) ((T) > 5 ? 4 : (T) == 5 ? 5 : 6)
enum { WINOGRAD_OUTPUTS = 6, PLACES = 16 };
#else
#define WINOGRAD_OUTPUTS_OF(T) ((T) > 4 ? 2 : 3)
enum { WINOGRAD_OUTPUTS = 3, PLACES = 16 };
#endif
enum { SIDE_BY_SIDE = WIDE / LANES }; /* tiles, or pixels, of a wide vector */

/* One pass: y = the sum over x's channels. */
struct winograd {
    const float *x, *bias; /* of one part of a group; bias NULL: none */
    float *y;
    int channels, height, width, outputs, out_height, out_width, padding;
    const float *u;     /* [PLACES][outputs][channels] */
    float *v, *m;       /* [PLACES][channels or outputs][vectors][WIDE] */
    int tiles_x, tiles; /* of a row, of the image */
};

/* ---- u ---- */

/* The nine elements of LANES filters, which lie `step` floats apart, each as a vector; past `count`
 * the last one again. A filter is read as 16 floats, but not past `end`, where the tensor ends. */
INLINE void winograd_load_filters(const float *w, size_t step, int count, const float *end,
                                  vec element[9]) {
    float lines[LANES * 16], transposed[16 * LANES];
    int whole = count >= LANES && w + (LANES - 1) * step + 16 <= end;
    for (int lane = 0; lane < LANES && !whole; lane++)
        memcpy(lines + lane * 16, w + (size_t)(lane < count ? lane : count - 1) * step,
               9 * sizeof(float));
    for (int column = 0; column < 9; column += LANES)
        transpose((whole ? w : lines) + column, whole ? step : 16, transposed + column * LANES,
                  LANES);
    UNROLL for (int i = 0; i < 9; i++) element[i] = load(transposed + i * LANES);
}

INLINE void winograd_g(vec a, vec b, vec c, vec out[4]) {
    vec ends = a + c, half = splat(0.5f);
    out[0] = a;
    out[1] = (ends + b) * half;
    out[2] = (ends - b) * half;
    out[3] = c;
}

/* u of `count` filters that lie `step` floats apart, `flip` 1: flipped. u's places are
 * `place_step` floats apart. */
INLINE void winograd_u(const float *w, size_t step, int count, const float *end, const int flip,
                       float *u, size_t place_step) {
    vec g[9], rows[3][4], out[4];
    winograd_load_filters(w, step, count, end, g);
    UNROLL for (int i = 0; i < 3; i++) {
        int at = flip ? 8 - 3 * i : 3 * i, next = flip ? -1 : 1;
        winograd_g(g[at], g[at + next], g[at + 2 * next], rows[i]);
    }
    UNROLL for (int j = 0; j < 4; j++) {
        winograd_g(rows[0][j], rows[1][j], rows[2][j], out);
        UNROLL for (int i = 0; i < 4; i++) {
            float *to = u + (size_t)(4 * i + j) * place_step;
            if (count >= LANES)
                store(to, out[i]);
            else
                memcpy(to, &out[i], (size_t)count * sizeof(float));
        }
    }
}

/* w is (first, second, 3, 3). `flip` 0: u is [place][first][second]; 1: [place][second][first],
 * of the filters flipped. */
static void winograd_filters_of(const float *w, int first, int second, int flip, float *u) {
    size_t place = (size_t)first * (size_t)second;
    const float *end = w + 9 * place;
    int outer = flip ? second : first, inner = flip ? first : second;
    for (int i = 0; i < outer; i++)
        for (int j = 0; j < inner; j += LANES) {
            const float *from = w + (flip ? (size_t)j * second + i : (size_t)i * second + j) * 9;
            float *to = u + (size_t)i * inner + j;
            if (flip)
                winograd_u(from, (size_t)second * 9, inner - j, end, 1, to, place);
            else
                winograd_u(from, 9, inner - j, end, 0, to, place);
        }
}

/* ---- v and m ---- */

INLINE void winograd_b(const vec d[4], vec out[4]) {
    out[0] = d[0] - d[2];
    out[1] = d[1] + d[2];
    out[2] = d[2] - d[1];
    out[3] = d[1] - d[3];
}

/* The position of a tile of 4 x 4 pixels: its first pixel in a plane, as an offset, and a bit for
 * each of its pixels that is inside the picture. */
struct winograd_place {
    ptrdiff_t corner;
    unsigned inside;
};

static struct winograd_place winograd_place(int height, int width, int top, int left) {
    struct winograd_place place = {((ptrdiff_t)top * width + left) * GROUP, 0};
    for (int i = 0; i < 16; i++) {
        int h = top + i / 4, w = left + i % 4;
        place.inside |= (unsigned)(h >= 0 && h < height && w >= 0 && w < width) << i;
    }
    return place;
}

/* Its pixels in one plane; 0 outside the picture. */
INLINE void winograd_patch(const float *plane, int width, const struct winograd_place *place,
                           vec d[4][4]) {
    const float *corner = plane + place->corner;
    if (place->inside == 0xffff) {
        UNROLL for (int i = 0; i < 16; i++) d[i / 4][i % 4] =
            load(corner + ((size_t)(i / 4) * width + i % 4) * GROUP);
        return;
    }
    UNROLL for (int i = 0; i < 16; i++) {
        d[i / 4][i % 4] = splat(0);
        if (place->inside >> i & 1)
            d[i / 4][i % 4] = load(corner + ((size_t)(i / 4) * width + i % 4) * GROUP);
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

/* Floats from one place of v or m to the next: one vector more than they take, since steps of
 * whole pages would put all 16 places into the same few lines of the first-level cache. */
INLINE size_t winograd_step(int channels, int vectors) {
    return ((size_t)channels * vectors + 1) * WIDE;
}

/* One channel at a time: within it the tiles of a block are adjacent. */
static void winograd_inputs(const struct winograd *s, int first, int count) {
    int vectors = tiles_of(count, SIDE_BY_SIDE);
    size_t step = winograd_step(s->channels, vectors);
    struct winograd_place places[TILE_MOST * SIDE_BY_SIDE];
    for (int t = 0; t < count; t++)
        places[t] = winograd_place(s->height, s->width, 2 * ((first + t) / s->tiles_x) - s->padding,
                                   2 * ((first + t) % s->tiles_x) - s->padding);
    for (int c = 0; c < s->channels; c++) {
        const float *pixels = s->x + (size_t)c * plane(s->height, s->width);
        for (int t = 0; t < count; t++) {
            vec d[4][4];
            winograd_patch(pixels, s->width, &places[t], d);
            winograd_v(d, s->v + (size_t)c * vectors * WIDE + t * LANES, step);
        }
    }
}

/* m of T vectors of tiles at one place: OUTPUTS x T sums at a time. */
INLINE void winograd_product(const struct winograd *s, int place, const int OUTPUTS, const int T) {
    const float *u = s->u + (size_t)place * s->outputs * s->channels,
                *v = s->v + (size_t)place * winograd_step(s->channels, T);
    float *m = s->m + (size_t)place * winograd_step(s->outputs, T);
    for (int o = 0; o < s->outputs; o += OUTPUTS) {
        wide acc[WINOGRAD_OUTPUTS][TILE_MOST];
        const float *row[WINOGRAD_OUTPUTS], *pixels = v;
        UNROLL for (int i = 0; i < OUTPUTS; i++) {
            int output = o + i < s->outputs ? o + i : s->outputs - 1;
            row[i] = u + (size_t)output * s->channels;
            UNROLL for (int j = 0; j < T; j++) acc[i][j] = splat_wide(0);
        }
        for (int c = 0; c < s->channels; c++, pixels += T * WIDE) {
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
            if (o + i >= s->outputs) break;
            UNROLL for (int j = 0; j < T; j++) {
                store_wide(m + ((size_t)(o + i) * T + j) * WIDE, acc[i][j]);
            }
        }
    }
}

typedef void winograd_products(const struct winograd *);
#define WINOGRAD_PRODUCTS(T)                                       \
    static void winograd_products_##T(const struct winograd *s) {  \
        for (int place = 0; place < PLACES; place++)               \
            winograd_product(s, place, WINOGRAD_OUTPUTS_OF(T), T); \
    }
EACH_TILE(WINOGRAD_PRODUCTS)

#define WINOGRAD_NAME(T) winograd_products_##T,
static winograd_products *const winograd_all_products[] = {NULL, EACH_TILE(WINOGRAD_NAME)};

/* y = AT m A + bias of the tiles; pixels beyond the image's edge are left out. */
static void winograd_outputs(const struct winograd *s, int first, int count) {
    int vectors = tiles_of(count, SIDE_BY_SIDE);
    size_t step = winograd_step(s->outputs, vectors);
    for (int o = 0; o < s->outputs; o++)
        for (int t = 0; t < count; t++) {
            const float *m = s->m + (size_t)o * vectors * WIDE + t * LANES;
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

/* All groups, part by part. x and y begin at the tensor; `scratch` holds u, v and m. */
static void winograd_run(struct winograd s, int groups, const struct tensor *x,
                         const struct tensor *y, float *scratch) {
    s.v = scratch;
    s.m = s.v + (size_t)PLACES * winograd_step(s.channels, TILE_MOST);
    s.tiles_x = (s.out_width + 1) / 2;
    s.tiles = s.tiles_x * ((s.out_height + 1) / 2);
    int vectors = tiles_of(s.tiles, SIDE_BY_SIDE), blocks = tiles_of(vectors, TILE_MOST);
    for (int g = 0; g < groups; g++)
        for (int part = 0; part < PARTS; part++) {
            s.x = tensor_f32(x) + g * s.channels * plane(s.height, s.width) + part * LANES;
            s.y = tensor_f32(y) + g * s.outputs * plane(s.out_height, s.out_width) + part * LANES;
            for (int b = 0; b < blocks; b++) {
                int from = tile_begin(b, blocks, vectors), to = tile_begin(b + 1, blocks, vectors),
                    first = from * SIDE_BY_SIDE, end = to * SIDE_BY_SIDE,
                    count = (end < s.tiles ? end : s.tiles) - first;
                winograd_inputs(&s, first, count);
                winograd_all_products[to - from](&s);
                winograd_outputs(&s, first, count);
            }
        }
}

static void winograd_forward(const struct op_args *a, const struct conv *c) {
    struct winograd s = {.bias = tensor_f32(&a->in[2]),
                         .channels = c->channels,
                         .height = c->height,
                         .width = c->width,
                         .outputs = c->outputs,
                         .out_height = c->out_height,
                         .out_width = c->out_width,
                         .padding = c->padding,
                         .u = a->scratch};
    size_t filters = (size_t)PLACES * c->outputs * c->channels;
    winograd_filters_of(c->w, c->outputs, c->channels, 0, a->scratch);
    winograd_run(s, c->groups, &a->in[0], &a->out[0], (float *)a->scratch + filters);
}

/* dx is the convolution of dy with the filters flipped, padded by 2 - the forward padding. */
static void winograd_backward_data(const struct op_args *a, const struct conv *c) {
    struct winograd s = {NULL,         NULL,        NULL,      c->outputs, c->out_height,
                         c->out_width, c->channels, c->height, c->width,   2 - c->padding,
                         a->scratch,   NULL,        NULL,      0,          0};
    size_t filters = (size_t)PLACES * c->outputs * c->channels;
    winograd_filters_of(c->w, c->outputs, c->channels, 1, a->scratch);
    winograd_run(s, c->groups, &a->in[0], &a->out[0], (float *)a->scratch + filters);
}
