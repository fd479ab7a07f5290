/* Difficult cases of the losses: scores that would overflow exp, ties, and a single number of a
 * log. */
#include "tests/core/device/kernels_common.h"

static struct tensor labels_of(struct heap *heap, int n, const int32_t *labels) {
    struct tensor t = heap_tensor(heap, DTYPE_I32, 1, n, 1, 1, 1);
    memcpy(t.data, labels, (size_t)n * sizeof *labels);
    return t;
}

static struct op_args cross_entropy(struct heap *heap, const struct tensor *x,
                                    const struct tensor *labels) {
    return (struct op_args){.in = {*x, *labels},
                            .out = {heap_tensor(heap, DTYPE_F64, 1, x->dims[0], 1, 1, 1),
                                    heap_tensor(heap, DTYPE_I32, 1, x->dims[0], 1, 1, 1)}};
}

Test(math_loss, large_scores_do_not_overflow, .timeout = 30) {
    struct heap heap = {0};
    static const float rows[4][3] = {
        {1e4f, 1e4f, -1e4f}, {1.5e38f, -1.5e38f, 0}, {-1e30f, -1e30f, -1e30f}, {88.8f, 89, 1000}};
    static const double want[4] = {0.69314718055994531, 0, 1.0986122886681098,
                                   1000 - (double)88.8f};
    static const int32_t label[4] = {0, 0, 1, 0};
    struct step_block step = {.weight = 1};
    struct tensor x = heap_tensor(&heap, DTYPE_F32, 2, 4, 3, 1, 1), y = tensor_like(&heap, &x),
                  dx = tensor_like(&heap, &x);
    memcpy(x.data, rows, sizeof rows);
    struct tensor labels = labels_of(&heap, 4, label);
    struct op_args a = cross_entropy(&heap, &x, &labels);
    host_reference_kernels[OP_CROSS_ENTROPY_FORWARD](&a);
    host_reference_kernels[OP_SOFTMAX_FORWARD](
        &(struct op_args){.in = {x}, .out = {y}, .p.softmax.log = 1});
    host_reference_kernels[OP_CROSS_ENTROPY_BACKWARD](&(struct op_args){
        .in = {x, labels}, .out = {dx}, .step = &step, .p.loss = {.reduction = REDUCE_MEAN}});
    for (int i = 0; i < 4; i++) {
        cr_assert_float_eq(((double *)a.out[0].data)[i], want[i], 1e-12 * (1 + want[i]), "row %d",
                           i);
        cr_assert_float_eq(tensor_f32(&y)[i * 3 + label[i]], -want[i], 1e-6 * (1 + want[i]),
                           "row %d", i);
        double sum = 0;
        for (int j = 0; j < 3; j++) {
            cr_assert(isfinite(tensor_f32(&y)[i * 3 + j]) && isfinite(tensor_f32(&dx)[i * 3 + j]),
                      "row %d, class %d", i, j);
            sum += tensor_f32(&dx)[i * 3 + j];
        }
        cr_assert_float_eq(sum, 0, 1e-6, "a softmax sums to 1: its gradient to 0");
    }
    heap_free(&heap);
}

Test(math_loss, hits_count_the_first_of_equal_scores, .timeout = 30) {
    struct heap heap = {0};
    static const float rows[4][3] = {{1, 2, 3}, {2, 2, 1}, {2, 2, 1}, {0, 0, 0}};
    static const int32_t label[4] = {2, 0, 1, 2}, want[4] = {1, 1, 0, 0};
    struct tensor x = heap_tensor(&heap, DTYPE_F32, 2, 4, 3, 1, 1),
                  labels = labels_of(&heap, 4, label);
    memcpy(x.data, rows, sizeof rows);
    struct op_args a = cross_entropy(&heap, &x, &labels);
    for (int i = 0; i < 2; i++) {
        a.p.loss.log_probabilities = i;
        host_reference_kernels[OP_CROSS_ENTROPY_FORWARD](&a);
        cr_assert_arr_eq(a.out[1].data, want, sizeof want, "log %d", i);
    }
    heap_free(&heap);
}

/* A label that is no class gives NaN, no read past the row, and no change of other rows. */
Test(math_loss, a_wrong_label_is_a_nan, .timeout = 30) {
    struct heap heap = {0};
    static const int32_t label[4] = {-1, 3, 1 << 30, 1};
    struct step_block step = {.weight = .5f};
    struct tensor x = tensor_random(&heap, 1, 2, 4, 3, 1, 1), labels = labels_of(&heap, 4, label),
                  dx = tensor_like(&heap, &x);
    for (int i = 0; i < 2; i++) {
        struct op_args a = cross_entropy(&heap, &x, &labels);
        a.p.loss.log_probabilities = i;
        host_reference_kernels[OP_CROSS_ENTROPY_FORWARD](&a);
        host_reference_kernels[OP_CROSS_ENTROPY_BACKWARD](
            &(struct op_args){.in = {x, labels},
                              .out = {dx},
                              .step = &step,
                              .p.loss = {.reduction = REDUCE_MEAN, .log_probabilities = i}});
        for (int n = 0; n < 4; n++) {
            cr_assert_eq(!isnan(((double *)a.out[0].data)[n]), n == 3, "row %d", n);
            cr_assert_eq(!isnan(tensor_f32(&dx)[n * 3 + 1]), n == 3, "row %d", n);
        }
    }
    heap_free(&heap);
}

Test(math_loss, loss_sum_writes_its_own_cell, .timeout = 30) {
    for (int n = 0; n < 6; n++) {
        double loss[6] = {1e16, 1, 1, 1, -1e16, 2}, sum = 0, sums[6] = {9, 9, 9, 9, 9, 9};
        int32_t hits[6] = {1, 0, 1, 1, 0, 1};
        int64_t hit_sum = 0, hit_sums[6] = {9, 9, 9, 9, 9, 9};
        int rows[1] = {n}, cells[2] = {3, 2};
        struct step_block step = {.row = 1};
        struct op_args a = {
            .in = {tensor_plain(loss, DTYPE_F64, 1, rows), tensor_plain(hits, DTYPE_I32, 1, rows)},
            .out = {tensor_plain(sums, DTYPE_F64, 2, cells),
                    tensor_plain(hit_sums, DTYPE_I64, 2, cells)},
            .step = &step,
            .p.loss = {.reduction = REDUCE_MEAN, .column = 1}};
        host_reference_kernels[OP_LOSS_SUM](&a);
        for (int i = 0; i < n; i++)
            sum += loss[i], hit_sum += hits[i];
        for (int i = 0; i < 6; i++) {
            cr_assert_eq(sums[i], i == 3 ? sum : 9, "n = %d, cell %d", n, i);
            cr_assert_eq(hit_sums[i], i == 3 ? hit_sum : 9, "n = %d, cell %d", n, i);
        }
    }
}
