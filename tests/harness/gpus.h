/* How many GPUs a test needs, and how many emulated ones it gets. */
#ifndef TESTS_HARNESS_GPUS_H
#define TESTS_HARNESS_GPUS_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "device/device.h"
#include "tests/harness/harness.h"

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

/* For tests that need settings of emulated GPUs. */
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

#endif
