/* The loader supplies batches in the order of the epoch. Worker threads prepare them ahead, in
 * memory that a device can copy from.
 *
 * Bytes become float32 as in torchvision: byte / 255, and then (x - mean) / std if requested. Float
 * data are not scaled. One thread, the consumer, calls all of these functions; the loader starts
 * its workers itself. Steps count from 0 within an epoch.
 *
 *     loader_init(&loader, &config);
 *     for each epoch: loader_start_epoch(loader, epoch, 0);
 *                     while (!(code = loader_next(loader, &batch)) && batch) {
 *                         ... start the copies of batch->pixels, and when they are done:
 *                         loader_release(loader, batch);
 *                     }
 *     loader_free(loader);                      also in the middle of an epoch */
#ifndef DATA_LOADER_H
#define DATA_LOADER_H

#include <stddef.h>
#include <stdint.h>

#include "data/batch.h"
#include "data/dataset.h"
#include "data/sampler.h"

/* The most workers, the number of batches in memory beyond one per worker, and the most channels
 * with separate scaling. */
enum { LOADER_WORKERS = 64, LOADER_SPARE = 3, LOADER_CHANNELS = 3 };

struct loader_config {
    /* It must outlive the loader. Batches from an outline (dataset_outline) have segments but no
     * data, so their addresses must not be read. */
    const struct dataset *set;
    struct split split;
    int batch_size; /* B, samples in the global batch; at least split.devices */
    int shuffle;    /* enum order_shuffle */
    uint64_t seed;
    enum order_end end; /* ORDER_CUT (--drop-last) also leaves out a short last batch */
    /* The devices whose samples are loaded: a DDP rank's own, or with DP all of them. */
    int first_device, device_count;
    int workers; /* 0: loader_next prepares each batch itself */
    /* For bytes. stds[1] 0: the first two serve all channels; stds[0] 0: pixels stay between 0 and
     * 1. */
    float means[LOADER_CHANNELS], stds[LOADER_CHANNELS];
    int of_program;   /* 1: errors name the options of duet.h, not the command's flags */
    double timeout_s; /* how long to wait for a worker, in seconds; 0: 300 */
    /* Called repeatedly during a wait. A code other than OK, with its message, ends the wait. NULL:
     * nothing interrupts it. */
    int (*interrupted)(void *interrupt_context);
    void *interrupt_context;
    /* Allocate and release staging memory, aligned to at least 64 bytes. The consumer's thread
     * calls them, in loader_init and loader_free. A device passes functions for its pinned memory.
     * Both NULL: ordinary host memory. */
    int (*alloc)(void *context, void **out, size_t bytes);
    void (*release)(void *context, void *memory);
    void *context;
};

struct loader;

/* Allocates the memory of all batches and starts the workers. ERR_USAGE: a number is out of range,
 * the batch has fewer samples than there are devices, or ORDER_CUT leaves no batch. After an error
 * *out is NULL. */
int loader_init(struct loader **out, const struct loader_config *config);

int loader_steps(const struct loader *l);      /* batches per epoch */
int loader_duplicates(const struct loader *l); /* samples that an epoch repeats as padding */
/* The number of samples in the global batches first .. first + count - 1 of an epoch. Batches past
 * its end have none. */
int loader_samples(const struct loader *l, int first, int count);
/* The number of labels of these samples in the current epoch, on all devices together, without
 * those equal to `ignored` - 1 (0: counts all). An outline counts all. */
int64_t loader_labels(const struct loader *l, int first, int count, int ignored);
/* Samples of the largest global batch: batch_size, or all of an epoch if those are fewer. */
int loader_largest_batch(const struct loader *l);

/* Begins an epoch at step first_step. Batches already prepared for another epoch are discarded. */
int loader_start_epoch(struct loader *l, int epoch, int first_step);

/* Stores the next batch in *out, or NULL after the last one. The caller holds the batch until
 * loader_release, and may hold workers + LOADER_SPARE batches at once; one more is ERR_FAILED.
 * ERR_TIMEOUT: no worker delivered the batch in time. It can also return the code of `interrupted`,
 * or that of the data set's function, which it repeats until the next loader_start_epoch. */
int loader_next(struct loader *l, struct batch **out);
/* Like loader_next, but *out is NULL also if no worker has prepared the batch yet. */
int loader_try(struct loader *l, struct batch **out);
void loader_release(struct loader *l, struct batch *batch); /* takes NULL */

/* Stops the workers, each after the batch that it is preparing, and frees everything, including
 * batches that are held. Takes NULL. */
void loader_free(struct loader *l);

#endif
