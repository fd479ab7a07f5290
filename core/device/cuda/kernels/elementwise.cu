/* The kernels of elementwise.h on the GPU, and their launches. They move bytes: the grid is
 * filled, a thread takes 16 bytes at a time, and the launch bounds leave registers for full
 * occupancy. */
#include "device/cuda/kernels/elementwise.h"
#include "device/cuda/kernels/launch.h"

THREAD_KERNEL(relu_forward, struct elementwise, SIMPLE_THREADS)
THREAD_KERNEL(relu_backward, struct elementwise, SIMPLE_THREADS)
THREAD_KERNEL(add_forward, struct elementwise, SIMPLE_THREADS)
THREAD_KERNEL(subtract_forward, struct elementwise, SIMPLE_THREADS)
THREAD_KERNEL(multiply_forward, struct elementwise, SIMPLE_THREADS)
THREAD_KERNEL(where, struct elementwise, SIMPLE_THREADS)
THREAD_KERNEL(tanh_forward, struct elementwise, SIMPLE_THREADS)
THREAD_KERNEL(tanh_backward, struct elementwise, SIMPLE_THREADS)
THREAD_KERNEL(sigmoid_forward, struct elementwise, SIMPLE_THREADS)
THREAD_KERNEL(sigmoid_backward, struct elementwise, SIMPLE_THREADS)
THREAD_KERNEL(activation_forward, struct elementwise, SIMPLE_THREADS)
THREAD_KERNEL(activation_backward, struct elementwise, SIMPLE_THREADS)
THREAD_KERNEL(dropout, struct elementwise, SIMPLE_THREADS)
THREAD_KERNEL(dropout2d, struct elementwise, SIMPLE_THREADS)
THREAD_KERNEL(random_numbers, struct elementwise, SIMPLE_THREADS)
THREAD_KERNEL(fill, struct elementwise, SIMPLE_THREADS)
THREAD_KERNEL(scale, struct elementwise, SIMPLE_THREADS)
THREAD_KERNEL(clip, struct elementwise, SIMPLE_THREADS)
THREAD_KERNEL(sgd, struct elementwise, SIMPLE_THREADS)
THREAD_KERNEL(adadelta, struct elementwise, SIMPLE_THREADS)
THREAD_KERNEL(adam, struct elementwise, SIMPLE_THREADS)

static const struct op_kernel kernels[] = {
    {OP_RELU_FORWARD, DUET_KERNEL(relu_forward)},
    {OP_RELU_BACKWARD, DUET_KERNEL(relu_backward)},
    {OP_ADD_FORWARD, DUET_KERNEL(add_forward)},
    {OP_SUBTRACT_FORWARD, DUET_KERNEL(subtract_forward)},
    {OP_MULTIPLY_FORWARD, DUET_KERNEL(multiply_forward)},
    {OP_WHERE, DUET_KERNEL(where)},
    {OP_TANH_FORWARD, DUET_KERNEL(tanh_forward)},
    {OP_TANH_BACKWARD, DUET_KERNEL(tanh_backward)},
    {OP_SIGMOID_FORWARD, DUET_KERNEL(sigmoid_forward)},
    {OP_SIGMOID_BACKWARD, DUET_KERNEL(sigmoid_backward)},
    {OP_ACTIVATION_FORWARD, DUET_KERNEL(activation_forward)},
    {OP_ACTIVATION_BACKWARD, DUET_KERNEL(activation_backward)},
    {OP_DROPOUT, DUET_KERNEL(dropout)},
    {OP_RANDOM, DUET_KERNEL(random_numbers)},
    {OP_FILL, DUET_KERNEL(fill)},
    {OP_SCALE, DUET_KERNEL(scale)},
    {OP_CLIP, DUET_KERNEL(clip)},
    {OP_SGD, DUET_KERNEL(sgd)},
    {OP_ADADELTA, DUET_KERNEL(adadelta)},
    {OP_ADAM, DUET_KERNEL(adam)},
    {OP_COUNT, DUET_KERNEL(dropout2d)}, /* OP_DROPOUT of planes: it takes twice the registers */
};

const void *elementwise_kernel(int i) {
    return kernel_at(kernels, i);
}

int enqueue_elementwise(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    struct elementwise e = elementwise_of(op, args);
    if (e.by_plane.d && e.count >= (size_t)1 << 31)
        return fail(ERR_FAILED, "%s: more than 2^31 elements: give a smaller batch", op_name(op));
    enqueue(stream, kernel_of(kernels, e.by_plane.d ? OP_COUNT : op),
            grid_for(e.count, 4 * SIMPLE_THREADS), SIMPLE_THREADS, &e);
    return OK;
}
