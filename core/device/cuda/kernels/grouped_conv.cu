/* The kernels of grouped_conv.h on the GPU, and their launches. */
#include "device/cuda/kernels/grouped_conv.h"
#include "device/cuda/kernels/launch.h"

THREAD_KERNEL(grouped_conv_forward, struct grouped_conv, SIMPLE_THREADS)
THREAD_KERNEL(grouped_conv_backward_data, struct grouped_conv, SIMPLE_THREADS)
BLOCK_KERNEL(grouped_conv_backward_weight, struct grouped_conv, struct grouped_shared,
             GROUPED_THREADS)

static const struct op_kernel kernels[] = {
    {OP_CONV2D_FORWARD, DUET_KERNEL(grouped_conv_forward)},
    {OP_CONV2D_BACKWARD_DATA, DUET_KERNEL(grouped_conv_backward_data)},
    {OP_CONV2D_BACKWARD_WEIGHT, DUET_KERNEL(grouped_conv_backward_weight)},
};

FAMILY_KERNELS(grouped_conv)

int enqueue_grouped_conv(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    struct grouped_conv c = grouped_conv_of(op, args);
    if (op == OP_CONV2D_BACKWARD_WEIGHT)
        enqueue(stream, kernel_of(kernels, op), grid_for((size_t)c.count + (size_t)c.outputs, 1),
                GROUPED_THREADS, &c);
    else
        enqueue_each(stream, kernel_of(kernels, op), c.count, &c);
    return OK;
}
