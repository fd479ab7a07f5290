/* NCCL as one more way to run an allreduce, asked for by name ("nccl"), never taken by `auto`:
 * its sums have an order of its own over 3 or more ranks, and it is a peer to measure against.
 * Where nccl.h was not found cuda/nccl_absent.c is linked, which refuses. */
#ifndef ALLREDUCE_CUDA_NCCL_H
#define ALLREDUCE_CUDA_NCCL_H

#include "allreduce/executor.h"

extern const struct executor_ops cuda_nccl_ops;

/* Can NCCL serve these ranks? ERR_USAGE: it is not there, or of a version that refuses ranks on
 * one GPU. The same on all ranks of a machine. */
int cuda_nccl_check(const struct executor_question *question);

/* "NCCL 2.28.9" or why there is none, into text; needs no GPU. */
void cuda_nccl_describe(char *text, size_t bytes);

#endif
