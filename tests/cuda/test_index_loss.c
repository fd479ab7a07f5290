/* The CUDA kernels of softmax and the losses, run on the host, 32 lanes to a row: a row has the
 * same bits in any company. (What they compute: test_index.c.) */
#include "tests/cuda/index.h"

/* Row r among 41 rows and alone: the same bits. */
Test(cuda_index_loss, a_row_has_the_same_bits_in_any_company, .timeout = 60) {
    enum { ROWS = 41, CLASSES = 37 };
    static const enum op ops[] = {OP_SOFTMAX_FORWARD, OP_SOFTMAX_BACKWARD,
                                  OP_CROSS_ENTROPY_BACKWARD};
    struct step_block step = {.weight = 1.0f / 96};
    for (int o = 0; o < 3; o++) {
        struct heap heap = {0};
        struct tensor x = tensor_random(&heap, 1, 2, ROWS, CLASSES, 1, 1),
                      dx = tensor_like(&heap, &x),
                      other = tensor_random(&heap, 2, 2, ROWS, CLASSES, 1, 1);
        struct tensor labels = heap_tensor(&heap, DTYPE_I32, 1, ROWS, 1, 1, 1);
        for (int i = 0; i < ROWS; i++)
            ((int32_t *)labels.data)[i] = i * 7 % CLASSES;
        struct op_args a = {.in = {x, o == 2 ? labels : other}, .out = {dx}, .step = &step}, one;
        if (o < 2) a.p.softmax.log = 1;
        if (ops[o] == OP_SOFTMAX_FORWARD) a.in[1] = (struct tensor){.data = NULL};
        run_rows(ops[o], &a, 3);
        for (int row = 0; row < ROWS; row++) {
            one = a;
            one.out[0] = heap_tensor(&heap, DTYPE_F32, 2, 1, CLASSES, 1, 1);
            one.in[0].data = tensor_f32(&x) + row * CLASSES, one.in[0].dims[0] = 1;
            if (a.in[1].data) one.in[1].data = (float *)a.in[1].data + row * (o == 2 ? 1 : CLASSES);
            one.in[1].dims[0] = 1;
            run_rows(ops[o], &one, 1);
            cr_assert_arr_eq(one.out[0].data, tensor_f32(&dx) + row * CLASSES,
                             CLASSES * sizeof(float), "%s: row %d", op_name(ops[o]), row);
        }
        heap_free(&heap);
    }
}
