/* This file is linked if nccl.h was not found; it refuses requests for NCCL. */
#include "allreduce/cuda/nccl.h"

#include <stdio.h>

#include "base/advice.h"
#include "allreduce/cuda/executor.h"
#include "base/error.h"

const struct executor_ops cuda_nccl_ops = {.name = "nccl"};

int cuda_nccl_check(const struct device *device, int a, int b) {
    (void)a, (void)b;
    return fail(ERR_USAGE,
                "allreduce nccl on %s: this program was built without its header, nccl.h: build it "
                "where that is installed, or " ADVICE_AUTO,
                device_name(device));
}

void cuda_nccl_describe(char *text, size_t bytes) {
    snprintf(text, bytes, "NCCL: not built in");
}
