/* For test_emulated_ops.c: products, sums and orders of whole tensors, activations, and rows
 * that are normalised. */
#ifndef TESTS_CUDA_EMULATED_WHOLE_H
#define TESTS_CUDA_EMULATED_WHOLE_H

#include "tests/cuda/emulated_bed.h"

static inline void try_algebra(struct bed *b, int n, int rows, int columns, int depth) {
    struct heap *h = &b->heap;
    struct op_args a;
    for (int turned = 0; turned < 3; turned++) {
        struct tensor x = turned == 1 ? tensor_random(h, 1, 3, n, depth, rows, 1)
                                      : tensor_random(h, 1, 3, n, rows, depth, 1),
                      w = turned == 2 ? tensor_random(h, 2, 3, n, columns, depth, 1)
                                      : tensor_random(h, 2, 3, n, depth, columns, 1);
        a = (struct op_args){.in = {x, w}, .p.matmul = {turned == 1, turned == 2}};
        a.out[0] = tensor_new(h, DTYPE_F32, 3, n, rows, columns, 1);
        check_product(b, OP_MATMUL, &a, (size_t)depth);
    }
    struct tensor y = tensor_random(h, 3, 2, n, columns, 1, 1),
                  x = tensor_random(h, 4, 3, n, depth, columns, 1),
                  index = tensor_new(h, DTYPE_I32, 1, n, 1, 1, 1);
    a = (struct op_args){.in = {x}, .out = {y}, .p.sum.divide = depth};
    check(b, OP_SUM, &a, 0x1p-23, NULL); /* doubles in another order: one unit in the last place */
    a = (struct op_args){.in = {y}, .out = {x}, .p.sum.divide = depth};
    check(b, OP_SPREAD, &a, 0, NULL);
    for (int i = 0; i < n; i++)
        ((int32_t *)index.data)[i] = i * 7 % (rows + 2) - 1;
    a = (struct op_args){.in = {y, index}};
    a.out[0] = tensor_new(h, DTYPE_F32, 2, rows, columns, 1, 1);
    check(b, OP_EMBEDDING_BACKWARD, &a, 0, NULL);
    for (int i = 0; i < 2; i++) {
        a = (struct op_args){.in = {x}, .out = {tensor_like(h, &x)}};
        const struct permute_args order =
            i ? (struct permute_args){{2, 0, 1}} : (struct permute_args){{0, 2, 1}};
        a.p.permute = order;
        for (int k = 0; k < 3; k++)
            a.out[0].dims[k] = x.dims[order.order[k]];
        check(b, OP_PERMUTE, &a, 0, NULL);
    }
}

/* exp, erfc and tanh in double, rounded to float: one unit in the last place. */
static inline void try_activations(struct bed *b, int count) {
    struct tensor x = tensor_random(&b->heap, 1, 1, count, 1, 1, 1),
                  dy = tensor_random(&b->heap, 2, 1, count, 1, 1, 1), y = tensor_like(&b->heap, &x);
    for (size_t i = 0; i < tensor_count(&x); i++)
        tensor_f32(&x)[i] *= 6;
    for (int k = 0; k < ACTIVATION_COUNT; k++) {
        const struct activation_args function = {(enum activation)k, .3f, 2.5f};
        check(b, OP_ACTIVATION_FORWARD,
              &(struct op_args){.in = {x}, .out = {y}, .p.activation = function}, 0x1p-23, NULL);
        check(b, OP_ACTIVATION_BACKWARD,
              &(struct op_args){.in = {x, dy}, .out = {y}, .p.activation = function}, 0x1p-23,
              NULL);
    }
}

/* Rows of `weights` times `inner` numbers; sums of doubles in another order, rounded to float. */
static inline void try_layer_norm(struct bed *b, int samples, int groups, int inner, int weights) {
    static const double LAST_PLACE = 0x1p-22;
    struct heap *h = &b->heap;
    int rows = samples * groups, length = weights * inner;
    struct tensor x = tensor_random(h, 1, 2, rows, length, 1, 1),
                  dy = tensor_random(h, 2, 2, rows, length, 1, 1),
                  w = tensor_random(h, 3, 1, groups * weights, 1, 1, 1),
                  bias = tensor_random(h, 4, 1, groups * weights, 1, 1, 1),
                  moments = tensor_new(h, DTYPE_F64, 2, rows, 2, 1, 1), y = tensor_like(h, &x);
    struct op_args a = {.in = {x, w, bias}, .out = {y, moments}};
    a.p.layer_norm = (struct layer_norm_args){1e-5, groups, inner};
    check(b, OP_LAYER_NORM_FORWARD, &a, LAST_PLACE, NULL);
    host_reference_kernels[OP_LAYER_NORM_FORWARD](&a);
    a.in[1] = dy, a.in[2] = w, a.out[1].data = NULL;
    check(b, OP_LAYER_NORM_BACKWARD_DATA, &a, LAST_PLACE, NULL);
    a.in[2] = moments, a.out[0] = w, a.out[1] = bias;
    check(b, OP_LAYER_NORM_BACKWARD_WEIGHT, &a, LAST_PLACE, NULL);
}

#endif
