/* Writes data for the spin kernel from the host to device memory: a rank's view of all ranks, and
 * plans. */
#ifndef ALLREDUCE_CUDA_SPIN_MEMORY_H
#define ALLREDUCE_CUDA_SPIN_MEMORY_H

#include "allreduce/cuda/spin.h"
#include "device/cuda/cuda.h"

/* Bytes of pinned memory through which all these data are copied: `staging` below. */
enum { SPIN_STAGING = 65536 };

/* Device memory that the plan takes. */
size_t spin_plan_bytes(const struct plan *plan);

/* Write to device memory, and return when the write is complete. */
int spin_write_plan(struct cuda_device *device, void *staging, char *memory,
                    const struct plan *plan);
int spin_write_rank(struct cuda_device *device, void *staging, struct spin_rank *memory,
                    const struct spin_rank *rank);

/* Writes the record on a page for an error message: "ring, step 7 of its plan: slice 12, seen 11,
 * channel 3". */
void spin_describe(const struct spin_page *page, char *text, size_t text_bytes);

#endif
