/* Cases of matmul, sums along a dimension, the order of dimensions and the gradient of an
 * embedding's table. */
#include <string.h>

#include "base/error.h"
#include "doctor/cases.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* Random numbers in odd shapes, and integers, whose sums are all exact: as in cases_products.c.
 * Rows of 1024 numbers are whole pages (device/host/kernels/n16_matmul.inc.h). */
static int matmul(struct op_cases *c) {
    static const int shapes[][4] = {/* matrices, rows, columns, depth */
                                    {1, 1, 1, 1},     {3, 17, 5, 31},   {2, 7, 33, 70},
                                    {0, 13, 40, 3},   {1, 67, 130, 9},  {4, 64, 48, 300},
                                    {1, 3, 10, 1000}, {1, 1024, 5, 260}};
    for (int i = 0; i < 2 * COUNT(shapes); i++)
        for (int turned = 0; turned < 3; turned++) {
            const int *s = shapes[i / 2];
            int whole = i % 2, n = s[0], rows = s[1], columns = s[2], depth = s[3];
            struct op_args a = {.p.matmul = {turned == 1, turned == 2}};
            int a_rows = turned == 1 ? depth : rows, a_columns = turned == 1 ? rows : depth,
                b_rows = turned == 2 ? columns : depth, b_columns = turned == 2 ? depth : columns;
            a.in[0] = whole ? case_whole(c, 3, n, a_rows, a_columns, 1)
                            : case_random(c, 3, n, a_rows, a_columns, 1);
            a.in[1] = whole ? case_whole(c, 3, n, b_rows, b_columns, 1)
                            : case_random(c, 3, n, b_rows, b_columns, 1);
            a.out[0] = case_tensor(c, DTYPE_F32, 3, n, rows, columns, 1);
            CHECK(case_run(c, OP_MATMUL, &a, whole ? 0 : (size_t)depth));
        }
    return OK;
}

static int sum(struct op_cases *c, enum op op) {
    static const int shapes[][3] = {/* outer, length, inner */
                                    {1, 1, 1},  {1, 1000, 1}, {7, 300, 1}, {1, 259, 10},
                                    {5, 9, 67}, {0, 3, 2},    {3, 1, 33}};
    for (int i = 0; i < 2 * COUNT(shapes); i++) {
        const int *s = shapes[i / 2];
        struct op_args a = {.p.sum.divide = i % 2 ? s[1] : 1};
        int forward = op == OP_SUM;
        a.in[0] =
            forward ? case_random(c, 3, s[0], s[1], s[2], 1) : case_random(c, 2, s[0], s[2], 1, 1);
        a.out[0] = forward ? case_tensor(c, DTYPE_F32, 2, s[0], s[2], 1, 1)
                           : case_tensor(c, DTYPE_F32, 3, s[0], s[1], s[2], 1);
        CHECK(case_run(c, op, &a, 0));
    }
    return OK;
}

/* x in another order of dimensions, then the same numbers back into a part of a larger y. */
static int permute(struct op_cases *c) {
    static const struct {
        int rank, dims[6], order[6];
    } cases[] = {{1, {7, 1, 1, 1}, {0}},
                 {2, {33, 65, 1, 1}, {1, 0}},
                 {3, {5, 7, 33, 1}, {0, 2, 1}},
                 {3, {0, 7, 3, 1}, {0, 2, 1}},
                 {4, {3, 5, 7, 11}, {0, 2, 1, 3}},
                 {4, {3, 1, 7, 11}, {3, 1, 0, 2}},
                 {5, {3, 4, 3, 2, 5}, {2, 0, 3, 1, 4}},
                 {6, {2, 3, 4, 2, 5, 3}, {5, 1, 3, 0, 2, 4}}};
    for (int i = 0; i < 2 * COUNT(cases); i++) {
        const int *s = cases[i / 2].dims;
        int rank = cases[i / 2].rank, count = 1, larger[6];
        for (int k = 0; k < rank; k++)
            count *= s[k];
        struct tensor x = case_random(c, 1, count, 1, 1, 1), y;
        x = tensor_plain(x.data, DTYPE_F32, rank, s);
        struct op_args a = {.in = {tensor_permuted(&x, cases[i / 2].order)}};
        memcpy(larger, a.in[0].dims, sizeof larger);
        if (i % 2) larger[rank - 1] += 2, larger[rank / 2] += 1;
        y = tensor_plain(NULL, DTYPE_F32, rank, larger);
        y.data = case_tensor(c, DTYPE_F32, 1, (int)tensor_count(&y), 1, 1, 1).data;
        a.out[0] = y;
        tensor_strides(&y, a.out[0].stride);
        a.out[0].strided = i % 2;
        memcpy(a.out[0].dims, a.in[0].dims, sizeof y.dims);
        CHECK(case_run(c, OP_PERMUTE, &a, 0));
    }
    return OK;
}

/* Few rows, so that many indices share one; rows without an index; indices out of range. */
static int embedding(struct op_cases *c) {
    static const int shapes[][3] = {/* indices, rows of the table, width */
                                    {1, 1, 1},
                                    {90, 7, 10},
                                    {33, 100, 3},
                                    {0, 5, 4},
                                    {300, 4, 65}};
    for (int i = 0; i < COUNT(shapes); i++) {
        const int *s = shapes[i];
        struct op_args a = {.in = {case_random(c, 2, s[0], s[2], 1, 1),
                                   case_tensor(c, DTYPE_I32, 1, s[0], 1, 1, 1)},
                            .out = {case_tensor(c, DTYPE_F32, 2, s[1], s[2], 1, 1)}};
        int32_t *index = a.in[1].data;
        for (int n = 0; index && n < s[0]; n++)
            index[n] = n % 9 == 4   ? s[1] + n % 3
                       : n % 9 == 7 ? -1
                                    : (int32_t)(rng_u32(&c->rng) % (uint32_t)s[1]);
        a.p.embedding.left_out = i % 3;
        CHECK(case_run(c, OP_EMBEDDING_BACKWARD, &a, 0));
    }
    return OK;
}

/* Integers, fractions, and numbers that no int32 can hold. */
static int to_index(struct op_cases *c) {
    static const int sizes[] = {1, 90, 4097, 0};
    for (int i = 0; i < COUNT(sizes); i++) {
        struct op_args a = {.in = {case_whole(c, 2, sizes[i], 3, 1, 1)},
                            .out = {case_tensor(c, DTYPE_I32, 2, sizes[i], 3, 1, 1)}};
        static const float odd[] = {2147483648.f, -2147483648.f, 2147483520.f, 16777217.f, .5f};
        for (int n = 0; a.in[0].data && n < 3 * sizes[i]; n += 7)
            tensor_f32(&a.in[0])[n] = odd[n / 7 % COUNT(odd)];
        put_special_values(&a.in[0]);
        CHECK(case_run(c, OP_TO_INDEX, &a, 0));
    }
    return OK;
}

int algebra_cases(struct op_cases *c, enum op op) {
    if (op == OP_TO_INDEX) return to_index(c);
    if (op == OP_MATMUL) return matmul(c);
    if (op == OP_PERMUTE) return permute(c);
    return op == OP_EMBEDDING_BACKWARD ? embedding(c) : sum(c, op);
}
