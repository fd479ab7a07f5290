/* What the GPUs of this machine are, and how much of their memory is in use, for scripts; one line
 * each:
 *
 *     gpu 0: NVIDIA H200 | sm_90, 132 multiprocessors, 143167 MiB, 528 MiB in use
 *     driver: for CUDA 13.0
 *     built: CUDA 13.0; ...
 *
 * The memory in use is that of all programs, this program's own context included. Where there is no
 * GPU it prints the reason, with exit status 2. */
#include <stdio.h>

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

int main(void) {
    int code = print_facts();
    if (code) fprintf(stderr, "gpu_facts: %s\n", error_message());
    return error_exit_status(code);
}
