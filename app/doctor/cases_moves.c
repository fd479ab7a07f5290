/* Cases of ops that move data: pools, margins, joined parts, sums along a dimension, the order of
 * dimensions, rows by an index, elements at computed indices, and sorting. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "device/op_table.h"
#include "doctor/cases.h"

/* ---- pools ---- */

/* Sides of 1 to 4 pixels with strides of 1 to 3: windows overlap, touch, or leave pixels out. In
 * every second turn rows and columns differ in one or the other. */
enum { POOL_SIZES = 4, POOL_STRIDES = 3 };

static void set_pool(struct op_case *c) {
    static const int samples[] = {1, 16, 17, 33, 0};
    int i = c->row, square = c->turn % 2, *d = c->dim;
    int size = i % POOL_SIZES + 1, stride = i / POOL_SIZES + 1, wide = square ? size : i % 3 + 1,
        across = square ? stride : i / 2 % 3 + 1;
    d['N'] = samples[i % CASE_COUNT(samples)], d['C'] = 3;
    d['H'] = 6 + i % 2, d['W'] = 9 - i % 3;
    d['P'] = (d['H'] - size) / stride + 1, d['Q'] = (d['W'] - wide) / across + 1;
    c->a.p.pool =
        (struct pool_args){.size = {size, wide}, .stride = {stride, across}, .relu = c->turn / 2};
    if (c->op == OP_AVG_POOL_BACKWARD && !c->a.p.pool.relu) c->without = NO_IN(1);
}

/* Many ties, and NaN. */
static int fill_pool(struct op_case *c) {
    for (int i = 0; i < 2; i++) {
        struct tensor *x = &c->a.in[i];
        if (!x->data || strcmp(op_table[c->op].in[i].name, "x")) continue;
        for (size_t k = 0; k < tensor_count(x); k++)
            tensor_f32(x)[k] = roundf(3 * tensor_f32(x)[k]) / 2;
        if (c->dim['N']) tensor_f32(x)[1] = tensor_f32(x)[c->dim['W']] = NAN;
    }
    return OK;
}

/* x of h x w pixels, y of p x q: divided with and without remainder, and more out than in. */
static const int adaptive[][6] = {/* n c  h  w  p  q */
                                  {1, 3, 7, 7, 1, 1},  {33, 2, 28, 12, 1, 1}, {17, 2, 6, 9, 3, 3},
                                  {16, 1, 7, 5, 3, 4}, {5, 2, 2, 3, 5, 3},    {2, 1, 1, 1, 1, 1}};

/* ---- parts: margins and cuts on each side; the gradient of a pad is a case like these ---- */

static const int padded[][8] = {/* n c  h  w  p  q top left */
                                {1, 3, 5, 4, 7, 6, 1, 1},    {33, 2, 6, 9, 6, 9, 0, 0},
                                {17, 2, 3, 5, 8, 6, 4, 0},   {16, 1, 7, 6, 4, 3, -2, -3},
                                {5, 2, 4, 8, 6, 5, 2, -3},   {2, 1, 1, 1, 3, 9, 2, 0},
                                {20, 3, 9, 7, 12, 2, -1, -4}};
static const int joined[][5] = {{1, 1, 5, 4, 7}, {33, 2, 1, 9, 6}, {17, 3, 8, 1, 1}};

static void set_pad(struct op_case *c) {
    c->a.p.pad = (struct pad_args){c->dim['t'], c->dim['l'], c->row % 2 ? -0.75f : 0};
}

static void set_cat(struct op_case *c) {
    c->dim['S'] = c->dim['K'] + c->dim['L'];
}

/* ---- sums, and the order of dimensions ---- */

static const int summed[][3] = {/* outer, length, inner */
                                {1, 1, 1},  {1, 1000, 1}, {7, 300, 1}, {1, 259, 10},
                                {5, 9, 67}, {0, 3, 2},    {3, 1, 33}};

static void set_sum(struct op_case *c) {
    c->a.p.sum.divide = c->turn ? c->dim['L'] : 1;
}

static const int permuted[][13] = {/* rank; dimensions; their order */
                                   {1, 7, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0},
                                   {2, 33, 65, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0},
                                   {3, 5, 7, 33, 1, 0, 0, 0, 2, 1, 0, 0, 0},
                                   {3, 0, 7, 3, 1, 0, 0, 0, 2, 1, 0, 0, 0},
                                   {4, 3, 5, 7, 11, 0, 0, 0, 2, 1, 3, 0, 0},
                                   {4, 3, 1, 7, 11, 0, 0, 3, 1, 0, 2, 0, 0},
                                   {5, 3, 4, 3, 2, 5, 0, 2, 0, 3, 1, 4, 0},
                                   {6, 2, 3, 4, 2, 5, 3, 5, 1, 3, 0, 2, 4}};

/* x in another order of dimensions, then the same numbers back into a part of a larger y. */
static int fill_permute(struct op_case *c) {
    int rank = c->dim['r'], order[6];
    struct tensor *x = &c->a.in[0], *y = &c->a.out[0], whole;
    char shape[] = "abcdef";
    shape[rank] = 0;
    CHECK(case_tensor(c, DTYPE_F32, shape, 'r', x));
    for (int k = 0; k < rank; k++)
        order[k] = c->dim[(int)"uvwxyz"[k]];
    *x = tensor_permuted(x, order);
    for (int k = 0; k < rank; k++)
        c->dim[(int)shape[k]] = x->dims[k] + c->turn * (2 * (k == rank - 1) + (k == rank / 2));
    CHECK(case_tensor(c, DTYPE_F32, shape, '-', y));
    whole = *y;
    tensor_strides(&whole, y->stride);
    y->strided = c->turn;
    memcpy(y->dims, x->dims, sizeof y->dims);
    return OK;
}

/* ---- indices ---- */

/* In any order, some twice, some the last of `rows`, and some outside. */
static void put_indices(struct op_case *c, struct tensor *t, int rows) {
    int32_t *index = t->data;
    for (int n = 0; n < t->dims[0]; n++)
        index[n] = n % 9 == 4   ? rows + n
                   : n % 9 == 7 ? -1 - n
                   : n % 9 == 8 ? rows - 1
                                : case_index(c, rows);
}

static const int gathered[][5] = {/* rows, c, h, w, indices */
                                  {1, 1, 1, 1, 1},
                                  {7, 10, 1, 1, 19},
                                  {90, 3, 8, 9, 65},
                                  {300, 1, 1, 1, 33}};
/* Few rows, so that many indices share one; rows without an index. */
static const int embedded[][3] = {/* indices, rows of the table, width */
                                  {1, 1, 1},
                                  {90, 7, 10},
                                  {33, 100, 3},
                                  {0, 5, 4},
                                  {300, 4, 65}};

static int fill_rows(struct op_case *c) {
    put_indices(c, &c->a.in[1], c->dim['R']);
    if (c->op == OP_EMBEDDING_BACKWARD) c->a.p.embedding.left_out = c->row % 3;
    return OK;
}

static const int indices[][2] = {{1, 3}, {90, 3}, {4097, 3}, {0, 3}};

/* Integers, fractions, and numbers that no int32 can hold. */
static int fill_to_index(struct op_case *c) {
    static const float odd[] = {2147483648.f, -2147483648.f, 2147483520.f, 16777217.f, .5f};
    for (int n = 0; n < c->dim['n']; n += 7)
        tensor_f32(&c->a.in[0])[n] = odd[n / 7 % CASE_COUNT(odd)];
    put_special_values(&c->a.in[0]);
    return OK;
}

static const int along[][4] = {/* outer, length of x, indices, inner */
                               {1, 1, 1, 1}, {7, 5, 90, 1},   {3, 9, 11, 67}, {0, 5, 4, 3},
                               {3, 5, 1, 4}, {1, 300, 7, 33}, {40, 17, 5, 2}};

static void set_along(struct op_case *c) {
    c->dim['J'] = c->turn ? c->dim['I'] : 1;
}

/* Few elements, so that several indices share one; some without index; some out of range. */
static int fill_along(struct op_case *c) {
    static const float none[] = {-1, 0.5f, 3e9f};
    float *index = tensor_f32(&c->a.in[1]);
    for (size_t n = 0; n < tensor_count(&c->a.in[1]); n++)
        index[n] = n % 9 == 4   ? (float)(c->dim['C'] + (int)(n % 3))
                   : n % 9 == 7 ? none[n % 3]
                                : (float)case_index(c, c->dim['C']);
    return OK;
}

static const int sorted[][3] = {/* outer, length, inner */
                                {1, 1, 1}, {5, 2, 1}, {3, 1000, 1}, {2, 133, 67},
                                {0, 7, 3}, {4, 1, 2}, {7, 16, 3}};

/* Random numbers, then few values, so that many are equal. */
static void set_argsort(struct op_case *c) {
    c->data = c->turn % 2 ? "W" : "R";
    c->a.p.sort.descending = c->turn / 2;
}

/* ---- the lists ---- */

// clang-format off
const struct case_list move_cases[] = {
    {OP_AVG_POOL_FORWARD, OP_MAX_POOL_BACKWARD, "", .count = POOL_SIZES * POOL_STRIDES, .turns = 4,
        .set = set_pool, .fill = fill_pool},
    {OP_ADAPTIVE_AVG_POOL_FORWARD, OP_ADAPTIVE_AVG_POOL_BACKWARD, "NCHWPQ", SIZES(adaptive),
        .in = "R"},
    {OP_PAD, OP_PAD, "NCHWPQtl", SIZES(padded), .in = "R", .set = set_pad},
    {OP_CAT, OP_CAT, "NOKLI", SIZES(joined), .in = "Rr", .set = set_cat},
    {OP_SUM, OP_SPREAD, "OLI", SIZES(summed), .turns = 2, .set = set_sum},
    {OP_PERMUTE, OP_PERMUTE, "rabcdefuvwxyz", "r", SIZES(permuted), .turns = 2,
        .fill = fill_permute},
    {OP_TO_INDEX, OP_TO_INDEX, "AB", "AB", SIZES(indices), .in = "w", .fill = fill_to_index},
    {OP_EMBEDDING_BACKWARD, OP_EMBEDDING_BACKWARD, "NRD", SIZES(embedded), .fill = fill_rows},
    {OP_GATHER_ROWS, OP_GATHER_ROWS, "RCHWN", "CHW", SIZES(gathered), .fill = fill_rows},
    {OP_TAKE_ALONG, OP_ADD_ALONG, "OCKI", SIZES(along), .turns = 2, .in = "R", .set = set_along,
        .fill = fill_along},
    {OP_ARGSORT, OP_ARGSORT, "OCI", SIZES(sorted), .turns = 4, .set = set_argsort},
    {.count = 0}};
// clang-format on
