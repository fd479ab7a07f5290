/* Hardware queues, for a CUDA_DEVICE_MAX_CONNECTIONS smaller than the number of streams. The items
 * of all streams in a queue start in the order in which they were enqueued. An item that cannot
 * start yet, or that waits for a flag or an event, blocks all items after it, even those of other
 * streams.
 *
 * By default they are off, because such a queue orders streams that nothing else orders, and would
 * hide a missing wait from ThreadSanitizer. */
#include "tests/stand_ins/cuda_emulation/emulation.h"

enum { QUEUES = 8 };

static struct queue { atomic_uint taken, served; } queues[GPU_LIMIT][QUEUES];

struct queue *queue_of(struct gpu *gpu) {
    if (!emulated.queues) return NULL;
    return &queues[gpu - emulated.gpus][atomic_fetch_add(&gpu->streams, 1) % emulated.queues];
}

void queue_take(struct queue *queue, struct item *item) {
    item->ticket = atomic_fetch_add(&queue->taken, 1);
}

void queue_wait(struct queue *queue, const struct item *item) {
    for (unsigned now; (now = atomic_load(&queue->served)) != item->ticket;)
        word_wait(&queue->served, now, 100000);
}

void queue_leave(struct queue *queue) {
    atomic_fetch_add(&queue->served, 1);
    word_wake(&queue->served);
}
