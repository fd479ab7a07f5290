/* For ops whose fast kernels do the operations of the reference in its order. */
#ifndef TESTS_DEVICE_KERNELS_EQUAL_H
#define TESTS_DEVICE_KERNELS_EQUAL_H

#include "tests/device/kernels_common.h"

static const int sample_counts[] = {0, 1, 15, 16, 17, 33};
enum { SAMPLE_COUNTS = 6 };

/* Runs `op` on every instruction set, each time with new outputs, or in place where `in_place`
 * is the number of an input. Each must have the values of `want`, which is PLAIN (0 equals -0), and
 * the bits of the first. */
static inline void expect_all(enum op op, const struct op_args *fast, int in_place,
                              const struct tensor *want, const char *what) {
    struct heap heap = {0};
    struct tensor first = {.data = NULL};
    for (int i = 0; i < ISAS; i++) {
        host_kernel *kernel = kernel_of(op, all_isas[i]);
        if (!kernel) continue;
        struct op_args a = *fast;
        a.out[0] = tensor_like(&heap, &fast->out[0]);
        if (in_place >= 0) a.in[in_place] = a.out[0] = tensor_copy(&heap, &fast->in[in_place]);
        kernel(&a);
        struct tensor got = a.out[0].layout == LAYOUT_N16 ? plain_of(&heap, &a.out[0]) : a.out[0];
        for (size_t j = 0; j < tensor_count(want); j++) {
            float g = tensor_f32(&got)[j], w = tensor_f32(want)[j];
            cr_assert(g == w || (isnan(g) && isnan(w)), "%s, %s: element %zu is %g instead of %g",
                      what, all_isas[i], j, (double)g, (double)w);
        }
        if (!first.data) first = a.out[0];
        cr_assert(same_bits(&first, &a.out[0]), "%s: %s differs from %s", what, all_isas[i],
                  all_isas[0]);
    }
    heap_free(&heap);
}

#endif
