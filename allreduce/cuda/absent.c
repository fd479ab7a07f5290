/* This file is linked if the CUDA files are not; it has no executors for GPUs (executor.h). */
#include "allreduce/executor.h"

const struct executor_kind *const cuda_executors = NULL;
