/* Data that the host writes to device memory for the spin kernel: a rank's view of all ranks, and
 * plans. */
#ifndef ALLREDUCE_CUDA_SPIN_MEMORY_H
#define ALLREDUCE_CUDA_SPIN_MEMORY_H

#include "allreduce/cuda/spin.h"
#include "device/cuda/cuda.h"

/* Bytes of pinned memory through which all of it is brought over: `staging` below. */
enum { SPIN_STAGING = 65536 };

/* Device memory that the plan takes. */
size_t spin_plan_bytes(const struct plan *plan);

/* Write to device memory; complete when they return. */
int spin_write_plan(struct cuda_device *device, void *staging, char *memory,
                    const struct plan *plan);
int spin_write_rank(struct cuda_device *device, void *staging, struct spin_rank *memory,
                    const struct spin_rank *rank);

/* The record on a page as text for an error: "ring, step 7 of its plan: slice 12, seen 11,
 * channel 3". */
void spin_describe(const struct spin_page *page, char *text, size_t text_bytes);

#endif
