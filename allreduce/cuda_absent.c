/* Linked where the CUDA files are not: there are no executors for GPUs (executor.h). A device of that kind cannot be
 * opened then, so nobody asks for one. */
#include "allreduce/executor.h"

const struct executor_kind *const cuda_executors = NULL;
