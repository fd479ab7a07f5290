/* Launches an op on a GPU whose runtime is emulated and compares its results with those of the
 * host's reference. */
#ifndef TESTS_CUDA_EMULATED_BED_H
#define TESTS_CUDA_EMULATED_BED_H

#include "tests/device/shared.h"
#include "tests/device/kernels_common.h"

struct bed {
    struct heap heap;
    struct device *device;
    int tried[OP_COUNT];
};

static inline void upload(struct bed *b, struct tensor *t, const struct tensor *from) {
    size_t bytes = tensor_bytes(from);
    *t = *from;
    if (!from->data) return;
    MUST(device_alloc(b->device, &t->data, bytes, MEM_WORKSPACE));
    MUST(copy_to_device(device_compute(b->device), t->data, from->data, bytes));
}

/* Runs the op on the device; `got` is its out[], in host memory. */
static inline void run_there(struct bed *b, enum op op, const struct op_args *a,
                             struct tensor got[2]) {
    struct stream *s = device_compute(b->device);
    struct op_args there = *a;
    void *step = NULL;
    for (int i = 0; i < 3; i++)
        upload(b, &there.in[i], &a->in[i]);
    for (int i = 0; i < 2; i++)
        upload(b, &there.out[i], &a->out[i]);
    if (a->step) {
        MUST(device_alloc(b->device, &step, sizeof *a->step, MEM_WORKSPACE));
        MUST(stream_write(s, step, a->step, sizeof *a->step));
        there.step = step;
    }
    MUST(launch(s, op, &there));
    for (int i = 0; i < 2; i++) {
        got[i] = a->out[i];
        if (!a->out[i].data) continue;
        got[i] = tensor_like(&b->heap, &a->out[i]);
        MUST(copy_to_host(s, got[i].data, there.out[i].data, tensor_bytes(&got[i])));
    }
    MUST(stream_sync(s));
    for (int i = 0; i < 3; i++)
        device_free(b->device, there.in[i].data);
    for (int i = 0; i < 2; i++)
        device_free(b->device, there.out[i].data);
    device_free(b->device, step);
}

static inline double value_at(const struct tensor *t, size_t i) {
    switch (t->dtype) {
    case DTYPE_F32: return (double)tensor_f32(t)[i];
    case DTYPE_F64: return ((double *)t->data)[i];
    case DTYPE_I32: return ((int32_t *)t->data)[i];
    default: return (double)((int64_t *)t->data)[i];
    }
}

/* Expects a difference of at most `bound` times `size` (NULL: 1 + |want|); bound 0: equal
 * numbers. */
static inline void check(struct bed *b, enum op op, const struct op_args *a, double bound,
                         const struct op_args *sizes) {
    struct op_args want = *a;
    struct tensor got[2];
    for (int i = 0; i < 2; i++)
        if (a->out[i].data) want.out[i] = tensor_copy(&b->heap, &a->out[i]);
    cr_assert_eq(op_check(op, a), OK, "the test's own shapes: %s", error_message());
    run_there(b, op, a, got);
    host_reference_kernels[op](&want);
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; a->out[i].data && k < tensor_count(&a->out[i]); k++) {
            double g = value_at(&got[i], k), w = value_at(&want.out[i], k);
            double most = bound * (sizes ? value_at(&sizes->out[i], k) : 1 + fabs(w));
            cr_assert(g == w || (isnan(g) && isnan(w)) || fabs(g - w) <= most,
                      "%s: out[%d][%zu] is %.9g, the reference %.9g", op_name(op), i, k, g, w);
        }
    b->tried[op]++;
}

#endif
