/* Replaces scatter_gather/cuda/reduce.c in a build without CUDA, which never opens a GPU. */
#include "scatter_gather/reduce_executor.h"

const struct reduce_executor *const cuda_reduce_executor = NULL;
