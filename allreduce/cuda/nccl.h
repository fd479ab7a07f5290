/* NCCL as one more way to run collectives (cuda_nccl_ops of executor.h). It is requested by name
 * ("nccl"). `auto` uses it only if GPUs cannot reach each other, for example on several machines,
 * and if its order of adding is allowed: with 2 ranks, or if no bits are promised (executor.c).
 *
 * If nccl.h was not found at build time, nccl_absent.c is linked, which refuses. */
#ifndef ALLREDUCE_CUDA_NCCL_H
#define ALLREDUCE_CUDA_NCCL_H

#include <stddef.h>

#include "device/device.h"

/* OK if NCCL can serve a job in which ranks a and b share a GPU (-1, -1: no two ranks do). Loads
 * the library. ERR_USAGE: it is missing, or its version refuses ranks on one GPU. The answer is the
 * same on all ranks of a machine. */
int cuda_nccl_check(const struct device *device, int a, int b);

/* "NCCL 2.28.9", or why there is none, into text. Needs no GPU. */
void cuda_nccl_describe(char *text, size_t bytes);

#endif
