/* Attention on row-major tensors, a band of ATTENTION_BAND queries at a time. Their scores against
 * all keys are in the scratch memory, which therefore grows with the keys, not with their square.
 * The products are those of n16_matmul.inc.h. A band's dk and dv are added to those of earlier
 * bands, and each matrix is computed separately, so its bits depend only on its own numbers. */

/* exp(x) for x up to a little above 0, to about 1 unit in the last place; 0 if it would be below
 * 2^-125. With x = n log(2) + r, a polynomial gives exp(r), and n goes into the exponent. */
INLINE vec exps(vec x) {
    static const float terms[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1, 1};
    const vec round = splat(0x1.8p23f);
    vec shifted = fused(x, splat(0x1.715476p0f), round), n = shifted - round,
        r = fused(n, splat(-0x1.7f7d1cp-20f), fused(n, splat(-0x1.62e4p-1f), x)),
        sum = splat(1.0f / 5040);
    UNROLL for (int i = 0; i < 7; i++) sum = fused(sum, r, splat(terms[i]));
    vec power = (vec)(((uvec)shifted - (uvec)round + 127) << 23);
    return select_vec((ivec)(x < splat(-86.5f)), splat(0), sum * power);
}

/* row[j] = exp(row[j] - shift), for a positive count; returns their sum. The last group of GROUP is
 * filled up with -infinity, whose exp is 0. */
static float attention_exps(float *row, size_t count, float shift) {
    vec sums[PARTS];
    float lanes[GROUP];
    UNROLL for (int p = 0; p < PARTS; p++) sums[p] = splat(0);
    for (size_t j = 0; j < count; j += GROUP) {
        size_t left = count - j < GROUP ? count - j : GROUP;
        float *group = left < GROUP ? lanes : row + j;
        for (size_t i = 0; left < GROUP && i < GROUP; i++)
            lanes[i] = i < left ? row[j + i] : -INFINITY;
        UNROLL for (int p = 0; p < PARTS; p++) {
            vec y = exps(load(group + p * LANES) - splat(shift));
            store(group + p * LANES, y);
            sums[p] += y;
        }
        if (left < GROUP) memcpy(row + j, lanes, left * sizeof *lanes);
    }
    UNROLL for (int p = 0; p < PARTS; p++) store(lanes + p * LANES, sums[p]);
    return sum_of_group(lanes);
}

/* The sum of a[e] b[e], in 16 parts. */
static float attention_dot(const float *a, const float *b, size_t count) {
    float sums[GROUP] = {0};
    size_t e = 0;
    for (; e + GROUP <= count; e += GROUP)
        UNROLL for (size_t p = 0; p < GROUP; p++) sums[p] += a[e + p] * b[e + p];
    for (size_t p = 0; e + p < count; p++)
        sums[p] += a[e + p] * b[e + p];
    return sum_of_group(sums);
}

/* Queries first .. first + count - 1 of matrix b; together they may use the first `keys` keys. */
struct attention_band {
    size_t b, first, count, keys;
};

static struct attention_band attention_band_of(const struct attention *a, size_t b, size_t first) {
    struct attention_band band = {b, first, a->queries - first, a->keys};
    if (band.count > ATTENTION_BAND) band.count = ATTENTION_BAND;
    band.keys = attention_keys(a, first + band.count - 1);
    return band;
}

static void attention_product(const float *a, size_t a_i, size_t a_k, const float *b, size_t b_i,
                              int transposed, float *y, size_t y_i, size_t rows, size_t depth,
                              size_t columns, int add) {
    struct matmul m = {.a = a,
                       .b = b,
                       .y = y,
                       .rows = (int)rows,
                       .columns = (int)columns,
                       .depth = (int)depth,
                       .a_i = a_i,
                       .a_k = a_k,
                       .b_i = b_i,
                       .y_i = y_i,
                       .transposed = transposed,
                       .adds = add};
    matmul_run(&m);
}

/* scores[r][j] = scale q_r . k_j + mask, or -infinity after the last key that a query may use. */
static void attention_scores(const struct attention *a, const struct attention_band *band,
                             float *scores) {
    float scale = (float)a->scale;
    attention_product(attention_row(a, &a->q, band->b, band->first), a->q.row, 1,
                      attention_row(a, &a->k, band->b, 0), a->k.row, 1, scores, band->keys,
                      band->count, a->width, band->keys, 0);
    for (size_t r = 0; r < band->count; r++, scores += band->keys) {
        const float *mask = attention_mask(a, band->b, band->first + r);
        size_t keys = attention_keys(a, band->first + r), j;
        for (j = 0; j < keys; j++)
            scores[j] = scores[j] * scale + (mask ? mask[j] : 0);
        for (; j < band->keys; j++)
            scores[j] = -INFINITY;
    }
}

/* attention_kept for each weight in a row; one draw serves four neighbours. */
static void attention_drop(const struct attention *a, const struct attention_band *band, size_t r,
                           float *row) {
    uint64_t element = (band->b * a->queries + band->first + r) * a->keys;
    struct philox four = {{0}};
    for (size_t j = 0; a->step && j < band->keys; j++, element++) {
        if (j == 0 || element % 4 == 0)
            four = philox_quad(a->step->seed, a->virtual_device, (uint32_t)a->step->step, a->layer,
                               (uint32_t)(element / 4));
        row[j] *= four.word[element % 4] < a->threshold ? a->factor : 0;
    }
}

static void fast_attention_forward(const struct op_args *args) {
    struct attention a = attention_of(OP_ATTENTION_FORWARD, args);
    float *scores = args->scratch;
    if (!scores) {
        reference_attention_forward(args);
        return;
    }
    for (size_t b = 0; b < a.batches; b++)
        for (size_t first = 0; first < a.queries; first += ATTENTION_BAND) {
            struct attention_band band = attention_band_of(&a, b, first);
            size_t row = b * a.queries + first;
            attention_scores(&a, &band, scores);
            for (size_t r = 0; r < band.count; r++) {
                float *x = scores + r * band.keys, max = -INFINITY;
                for (size_t j = 0; j < band.keys; j++)
                    max = x[j] > max ? x[j] : max;
                int hidden = max == -INFINITY;
                float sum = attention_exps(x, band.keys, hidden ? 0 : max);
                float part = hidden && sum == 0 ? 0 : 1 / sum;
                a.lse[row + r] = hidden ? 0 : (float)((double)max + log((double)sum));
                for (size_t j = 0; j < band.keys; j++)
                    x[j] *= part;
                attention_drop(&a, &band, r, x);
            }
            attention_product(scores, band.keys, 1, attention_row(&a, &a.v, b, 0), a.v.row, 0,
                              attention_row(&a, &a.y, b, first), a.y.row, band.count, band.keys,
                              a.values, 0);
        }
}

/* For a band with the weights in `weights` and dy . v in `slopes`, it computes the slopes in place
 * and applies dropout to the weights. Dividing the weights by their own sum removes the rounding of
 * lse. With dy . y from the same numbers the slopes sum to 0 up to rounding. */
static void attention_slopes(const struct attention *a, const struct attention_band *band,
                             float *weights, float *slopes) {
    float scale = (float)a->scale;
    for (size_t r = 0; r < band->count; r++, weights += band->keys, slopes += band->keys) {
        size_t i = band->first + r, row = band->b * a->queries + i;
        float mean = attention_dot(attention_row(a, &a->dy, band->b, i),
                                   attention_row(a, &a->y, band->b, i), a->values);
        attention_exps(weights, band->keys, a->lse[row]);
        attention_drop(a, band, r, slopes);
        for (size_t j = 0; j < band->keys; j++)
            slopes[j] = weights[j] * (slopes[j] - mean) * scale;
        attention_drop(a, band, r, weights);
    }
}

static void fast_attention_backward(const struct op_args *args) {
    struct attention a = attention_of(OP_ATTENTION_BACKWARD, args);
    float *weights = args->scratch, *slopes;
    if (!weights) {
        reference_attention_backward(args);
        return;
    }
    slopes = weights + ATTENTION_BAND * a.keys;
    for (size_t b = 0; b < a.batches; b++) {
        float *dk = attention_row(&a, &a.dk, b, 0), *dv = attention_row(&a, &a.dv, b, 0);
        const float *k = attention_row(&a, &a.k, b, 0), *v = attention_row(&a, &a.v, b, 0);
        for (size_t j = 0; j < a.keys; j++) {
            memset(dk + j * a.dk.row, 0, a.width * sizeof(float));
            memset(dv + j * a.dv.row, 0, a.values * sizeof(float));
        }
        for (size_t first = 0; first < a.queries; first += ATTENTION_BAND) {
            struct attention_band band = attention_band_of(&a, b, first);
            const float *dy = attention_row(&a, &a.dy, b, first),
                        *q = attention_row(&a, &a.q, b, first);
            attention_scores(&a, &band, weights);
            attention_product(dy, a.dy.row, 1, v, a.v.row, 1, slopes, band.keys, band.count,
                              a.values, band.keys, 0);
            attention_slopes(&a, &band, weights, slopes);
            attention_product(slopes, band.keys, 1, k, a.k.row, 0,
                              attention_row(&a, &a.dq, b, first), a.dq.row, band.count, band.keys,
                              a.width, 0);
            attention_product(slopes, 1, band.keys, q, a.q.row, 0, dk, a.dk.row, band.keys,
                              band.count, a.width, 1);
            attention_product(weights, 1, band.keys, dy, a.dy.row, 0, dv, a.dv.row, band.keys,
                              band.count, a.values, 1);
        }
    }
}
