/* A data set that resides on a device: all samples and labels are uploaded once, as they are: bytes
 * or numbers. An epoch then sends only its order, 4 bytes per sample instead of 3136 for the floats
 * of a 28 x 28 picture, and a kernel makes each batch on the device:
 *
 *     device_dataset_init(&resident, device, set);
 *     for each epoch: copy its order (loader_order) to the device
 *     for each step:  write the step block, whose first is where in the order the batch begins
 *                     device_dataset_gather(&resident, stream, &order, step, mean, std, &x,
 *                                           &labels);
 *     device_dataset_free(&resident); */
#ifndef DATA_DEVICE_DATASET_H
#define DATA_DEVICE_DATASET_H

#include "data/dataset.h"
#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The upload is copied in pieces of this many bytes. */
enum { DATASET_PIECE = 4 << 20 };

struct device_dataset {
    struct device *device;
    /* In device memory, cause MEM_DATASET: U8, with labels U8 (count); or F32, with labels I32
     * (count) or targets F32 (count, outputs) */
    struct tensor images; /* (count, C, H, W) */
    struct tensor labels;
};

/* The bytes of device memory that a set takes, exactly as the memory ledger counts them. */
uint64_t device_dataset_bytes(const struct dataset *set);

/* Uploads the set on the compute stream and waits for it; the set on the host is not needed
 * afterwards. ERR_MEMORY: the device is full, or there is no pinned memory. After an error nothing
 * is held, except memory that a stuck device may still use. */
int device_dataset_init(struct device_dataset *d, struct device *device, const struct dataset *set);
/* Takes NULL and a zeroed struct. No work that uses the set may still be queued. */
void device_dataset_free(struct device_dataset *d);

/* Enqueues the launch of OP_GATHER_SAMPLES, or of numbers two of OP_GATHER_ROWS. From index, I32,
 * it makes x (N, C, H, W) F32 and x_labels: I32 (N), or the targets F32 (N, outputs). All of them
 * lie in the memory of the device. step NULL: index has N elements; else N or more, of which those
 * from step->first on are taken. Bytes become byte / 255, and then (x - mean) / std unless std is
 * 0. device/op.h says what an index outside the set gives. */
int device_dataset_gather(const struct device_dataset *d, struct stream *stream,
                          const struct tensor *index, const struct step_block *step, float mean,
                          float std, const struct tensor *x, const struct tensor *x_labels);

#ifdef __cplusplus
}
#endif
#endif
