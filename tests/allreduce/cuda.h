/* What the tests of allreduce on GPUs share: how many GPUs there are, and how many they want to
 * see. */
#ifndef TESTS_TEST_ALLREDUCE_CUDA_H
#define TESTS_TEST_ALLREDUCE_CUDA_H

#include "tests/allreduce/cell.h"

/* Where GPUs are emulated there are as many as a test wants. Before anything of CUDA is called. */
static inline void set_gpus(int gpus) {
    char text[16];
    snprintf(text, sizeof text, "%d", gpus);
    setenv("EMULATED_GPUS", text, 1);
}

/* Skips the test where fewer GPUs are found. Asked by a process of its own: ranks are forked,
 * and what has called CUDA cannot be. */
static inline void need_gpus(int gpus) {
    int status = 1, count = 0;
    set_gpus(gpus);
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (pid == 0) _exit(device_probe(DEVICE_CUDA, &count) == OK && count >= gpus ? 0 : 1);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    if (status) cr_skip_test("%d GPU%s needed", gpus, gpus > 1 ? "s" : "");
}

/* Of a job of n ranks on the GPUs that this process sees. */
static inline const char *expected_executor(int n) {
    int gpus = 0;
    if (device_probe(DEVICE_CUDA, &gpus)) return "none";
    return n > 1 && gpus >= n ? "spin" : "stepwise";
}

#endif
