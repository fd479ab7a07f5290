/* Launches an op on a GPU whose runtime is emulated and compares its results with those of the
 * host's reference. */
#ifndef TESTS_CUDA_EMULATED_BED_H
#define TESTS_CUDA_EMULATED_BED_H

#include "device/cuda/cuda.h"
#include "tests/device/shared.h"
#include "tests/device/kernels_common.h"
#include "tests/stand_ins/cuda_emulation/use_ptx.h"

struct bed {
    struct heap heap;
    struct device *device;
    int tried[OP_COUNT];
    int ptx; /* 1: each op also runs from nvcc's PTX (test_ptx.c) */
};

/* What a kernel of an op may access: its operands to the byte, and the workspace. */
static inline int operand_ranges(struct stream *s, const struct op_args *a,
                                 struct ptx_range ranges[7]) {
    int count = 0;
    uintptr_t workspace = (uintptr_t)((struct cuda_stream *)s)->workspace;
    for (int i = 0; i < 5; i++) {
        const struct tensor *t = i < 3 ? &a->in[i] : &a->out[i - 3];
        uintptr_t from = (uintptr_t)t->data;
        if (from) ranges[count++] = (struct ptx_range){from, from + tensor_bytes(t)};
    }
    if (a->step)
        ranges[count++] =
            (struct ptx_range){(uintptr_t)a->step, (uintptr_t)a->step + sizeof *a->step};
    ranges[count++] = (struct ptx_range){workspace, workspace + CUDA_WORKSPACE_BYTES};
    return count;
}

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
    struct ptx_range ranges[7];
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
    if (b->ptx) {
        MUST(stream_sync(s));
        emulated_ptx_only(ranges, operand_ranges(s, &there, ranges));
    }
    MUST(launch(s, op, &there));
    if (b->ptx) MUST(stream_sync(s));
    emulated_ptx_only(NULL, 0);
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

/* Of these a GPU has an exp or log of its own, within the bound of the reference. */
static inline int op_has_exp(enum op op) {
    return op == OP_SOFTMAX_FORWARD || op == OP_LOG_SOFTMAX_FORWARD ||
           op == OP_LOG_SOFTMAX_BACKWARD || op == OP_CROSS_ENTROPY_FORWARD ||
           op == OP_CROSS_ENTROPY_BACKWARD;
}

/* nvcc's code gives the bits of the text compiled as C++, which `got` were made by. */
static inline void check_ptx(struct bed *b, enum op op, const struct op_args *a,
                             struct tensor got[2]) {
    struct tensor by_text[2];
    struct heap kept = b->heap;
    b->heap = (struct heap){0};
    emulated_ptx_pause(1);
    run_there(b, op, a, by_text);
    emulated_ptx_pause(0);
    for (int i = 0; i < 2 && !op_has_exp(op); i++)
        for (size_t k = 0; a->out[i].data && k < tensor_count(&a->out[i]); k++) {
            double g = value_at(&got[i], k), w = value_at(&by_text[i], k);
            cr_assert((g == w && signbit(g) == signbit(w)) || (isnan(g) && isnan(w)),
                      "%s: out[%d][%zu] is %.9g by PTX, %.9g by its text", op_name(op), i, k, g, w);
        }
    heap_free(&b->heap);
    b->heap = kept;
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
    if (b->ptx) check_ptx(b, op, a, got);
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

/* The same of a product: a sum of t products in another order is off by at most t 2^-24 of the sum
 * of their absolute values. */
static inline void check_product(struct bed *b, enum op op, const struct op_args *a, size_t terms) {
    struct op_args sizes = *a;
    for (int i = 0; i < 3; i++) {
        if (!a->in[i].data) continue;
        sizes.in[i] = tensor_copy(&b->heap, &a->in[i]);
        for (size_t k = 0; k < tensor_count(&a->in[i]); k++)
            tensor_f32(&sizes.in[i])[k] = fabsf(tensor_f32(&a->in[i])[k]);
    }
    for (int i = 0; i < 2; i++)
        if (a->out[i].data) sizes.out[i] = tensor_like(&b->heap, &a->out[i]);
    host_reference_kernels[op](&sizes);
    check(b, op, a, (double)(terms + 2) * 0x1p-24, &sizes);
}

#endif
