/* Shared by the tests of allreduce on GPUs: how many GPUs a test needs, and which executor runs a
 * job on them. */
#ifndef TESTS_ALLREDUCE_CUDA_H
#define TESTS_ALLREDUCE_CUDA_H

#include "tests/allreduce/cell.h"
#include "tests/harness/gpus.h"

/* The executor of a job of n ranks on the GPUs that this process sees. */
static inline const char *expected_executor(int n) {
    int gpus = 0;
    const char *peers = getenv("EMULATED_PEER");
    if (device_probe(DEVICE_CUDA, &gpus)) return "none";
    if (n > 1 && gpus > 1 && peers && strcmp(peers, "1")) return "staged"; /* of n > 2 ranks, any */
    return n > 1 && gpus >= n ? "spin" : "stepwise";
}

/* The buffer's elements from and to host memory; synced. */
static inline int put(struct rank *r, const float *host, float *device, size_t count) {
    struct stream *stream = device_comm(r->device);
    CHECK(copy_to_device(stream, device, host, count * sizeof(float)));
    return stream_sync(stream);
}

static inline int get(struct rank *r, float *host, const float *device, size_t count) {
    struct stream *stream = device_comm(r->device);
    CHECK(copy_to_host(stream, host, device, count * sizeof(float)));
    return stream_sync(stream);
}

#endif
