/* What the GPUs of this machine are, and how much of their memory is in use, for scripts; one line
 * each:
 *
 *     gpu 0: NVIDIA H200 | sm_90, 132 multiprocessors, 143167 MiB, 528 MiB in use
 *     driver: for CUDA 13.0
 *     built: CUDA 13.0; ...
 *
 * With --hold it keeps its contexts until its parent ends, so that the driver does not start anew
 * for every program that comes after it. It does not hold GPUs that take one process at a time.
 *
 * The memory in use is that of all programs, this program's own context included. Where there is no
 * GPU it prints the reason, with exit status 2. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/error.h"
#include "device/device.h"
#include "doctor/cuda/gpu.h"

static int print_facts(void) {
    char text[256];
    int count = 0;
    CHECK(device_probe(DEVICE_CUDA, &count));
    for (int gpu = 0; gpu < count; gpu++) {
        struct gpu_facts facts;
        uint64_t available;
        CHECK(gpu_facts(gpu, &facts));
        CHECK(gpu_free_memory(gpu, &available));
        printf("gpu %d: %s | sm_%d%d, %d multiprocessors, %llu MiB, %llu MiB in use\n", gpu,
               facts.name, facts.major, facts.minor, facts.multiprocessors,
               (unsigned long long)(facts.memory >> 20),
               (unsigned long long)((facts.memory - available) >> 20));
    }
    CHECK(gpu_driver(text, sizeof text));
    printf("driver: %s\n", text);
    gpu_build(text, sizeof text);
    printf("built: %s\n", text);
    return OK;
}

static int any_exclusive(void) {
    struct gpu_facts facts;
    int count = 0, exclusive = 0;
    if (device_probe(DEVICE_CUDA, &count)) return 0;
    for (int gpu = 0; gpu < count; gpu++)
        exclusive |= !gpu_facts(gpu, &facts) && facts.exclusive;
    return exclusive;
}

int main(int argc, char **argv) {
    int hold = argc > 1 && !strcmp(argv[1], "--hold");
    if (hold) prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (hold && any_exclusive()) return 0;
    int code = print_facts();
    fflush(stdout);
    while (hold && !code)
        pause();
    if (code) fprintf(stderr, "gpu_facts: %s\n", error_message());
    return error_exit_status(code);
}
