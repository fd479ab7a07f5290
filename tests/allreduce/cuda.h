/* What the tests of allreduce on GPUs share: how many GPUs a test needs, and which executor runs a
 * job on them. */
#ifndef TESTS_ALLREDUCE_CUDA_H
#define TESTS_ALLREDUCE_CUDA_H

#include "tests/allreduce/cell.h"

/* Sets the number of emulated GPUs; a real machine has its own. Called before anything of CUDA. */
static inline void set_gpus(int gpus) {
    char text[16];
    snprintf(text, sizeof text, "%d", gpus);
    setenv("EMULATED_GPUS", text, 1);
}

/* Which emulated GPUs reach each other's memory: "0", "1", "pairs", "chain", as the top of
 * tests/stand_ins/cuda_emulation/emulation.h says. Called before anything of CUDA. */
static inline void set_peers(const char *which) {
    setenv("EMULATED_PEER", which, 1);
}

/* For tests of what only emulated GPUs can be told to do. */
static inline void need_emulated(void) {
#ifndef CUDA_EMULATION
    cr_skip_test("the emulated runtime is needed: make EMULATION=1");
#endif
}

/* Skips the test where fewer GPUs are found. A process of its own asks, because ranks are forked,
 * and a process that has called CUDA cannot be. */
static inline void need_gpus(int gpus) {
    int status = 1, count = 0;
    set_gpus(gpus);
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (pid == 0) _exit(device_probe(DEVICE_CUDA, &count) == OK && count >= gpus ? 0 : 1);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    if (status) cr_skip_test("%d GPU%s needed", gpus, gpus > 1 ? "s" : "");
}

/* The executor of a job of n ranks on the GPUs that this process sees. */
static inline const char *expected_executor(int n) {
    int gpus = 0;
    const char *peers = getenv("EMULATED_PEER");
    if (device_probe(DEVICE_CUDA, &gpus)) return "none";
    if (n > 1 && gpus > 1 && peers && strcmp(peers, "1")) return "staged"; /* of n > 2: any */
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
