/* In place of scatter_gather/cuda/reduce.c where the build has no CUDA: no GPU is ever opened
 * there. */
#include "scatter_gather/reduce_executor.h"

const struct reduce_executor *const cuda_reduce_executor = NULL;
