/* Linear layers with cuBLAS, and the steps around the product: aligned operands, the bias, and its
 * gradient.
 *
 *     forward           aside <- x       y = product(x, w)     y -> its place    y += bias
 *     backward data     aside <- dy      dx = product(dy, w)   dx -> its place
 *     backward weight   aside <- x, dy   dw = product(x, dy)                     db: own kernel
 *
 * "aside" is memory at a multiple of 256 bytes, for operands at other addresses; in the common case
 * nothing is copied. It grows when an operand is larger than any before, which happens in the first
 * steps. The earlier, smaller memory stays allocated, because launches in flight may still use
 * it. */
#include <stdlib.h>

#include "device/cuda/kernels/launch.h"
#include "device/cuda/library.h"

static size_t rounded_up(size_t bytes) {
    return (bytes + CUDA_LIBRARY_ALIGN - 1) / CUDA_LIBRARY_ALIGN * CUDA_LIBRARY_ALIGN;
}

static int is_aligned(const void *p) {
    return (uintptr_t)p % CUDA_LIBRARY_ALIGN == 0;
}

static int make_room(struct cuda_stream *s, size_t bytes) {
    struct cuda_math *math = s->math;
    if (bytes <= math->aside_bytes) return OK;
    void *memory;
    size_t wanted = bytes > 2 * math->aside_bytes ? bytes : 2 * math->aside_bytes;
    CHECK(device_alloc(s->head.device, &memory, wanted, MEM_WORKSPACE));
    math->aside = memory;
    math->aside_bytes = wanted;
    return OK;
}

static int copy(struct cuda_stream *s, enum op op, void *to, const void *from, size_t bytes) {
    CUDA_STREAM_CHECK(s, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, s->stream),
                      op_name(op));
    return OK;
}

/* Moves the operands of the product aside if they are not aligned. The bias and its gradient need
 * no alignment: own kernels take any address. */
static int align(struct cuda_stream *s, enum op op, struct op_args *args) {
    struct tensor *operands[3] = {&args->in[0], &args->in[1], &args->out[0]};
    size_t bytes = 0;
    for (int i = 0; i < 3; i++)
        if (!is_aligned(operands[i]->data)) bytes += rounded_up(tensor_bytes(operands[i]));
    CHECK(make_room(s, bytes));
    char *at = s->math->aside;
    for (int i = 0; i < 3; i++) {
        struct tensor *t = operands[i];
        if (is_aligned(t->data)) continue;
        if (t != &args->out[0]) CHECK(copy(s, op, at, t->data, tensor_bytes(t)));
        t->data = at;
        at += rounded_up(tensor_bytes(t));
    }
    return OK;
}

static int is_linear(enum op op) {
    return op == OP_LINEAR_FORWARD || op == OP_LINEAR_BACKWARD_DATA ||
           op == OP_LINEAR_BACKWARD_WEIGHT;
}

int cuda_library_takes(const struct cuda_stream *s, enum op op) {
    return s->math && is_linear(op);
}

int cuda_library_enqueue(struct cuda_stream *s, enum op op, const struct op_args *args) {
    struct op_args aligned = *args;
    const struct tensor *result = &args->out[0];
    int samples = args->in[0].dims[0]; /* x or dy: dimension 0 is the batch */
    if (samples == 0) return enqueue_product(s, op, args);
    CHECK(align(s, op, &aligned));
    CHECK(cuda_blas_enqueue(s, op, &aligned));
    if (aligned.out[0].data != result->data)
        CHECK(copy(s, op, result->data, aligned.out[0].data, tensor_bytes(result)));
    if (op == OP_LINEAR_FORWARD) return enqueue_add_bias(s, result, &args->in[2]);
    if (op == OP_LINEAR_BACKWARD_WEIGHT) return enqueue_bias_gradient(s, op, args);
    return OK;
}

int cuda_math_open(struct cuda_stream *s) {
    s->math = NULL; /* NULL means Duet's own kernels */
    if (s->head.device->config.math == DEVICE_MATH_OWN) return OK;
    s->math = calloc(1, sizeof *s->math);
    if (!s->math) return fail(ERR_MEMORY, "out of host memory: cuBLAS of %s", s->head.device->name);
    return cuda_blas_open(&s->math->blas, s);
}

void cuda_math_close(struct cuda_stream *s) {
    if (!s->math) return;
    cuda_blas_close(s->math->blas);
    free(s->math);
    s->math = NULL;
}
