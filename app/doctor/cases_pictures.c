/* Cases of pools, padding, and joined parts of samples. */
#include <math.h>

#include "base/error.h"
#include "doctor/cases.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* Sides of 1 to 4 pixels with strides of 1 to 3: windows overlap, touch, or leave pixels out.
 * `square` 0: rows and columns differ in one or the other. */
static int pools(struct op_cases *c, enum op op, int square, int relu) {
    enum { SIZES = 4, STRIDES = 3, CHANNELS = 3 };
    static const int samples[] = {1, 16, 17, 33, 0};
    int forward = op == OP_AVG_POOL_FORWARD || op == OP_MAX_POOL_FORWARD;
    for (int i = 0; i < SIZES * STRIDES; i++) {
        int size = i % SIZES + 1, stride = i / SIZES + 1;
        int wide = square ? size : i % 3 + 1, across = square ? stride : i / 2 % 3 + 1;
        int h = 6 + i % 2, w = 9 - i % 3, n = samples[i % COUNT(samples)];
        int p = (h - size) / stride + 1, q = (w - wide) / across + 1;
        struct tensor x = case_random(c, 4, n, CHANNELS, h, w);
        struct tensor dy = case_random(c, 4, n, CHANNELS, p, q);
        for (size_t k = 0; x.data && k < tensor_count(&x); k++)
            tensor_f32(&x)[k] = roundf(3 * tensor_f32(&x)[k]) / 2; /* many ties */
        if (n && x.data) tensor_f32(&x)[1] = tensor_f32(&x)[w] = NAN;
        struct op_args a = {
            .p.pool = {.size = {size, wide}, .stride = {stride, across}, .relu = relu}};
        a.in[0] = op == OP_AVG_POOL_BACKWARD ? dy : x;
        if (op == OP_AVG_POOL_BACKWARD && relu) a.in[1] = x;
        if (op == OP_MAX_POOL_BACKWARD) a.in[1] = dy;
        a.out[0] = forward ? case_tensor(c, DTYPE_F32, 4, n, CHANNELS, p, q)
                           : case_tensor(c, DTYPE_F32, 4, n, CHANNELS, h, w);
        CHECK(case_run(c, op, &a, 0));
    }
    return OK;
}

/* Margins and cuts on each side; the gradient of a pad is a case like these. */
static int pad(struct op_cases *c) {
    static const int shapes[][8] = {/* n c  h  w  p  q top left */
                                    {1, 3, 5, 4, 7, 6, 1, 1},    {33, 2, 6, 9, 6, 9, 0, 0},
                                    {17, 2, 3, 5, 8, 6, 4, 0},   {16, 1, 7, 6, 4, 3, -2, -3},
                                    {5, 2, 4, 8, 6, 5, 2, -3},   {2, 1, 1, 1, 3, 9, 2, 0},
                                    {20, 3, 9, 7, 12, 2, -1, -4}};
    for (int i = 0; i < COUNT(shapes); i++) {
        const int *s = shapes[i];
        struct op_args a = {.in = {case_random(c, 4, s[0], s[1], s[2], s[3])},
                            .out = {case_tensor(c, DTYPE_F32, 4, s[0], s[1], s[4], s[5])},
                            .p.pad = {s[6], s[7], i % 2 ? -0.75f : 0}};
        put_special_values(&a.in[0]);
        CHECK(case_run(c, OP_PAD, &a, 0));
    }
    return OK;
}

static int cat(struct op_cases *c) {
    static const int shapes[][5] = {/* n o  k  l  i */
                                    {1, 1, 5, 4, 7},
                                    {33, 2, 1, 9, 6},
                                    {17, 3, 8, 1, 1}};
    for (int i = 0; i < COUNT(shapes); i++) {
        const int *s = shapes[i];
        struct op_args a = {.in = {case_random(c, 4, s[0], s[1], s[2], s[4]),
                                   case_random(c, 4, s[0], s[1], s[3], s[4])},
                            .out = {case_tensor(c, DTYPE_F32, 4, s[0], s[1], s[2] + s[3], s[4])}};
        put_special_values(&a.in[0]);
        CHECK(case_run(c, OP_CAT, &a, 0));
    }
    return OK;
}

/* x of h x w pixels, y of p x q: divided with and without remainder, and more out than in. */
static int adaptive_pool(struct op_cases *c, enum op op) {
    static const int shapes[][6] = {/* n c  h  w  p  q */
                                    {1, 3, 7, 7, 1, 1},  {33, 2, 28, 12, 1, 1}, {17, 2, 6, 9, 3, 3},
                                    {16, 1, 7, 5, 3, 4}, {5, 2, 2, 3, 5, 3},    {2, 1, 1, 1, 1, 1}};
    for (int i = 0; i < COUNT(shapes); i++) {
        const int *s = shapes[i];
        const int in = op == OP_ADAPTIVE_AVG_POOL_FORWARD ? 2 : 4, out = 6 - in;
        struct op_args a = {.in = {case_random(c, 4, s[0], s[1], s[in], s[in + 1])},
                            .out = {case_tensor(c, DTYPE_F32, 4, s[0], s[1], s[out], s[out + 1])}};
        put_special_values(&a.in[0]);
        CHECK(case_run(c, op, &a, 0));
    }
    return OK;
}

int picture_cases(struct op_cases *c, enum op op) {
    switch (op) {
    case OP_PAD: return pad(c);
    case OP_CAT: return cat(c);
    case OP_AVG_POOL_FORWARD:
    case OP_AVG_POOL_BACKWARD:
    case OP_MAX_POOL_FORWARD:
    case OP_MAX_POOL_BACKWARD:
        for (int i = 0; i < 4; i++)
            CHECK(pools(c, op, i % 2, i / 2));
        return OK;
    default: return adaptive_pool(c, op);
    }
}
