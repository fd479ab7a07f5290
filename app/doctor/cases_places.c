/* Cases of rows by an index, of gather and scatter at computed indices, and of sorting a
 * dimension. */
#include "base/error.h"
#include "doctor/cases.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* Few places, so that several indices share one; some without index; some indices out of range. */
static void name_places(struct op_cases *c, struct tensor *index, int count) {
    static const float none[] = {-1, 0.5f, 3e9f};
    float *place = tensor_f32(index);
    for (size_t n = 0; place && n < tensor_count(index); n++)
        place[n] = n % 9 == 4   ? (float)(count + (int)(n % 3))
                   : n % 9 == 7 ? none[n % 3]
                                : (float)(rng_u32(&c->rng) % (uint32_t)count);
}

static int along(struct op_cases *c, enum op op) {
    static const int shapes[][4] = {/* outer, places of x, places named, inner */
                                    {1, 1, 1, 1}, {7, 5, 90, 1},   {3, 9, 11, 67}, {0, 5, 4, 3},
                                    {3, 5, 1, 4}, {1, 300, 7, 33}, {40, 17, 5, 2}};
    for (int i = 0; i < 2 * COUNT(shapes); i++) {
        const int *s = shapes[i / 2], forward = op == OP_TAKE_ALONG, from = forward ? s[1] : s[2],
                  to = forward ? s[2] : s[1];
        struct op_args a = {.in = {case_random(c, 3, s[0], from, s[3], 1),
                                   case_tensor(c, DTYPE_F32, 3, s[0], s[2], i % 2 ? s[3] : 1, 1)},
                            .out = {case_tensor(c, DTYPE_F32, 3, s[0], to, s[3], 1)}};
        name_places(c, &a.in[1], s[1]);
        put_special_values(&a.in[0]);
        CHECK(case_run(c, op, &a, 0));
    }
    return OK;
}

/* Random numbers, then few values, so that many are equal; NaN, infinities and -0 among them. */
static int argsort(struct op_cases *c) {
    static const int shapes[][3] = {/* outer, length, inner */
                                    {1, 1, 1}, {5, 2, 1}, {3, 1000, 1}, {2, 133, 67},
                                    {0, 7, 3}, {4, 1, 2}, {7, 16, 3}};
    for (int i = 0; i < 4 * COUNT(shapes); i++) {
        const int *s = shapes[i / 4];
        struct op_args a = {.in = {i % 2 ? case_whole(c, 3, s[0], s[1], s[2], 1)
                                         : case_random(c, 3, s[0], s[1], s[2], 1)},
                            .out = {case_tensor(c, DTYPE_F32, 3, s[0], s[1], s[2], 1)},
                            .p.sort.descending = i / 2 % 2};
        put_special_values(&a.in[0]);
        CHECK(case_run(c, OP_ARGSORT, &a, 0));
    }
    return OK;
}

/* Indices in any order, some twice, some the last of `rows`, and some outside: for those the
 * operation writes NaN. */
static void put_index(struct op_cases *c, struct tensor *t, int rows) {
    int32_t *index = t->data;
    for (int n = 0; index && n < t->dims[0]; n++)
        index[n] = n % 9 == 4   ? rows + n
                   : n % 9 == 7 ? -1 - n
                   : n % 9 == 8 ? rows - 1
                                : (int32_t)(rng_u32(&c->rng) % (uint32_t)rows);
}

/* Numbers, vectors and pictures. */
static int gather_rows(struct op_cases *c) {
    static const int shapes[][5] = {
        {1, 1, 1, 1, 1}, {7, 10, 1, 1, 19}, {90, 3, 8, 9, 65}, {300, 1, 1, 1, 33}};
    for (int i = 0; i < COUNT(shapes); i++) {
        const int *s = shapes[i];
        struct op_args a = {.in = {case_random(c, 4, s[0], s[1], s[2], s[3]),
                                   case_tensor(c, DTYPE_I32, 1, s[4], 1, 1, 1)},
                            .out = {case_tensor(c, DTYPE_F32, 4, s[4], s[1], s[2], s[3])}};
        put_index(c, &a.in[1], s[0]);
        CHECK(case_run(c, OP_GATHER_ROWS, &a, 0));
    }
    return OK;
}

int places_cases(struct op_cases *c, enum op op) {
    if (op == OP_GATHER_ROWS) return gather_rows(c);
    return op == OP_ARGSORT ? argsort(c) : along(c, op);
}
