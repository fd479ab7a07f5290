/* Copies a loader's batches to a device ahead of the program, like pin_memory=True and .to(device,
 * non_blocking=True).
 *
 * The device has three slots for a batch. While the program's kernels read one, the copy stream
 * fills the others with the next two batches, from the loader's pinned memory:
 *
 *     compute stream   ... step k, slot 0 ...| step k+1, slot 1 ...| step k+2, slot 2 ...
 *     copy stream      k+1 -> slot 1, k+2 -> slot 2,  k+3 -> slot 0,       k+4 -> slot 1
 *
 * Two events of each slot keep the streams in order. The compute stream waits for `loaded`,
 * recorded after the copy, before the program gets the batch. The next copy into the slot waits
 * for `used`, recorded when the program requests the next batch. The host waits only for copies. */
#ifndef DATA_UPLOADS_H
#define DATA_UPLOADS_H

#include "data/loader.h"
#include "data/program_dataset.h"
#include "nn/tensor.h"

struct uploads;

/* Allocates slots for batches of at most `samples` samples of this set on the device, which is
 * borrowed. After a failure *out is NULL. */
int uploads_new(struct uploads **out, struct device *device, const duet_dataset *set, int samples);
/* Waits for both streams. NULL is fine. It does not release the loader's batches; free the loader
 * after this. */
void uploads_free(struct uploads *u);

/* Sets the alloc, release and context with which the loader's batches can be copied. */
void uploads_staging(struct device *device, struct loader_config *config);

/* Gets the next batch of the loader's epoch. Its tensors *samples and *answers belong to the slot.
 * All three are valid until the next call. *batch is NULL after the last batch. */
int uploads_next(struct uploads *u, struct loader *loader, struct batch **batch,
                 duet_tensor **samples, duet_tensor **answers);

/* Returns all batches to the loader, before another epoch. */
int uploads_drop(struct uploads *u, struct loader *loader);

#endif
