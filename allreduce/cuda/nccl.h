/* Runs collectives with NCCL (cuda_nccl_ops of executor.h), requested by the name "nccl". `auto`
 * uses NCCL only if GPUs cannot reach each other, for example on several machines, and if its order
 * of adding is allowed: with 2 ranks, or if equal bits are not promised (executor.c).
 *
 * If nccl.h was not found at build time, nccl_absent.c is linked, which refuses NCCL. */
#ifndef ALLREDUCE_CUDA_NCCL_H
#define ALLREDUCE_CUDA_NCCL_H

#include <stddef.h>

#include "device/device.h"

/* Loads the library. OK if NCCL can serve a job in which ranks a and b share a GPU (-1, -1: no two
 * ranks do). ERR_USAGE: it is missing, or its version refuses two ranks on one GPU. The result is
 * the same on all ranks of a machine. */
int cuda_nccl_check(const struct device *device, int a, int b);

/* Writes "NCCL 2.28.9", or why NCCL is not available, to text. It needs no GPU. */
void cuda_nccl_describe(char *text, size_t bytes);

#endif
