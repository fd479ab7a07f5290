/* The kernels of elementwise.h on the GPU, and their launches. Memory bandwidth limits them, so the
 * grid fills the GPU, a thread takes 16 bytes at a time, and the launch bounds allow full
 * occupancy. */
#include "device/cuda/kernels/elementwise.h"
#include "device/cuda/kernels/launch.h"

/* Cases with separate kernels: dropout of planes, which takes twice the registers, and some kinds
 * of activation. */
enum { OF_PLANES = OP_COUNT, OF_KIND };
#define EACH_KERNEL(ROW)                                   \
    ROW(OP_ADD_FORWARD, add_forward)                       \
    ROW(OP_SUBTRACT_FORWARD, subtract_forward)             \
    ROW(OP_MULTIPLY_FORWARD, multiply_forward)             \
    ROW(OP_WHERE, where)                                   \
    ROW(OP_ACTIVATION_FORWARD, activation_forward)         \
    ROW(OP_ACTIVATION_BACKWARD, activation_backward)       \
    ROW(OP_DROPOUT, dropout)                               \
    ROW(OP_RANDOM, random_numbers)                         \
    ROW(OP_FILL, fill)                                     \
    ROW(OP_CLIP, clip)                                     \
    ROW(OP_SGD, sgd)                                       \
    ROW(OP_ADADELTA, adadelta)                             \
    ROW(OP_ADAM, adam)                                     \
    ROW(OF_PLANES, dropout2d)                              \
    ROW(OF_KIND + 2 * ACTIVATION_RELU, relu_forward)       \
    ROW(OF_KIND + 2 * ACTIVATION_RELU + 1, relu_backward)  \
    ROW(OF_KIND + 2 * ACTIVATION_TANH, tanh_forward)       \
    ROW(OF_KIND + 2 * ACTIVATION_TANH + 1, tanh_backward)  \
    ROW(OF_KIND + 2 * ACTIVATION_SIGMOID, sigmoid_forward) \
    ROW(OF_KIND + 2 * ACTIVATION_SIGMOID + 1, sigmoid_backward)

#define KERNEL(OP, NAME) THREAD_KERNEL(NAME, struct elementwise, SIMPLE_THREADS)
EACH_KERNEL(KERNEL)

static const struct op_kernel kernels[] = {EACH_KERNEL(OP_KERNEL_ROW)};

FAMILY_KERNELS(elementwise)

static int key_of(enum op op, const struct elementwise *e) {
    const int back = op == OP_ACTIVATION_BACKWARD;
    if (e->by_plane.d) return OF_PLANES;
    return (back || op == OP_ACTIVATION_FORWARD) && activation_reads_result(e->activation.kind)
               ? OF_KIND + 2 * e->activation.kind + back
               : op;
}

int enqueue_elementwise(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    struct elementwise e = elementwise_of(op, args);
    enqueue(stream, kernel_of(kernels, key_of(op, &e)), grid_for(e.count, 4 * SIMPLE_THREADS),
            SIMPLE_THREADS, &e);
    return OK;
}
