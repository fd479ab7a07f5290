/* The executors of GPUs, and the order of the files in this folder. A file calls those below its
 * own row, never those above. (Executors include this header only to declare their own table.)
 *
 *     executor.c                       chooses the executor of a job, the same on all ranks
 *     trial.h, trial.c                 the ranks test the paths between their GPUs
 *
 *     stepwise.c                       ranks share a GPU: a plan becomes stream operations
 *     spin_executor.c                  a GPU for each rank: one kernel runs the whole plan
 *     staged.c                         GPUs that cannot reach each other: the plan runs on the host
 *     nccl.c                           NCCL's own allreduce; nccl_library.c loads the library
 *
 *     awaited.h, awaited.c             finds the peer's flag that a call waits for
 *     region.h, region.c               host memory that the ranks share, for staged.c
 *     spin_memory.h, spin_memory.c     writes plans and ranks to the spin kernel's memory
 *
 *     under_way.h, under_way.c         the calls in flight on a rank's stream, for all executors
 *     upload.h, upload.c               writes device memory outside the calls' stream
 *     spin_kernel.h, spin_kernel.cu    launches the spin kernel
 *
 *     spin.h  step.h  flag.h           source of the spin kernel; a step as a sum; loads and
 *                                      stores of flags
 *
 * A build without CUDA links absent.c in place of all of them. A build without nccl.h links
 * nccl_absent.c in place of nccl.c and nccl_library.c. */
#ifndef ALLREDUCE_CUDA_EXECUTOR_H
#define ALLREDUCE_CUDA_EXECUTOR_H

#include "allreduce/executor.h"

extern const struct executor_ops cuda_stepwise_ops, cuda_spin_ops, cuda_staged_ops, cuda_nccl_ops;

#endif
