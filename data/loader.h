/* The loader: batches in the epoch's order, prepared ahead by worker threads in memory a device
 * can copy from.
 *
 * Pixels become float32 as torchvision does it: byte / 255, then (x - mean) / std where asked
 * for. Where the data set lies on the device (device_dataset.h) a batch is no more than its
 * samples' numbers. One thread (the consumer) calls these functions; workers are inside. Steps
 * count from 0 within an epoch.
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

#ifdef __cplusplus
extern "C" {
#endif

/* most workers; batches in flight beyond one a worker */
enum { LOADER_WORKERS = 64, LOADER_SPARE = 2 };

struct loader_config {
    const struct dataset *set; /* must outlive the loader */
    struct split split;
    int batch_size; /* B, global: at least split.devices */
    int shuffle;
    uint64_t seed;
    enum order_end end; /* ORDER_CUT: --drop-last, a short last batch is left out as well */
    /* whose shares are loaded: one rank its own, DP's device 0 all */
    int first_device, device_count;
    int workers;     /* 0: batches are made in loader_next */
    float mean, std; /* std 0: pixels stay in 0..1 */
    /* 1: batches are lists of samples, without pixels: the set lies on the device */
    int indices_only;
    double timeout_s; /* deadline of a wait for a worker; 0: 300 */
    /* asked while it waits: OK, or the code (with its text) that ends the */
    int (*interrupted)(void *interrupt_context);
    void *interrupt_context; /* wait; NULL: nobody is asked */
    /* Staging memory, at least 64-byte aligned; called by the consumer's thread in loader_init
     * and loader_free. Both NULL: plain host memory. A device passes its pinned memory. */
    int (*alloc)(void *context, void **out, size_t bytes);
    void (*release)(void *context, void *memory);
    void *context;
};

struct loaded_batch {
    int epoch, step;
    float *pixels;   /* (plan.n, 1, rows, cols) */
    int32_t *labels; /* (plan.n) */
    int32_t *
        samples; /* with indices_only, and then in place of the other two, which are NULL: data set indices,
                       * (plan.n) in the order of the rows; else NULL */
    struct batch_plan plan;
};

struct loader;

/* ERR_USAGE: a number out of range, a batch below the devices, no batch left by ORDER_CUT. On
 * error *out is NULL. */
int loader_init(struct loader **out, const struct loader_config *config);

int loader_steps(const struct loader *l);      /* batches of an epoch */
int loader_duplicates(const struct loader *l); /* samples an epoch repeats so that V divides it */

/* Begins an epoch at a step of it; what was prepared of another one is thrown away. */
int loader_start_epoch(struct loader *l, int epoch, int first_step);

/* The next batch, in order; *out = NULL after the last one. The batch is the caller's until
 * loader_release. At most workers + LOADER_SPARE may be held (ERR_FAILED past that).
 * ERR_TIMEOUT: no worker delivered; or what `interrupted` said. */
int loader_next(struct loader *l, struct loaded_batch **out);
void loader_release(struct loader *l, struct loaded_batch *batch); /* NULL is fine */

/* Stops the workers (each finishes its batch at most) and frees all, held batches too. NULL is
 * fine. */
void loader_free(struct loader *l);

#ifdef __cplusplus
}
#endif
#endif
