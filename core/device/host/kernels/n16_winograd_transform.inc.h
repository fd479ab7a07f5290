/* Convolution by Winograd's minimal filtering F(M x M, 3 x 3), for filters of 3 x 3, stride 1 and
 * many channels: 16 products instead of 36 for a tile of 2 x 2 outputs, and 36 instead of 144 for
 * one of 4 x 4. With S = M + 2:
 *
 *     u = G w GT      of each filter, S x S
 *     v = BT x B      of the S x S pixels of x that a tile needs; tiles overlap by two pixels
 *     m = sum over channels of u v, element by element: for each of the S x S positions a product
 *         of matrices, (outputs x channels) by (channels x tiles)
 *     y = AT m A + bias
 *
 * (Lavin and Gray, "Fast algorithms for convolutional neural networks".) Pixels and filters are the
 * coefficients of polynomials, which are multiplied by way of their values at S points: 0,
 * infinity, and p and -p, where p is 1 for M = 2, and 3/4 and 3/2 for M = 4. The transforms are
 * sums of vectors, a group at once, as always in N16. With M = 2 the rounding error is about that
 * of the direct sum, and integers stay exact, since only G has fractions, which are halves. With
 * M = 4 it is about three times as large; other points that were tried are worse.
 *
 * This file has the transforms to u and v; n16_winograd.inc.h and n16_winograd_weight.inc.h have
 * the passes. Filters have no samples, so the kernels for groups of 16, whose vectors are the
 * widest, transform them for all group sizes. */

/* ---- the matrices ---- */

/* G, BT and A for M = 2 and for M = 4: the rows of the points 0, p (one or two) and infinity. The
 * row of -p is that of p with its odd columns negated. */
typedef const float winograd_matrix[4][6];
static winograd_matrix winograd_g[] = {{{1}, {.5f, .5f, .5f}, {0, 0, 1}},
                                       {{64 / 81.f},
                                        {-128 / 243.f, -32 / 81.f, -8 / 27.f},
                                        {32 / 243.f, 16 / 81.f, 8 / 27.f},
                                        {0, 0, 1}}};
static winograd_matrix winograd_b[] = {{{-1, 0, 1}, {0, 1, 1}, {0, -1, 0, 1}},
                                       {{81 / 64.f, 0, -45 / 16.f, 0, 1},
                                        {0, -27 / 16.f, -9 / 4.f, 3 / 4.f, 1},
                                        {0, -27 / 32.f, -9 / 16.f, 3 / 2.f, 1},
                                        {0, 81 / 64.f, 0, -45 / 16.f, 0, 1}}};
static winograd_matrix winograd_a[] = {
    {{-1}, {1, 1}, {0, 1}},
    {{1}, {1, 3 / 4.f, 9 / 16.f, 27 / 64.f}, {1, 3 / 2.f, 9 / 4.f, 27 / 8.f}, {0, 0, 0, 1}}};

/* The sum of factor[i * stride] * in[i] for i = first, first + step, ... below `end`. The sum
 * begins with the last term, whose factor is often 1; the others are multiply-adds. */
INLINE vec winograd_sum(const float *factor, const int stride, const int first, const int step,
                        const int end, const vec *in) {
    vec sum = splat(0);
    int empty = 1;
    UNROLL for (int i = first + (end - 1 - first) / step * step; i >= first; i -= step) {
        if (factor[i * stride] == 0) continue;
        vec f = splat(factor[i * stride]);
        sum = empty ? f * in[i] : fused(f, in[i], sum);
        empty = 0;
    }
    return sum;
}

/* A matrix times a column of `count` numbers: the S values at the points. Those at p and -p share
 * the sums of even and of odd columns. */
INLINE void winograd_values(const int M, winograd_matrix *of, const int count, const vec *in,
                            vec *out) {
    const float(*row)[6] = of[M == 4];
    out[0] = winograd_sum(row[0], 1, 0, 1, count, in);
    UNROLL for (int i = 1; i <= M / 2; i++) {
        vec even = winograd_sum(row[i], 1, 0, 2, count, in),
            odd = winograd_sum(row[i], 1, 1, 2, count, in);
        out[2 * i - 1] = even + odd;
        out[2 * i] = even - odd;
    }
    out[M + 1] = winograd_sum(row[M / 2 + 1], 1, 0, 1, count, in);
}

/* The transposed matrix times a column of S values: `count` numbers. */
INLINE void winograd_numbers(const int M, winograd_matrix *of, const int count, const vec *in,
                             vec *out) {
    vec even[4] = {in[0]}, odd[4] = {in[0]};
    UNROLL for (int i = 1; i <= M / 2; i++) {
        even[i] = in[2 * i - 1] + in[2 * i];
        odd[i] = in[2 * i - 1] - in[2 * i];
    }
    even[M / 2 + 1] = odd[M / 2 + 1] = in[M + 1];
    UNROLL for (int j = 0; j < count; j++) out[j] =
        winograd_sum(&of[M == 4][0][j], 6, 0, 1, M / 2 + 2, j % 2 ? odd : even);
}

/* ---- u ---- */

/* w is (first, second, 3, 3). `flip` 0: u is [position][first][second]; 1:
 * [position][second][first], of the filters flipped. */
void OF_ISA(winograd_filters)(int M, const float *w, int first, int second, int flip, float *u);

/* Floats between positions: one cache line more than the filters take, since steps of whole pages
 * would put all positions into the same few lines of the first-level cache. */
INLINE size_t winograd_u_step(int outputs, int channels) {
    return (size_t)outputs * (size_t)channels + MOST_LANES;
}

#if GROUP == 16
/* The nine elements of LANES filters, which lie `step` floats apart, each as a vector; past `count`
 * the last one again; `flip` 1: the last element first. A filter is read as 16 floats, but not past
 * `end`, where the tensor ends. */
INLINE void winograd_load_filters(const float *w, size_t step, int count, const float *end,
                                  int flip, vec element[9]) {
    float lines[LANES * 16], transposed[16 * LANES];
    int whole = count >= LANES && w + (LANES - 1) * step + 16 <= end;
    for (int lane = 0; lane < LANES && !whole; lane++)
        memcpy(lines + lane * 16, w + (size_t)(lane < count ? lane : count - 1) * step,
               9 * sizeof(float));
    for (int column = 0; column < 9; column += LANES)
        transpose((whole ? w : lines) + column, whole ? step : 16, transposed + column * LANES,
                  LANES);
    UNROLL for (int i = 0; i < 9; i++) element[i] = load(transposed + (flip ? 8 - i : i) * LANES);
}

/* u of `count` filters; its positions are `position_step` floats apart. */
INLINE void winograd_u(const int M, const float *w, size_t step, int count, const float *end,
                       int flip, float *u, size_t position_step) {
    vec g[9], rows[3][6], out[6];
    winograd_load_filters(w, step, count, end, flip, g);
    UNROLL for (int i = 0; i < 3; i++) winograd_values(M, winograd_g, 3, g + 3 * i, rows[i]);
    UNROLL for (int j = 0; j < M + 2; j++) {
        vec column[3] = {rows[0][j], rows[1][j], rows[2][j]};
        winograd_values(M, winograd_g, 3, column, out);
        UNROLL for (int i = 0; i < M + 2; i++) {
            float *to = u + (size_t)((M + 2) * i + j) * position_step;
            if (count >= LANES)
                store(to, out[i]);
            else
                memcpy(to, &out[i], (size_t)count * sizeof(float));
        }
    }
}

void OF_ISA(winograd_filters)(int M, const float *w, int first, int second, int flip, float *u) {
    size_t apart = winograd_u_step(first, second), step = flip ? (size_t)second * 9 : 9;
    const float *end = w + (size_t)first * (size_t)second * 9;
    int outer = flip ? second : first, inner = flip ? first : second;
    for (int i = 0; i < outer; i++)
        for (int j = 0; j < inner; j += LANES) {
            const float *from = w + (flip ? (size_t)j * second + i : (size_t)i * second + j) * 9;
            float *to = u + (size_t)i * inner + j;
            M == 4 ? winograd_u(4, from, step, inner - j, end, flip, to, apart)
                   : winograd_u(2, from, step, inner - j, end, flip, to, apart);
        }
}
#endif

/* ---- v ---- */

/* The position of a tile of S x S pixels: its first pixel in a plane, as an offset, and a bit for
 * each of its pixels that is inside the image. */
struct winograd_position {
    ptrdiff_t corner;
    uint64_t inside;
};

static struct winograd_position winograd_position(int side, int height, int width, int top,
                                                  int left) {
    struct winograd_position position = {((ptrdiff_t)top * width + left) * GROUP, 0};
    for (int i = 0; i < side * side; i++) {
        int h = top + i / side, w = left + i % side;
        position.inside |= (uint64_t)(h >= 0 && h < height && w >= 0 && w < width) << i;
    }
    return position;
}

/* Its pixels in one plane; 0 outside the image. */
INLINE void winograd_patch(const int S, const float *plane, int width,
                           const struct winograd_position *position, vec d[6][6]) {
    const float *corner = plane + position->corner;
    int whole = position->inside == ((uint64_t)1 << S * S) - 1;
    UNROLL for (int i = 0; i < S; i++) {
        UNROLL for (int j = 0; j < S; j++) {
            d[i][j] = splat(0);
            if (whole || position->inside >> (S * i + j) & 1)
                d[i][j] = load(corner + ((size_t)i * width + j) * GROUP);
        }
    }
}

/* v = BT d B; its positions go `step` floats apart. */
INLINE void winograd_v(const int M, vec d[6][6], float *v, size_t step) {
    vec rows[6][6];
    UNROLL for (int i = 0; i < M + 2; i++) winograd_values(M, winograd_b, M + 2, d[i], rows[i]);
    UNROLL for (int j = 0; j < M + 2; j++) {
        vec column[6], out[6];
        UNROLL for (int i = 0; i < M + 2; i++) column[i] = rows[i][j];
        winograd_values(M, winograd_b, M + 2, column, out);
        UNROLL for (int i = 0; i < M + 2; i++) store(v + (size_t)((M + 2) * i + j) * step, out[i]);
    }
}
