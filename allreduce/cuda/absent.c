/* Linked if the CUDA files are not: there are no executors for GPUs (executor.h). */
#include "allreduce/executor.h"

const struct executor_kind *const cuda_executors = NULL;
