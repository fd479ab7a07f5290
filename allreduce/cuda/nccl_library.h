/* NCCL's functions, loaded at run time, since the library is never linked. Only builds that found
 * nccl.h use this file. */
#ifndef ALLREDUCE_CUDA_NCCL_LIBRARY_H
#define ALLREDUCE_CUDA_NCCL_LIBRARY_H

#include <nccl.h>

#include "allreduce/cuda/nccl.h"
#include "device/cuda/library.h"

// clang-format off
#define NCCL_FUNCTIONS(X)     \
    X(ncclGetVersion)         \
    X(ncclGetErrorString)     \
    X(ncclGetLastError)       \
    X(ncclGetUniqueId)        \
    X(ncclCommInitRankConfig) \
    X(ncclCommGetAsyncError)  \
    X(ncclCommFinalize)       \
    X(ncclCommDestroy)        \
    X(ncclCommAbort)          \
    X(ncclAllReduce)          \
    X(ncclAllGather)          \
    X(ncclReduceScatter)      \
    X(ncclBroadcast)
// clang-format on

struct nccl_table {
    NCCL_FUNCTIONS(LIBRARY_MEMBER)
};

/* Fills the table. *version is NCCL's own code, 22809 for 2.28.9. ERR_USAGE: the library is
 * missing, or its major version differs from that of the header at build time. */
int nccl_load(struct nccl_table *nccl, int *version);

#endif
