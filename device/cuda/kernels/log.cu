/* The kernels of log.h on the GPU, and their launches: the loss of a segment and the hash of a
 * tensor. Both are launched for an empty segment or tensor too, since its loss or hash, 0, has to
 * be written. */
#include "device/cuda/kernels/log.h"
#include "device/cuda/kernels/launch.h"

enum { ZERO_THREADS = 32 }; /* one warp, of which one thread writes */

BLOCK_KERNEL(loss_sum, struct loss_sum, struct loss_sum_shared, LOG_THREADS)
BLOCK_KERNEL(hash, struct hash, struct hash_shared, LOG_THREADS)
THREAD_KERNEL(hash_zero, struct hash, ZERO_THREADS)

const void *log_kernel(int i) {
    const void *const kernels[] = {DUET_KERNEL(loss_sum), DUET_KERNEL(hash),
                                   DUET_KERNEL(hash_zero)};
    return i < 3 ? kernels[i] : NULL;
}

int enqueue_log(struct cuda_stream *stream, enum op op, const struct op_args *args) {
    if (op == OP_LOSS_SUM) {
        struct loss_sum s = loss_sum_of(args);
        enqueue(stream, DUET_KERNEL(loss_sum), 1, LOG_THREADS, &s);
        return OK;
    }
    struct hash h = hash_of(args);
    uint32_t blocks = hash_blocks(h.count);
    if (blocks > 1) enqueue(stream, DUET_KERNEL(hash_zero), 1, ZERO_THREADS, &h);
    enqueue(stream, DUET_KERNEL(hash), blocks, LOG_THREADS, &h);
    return OK;
}
