/* The kernels of attention.h on the GPU, and their launches. */
#include "device/cuda/kernels/attention.h"
#include "device/cuda/kernels/launch.h"

BLOCK_KERNEL(attention_forward, struct attention, struct attention_shared, ATTENTION_THREADS)
BLOCK_KERNEL(attention_backward, struct attention, struct attention_shared, ATTENTION_THREADS)

static const struct op_kernel kernels[] = {
    {OP_ATTENTION_FORWARD, DUET_KERNEL(attention_forward)},
    {OP_ATTENTION_BACKWARD, DUET_KERNEL(attention_backward)},
};

FAMILY_KERNELS(attention)

int enqueue_attention(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    struct attention a = attention_of(op, args);
    size_t rows = a.batches * (a.queries + (op == OP_ATTENTION_BACKWARD ? a.keys : 0));
    enqueue(stream, kernel_of(kernels, op), grid_for(rows, 1), ATTENTION_THREADS, &a);
    return OK;
}
