/* A data set on a device: the bytes of all pictures and labels, uploaded once. A batch is then
 * made there, out of an index of 4 bytes a sample (loader_config.indices_only gives it), instead
 * of travelling as floats each step:
 *
 *     device_dataset_init(&resident, device, set);
 *     each step: the batch's samples go to `index` on the device,
 *                device_dataset_gather(&resident, stream, &index, mean, std, &x, &labels);
 *     device_dataset_free(&resident); */
#ifndef DATA_DEVICE_DATASET_H
#define DATA_DEVICE_DATASET_H

#include "data/dataset.h"
#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* bytes that travel at a time; two pieces of staging memory, in turn */
enum { DATASET_PIECE = 4 << 20 };

struct device_dataset {
    struct device *device;
    struct tensor images; /* U8 (count, 1, rows, cols); MEM_DATASET, as the next */
    struct tensor labels; /* U8 (count) */
};

/* Device memory that a set takes, to the byte that the ledger says. */
uint64_t device_dataset_bytes(const struct dataset *set);

/* Uploads on the compute stream and waits for it: the set itself is not needed afterwards.
 * ERR_MEMORY: no room on the device, or no pinned memory. On error nothing is held, but for what
 * a device that is stuck may still touch. */
int device_dataset_init(struct device_dataset *d, struct device *device, const struct dataset *set);
/* NULL and zeroed are fine; no queued work may use it */
void device_dataset_free(struct device_dataset *d);

/* Enqueues x (N, 1, rows, cols) F32 and x_labels (N) I32 from index (N) I32, all in the device's
 * memory: one launch of OP_GATHER_SAMPLES. std 0: pixels stay in 0..1. An index outside of the
 * set: op.h. */
int device_dataset_gather(const struct device_dataset *d, struct stream *stream,
                          const struct tensor *index, float mean, float std, const struct tensor *x,
                          const struct tensor *x_labels);

#ifdef __cplusplus
}
#endif
#endif
