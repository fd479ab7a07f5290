/* The kernels of log.h on the GPU, and their launches: the loss of a segment, the hash of a tensor
 * and sums of squares. The first two run even for an empty segment or tensor, since its loss or
 * hash, 0, must be written. */
#include "device/cuda/kernels/log.h"
#include "device/cuda/kernels/launch.h"

enum { ZERO_THREADS = 32 }; /* one warp, of which one thread writes */

BLOCK_KERNEL(loss_sum, struct loss_sum, struct loss_sum_shared, LOG_THREADS)
BLOCK_KERNEL(hash, struct hash, struct hash_shared, LOG_THREADS)
BLOCK_KERNEL(square_sums, struct square_sums, struct square_sums_shared, CLIP_LANES)
THREAD_KERNEL(hash_zero, struct hash, ZERO_THREADS)

const void *log_kernel(int i) {
    const void *const kernels[] = {DUET_KERNEL(loss_sum), DUET_KERNEL(hash), DUET_KERNEL(hash_zero),
                                   DUET_KERNEL(square_sums)};
    return i < 4 ? kernels[i] : NULL;
}

int enqueue_log(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    if (op == OP_LOSS_SUM) {
        struct loss_sum s = loss_sum_of(args);
        enqueue(stream, DUET_KERNEL(loss_sum), 1, LOG_THREADS, &s);
        return OK;
    }
    if (op == OP_SQUARE_SUMS) {
        struct square_sums s = square_sums_of(args);
        enqueue(stream, DUET_KERNEL(square_sums), grid_for((size_t)s.count, 1), CLIP_LANES, &s);
        return OK;
    }
    struct hash h = hash_of(args);
    uint32_t blocks = hash_blocks(h.count);
    if (blocks > 1) enqueue(stream, DUET_KERNEL(hash_zero), 1, ZERO_THREADS, &h);
    enqueue(stream, DUET_KERNEL(hash), blocks, LOG_THREADS, &h);
    return OK;
}
