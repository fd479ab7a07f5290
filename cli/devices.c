/* duet devices: what there is to train on: emulated devices and their memory by default, GPUs
 * and how a job's devices share them, and the libraries that a GPU's products may use. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "allreduce/allreduce.h"
#include "base/error.h"
#include "cli/commands.h"
#include "device/device.h"
#include "doctor/cuda/gpu.h"

static void list_emulated(void) {
    static const char *const isas[] = {"avx512", "avx2", "generic"};
    const char *isa = "generic";
    for (int i = 2; i >= 0; i--)
        if (host_fast_kernel(OP_CONV2D_FORWARD, isas[i])) isa = isas[i];
    printf("cpu     emulated devices, each with a core's arithmetic (%s kernels) and memory of its "
           "own; 1 to "
           "%d of them\n",
           isa, MAX_DEVICES);
    printf("        %ld cores here: more devices than cores share them\n",
           sysconf(_SC_NPROCESSORS_ONLN));
    for (int n = 1; n <= 8; n *= 2) {
        char text[32];
        printf("        %d device%s: %s of memory each by default\n", n, n > 1 ? "s" : "",
               format_bytes(device_default_memory(n), text, sizeof text));
    }
}

static void list_gpu(int gpu) {
    struct gpu_facts facts;
    char memory[32];
    if (gpu_facts(gpu, &facts)) {
        printf("        %s\n", error_message());
        return;
    }
    printf("        GPU %d: %s, compute capability %d.%d, %s%s\n", gpu, facts.name, facts.major,
           facts.minor, format_bytes(facts.memory, memory, sizeof memory),
           facts.exclusive ? "; takes one process at a time: ranks cannot share it" : "");
}

static void list_gpus(void) {
    int gpus;
    char libraries[1100];
    if (device_probe(DEVICE_CUDA, &gpus)) {
        printf("cuda    none: %s\n", error_message());
        return;
    }
    printf("cuda    %d GPU%s; duet doctor checks %s\n", gpus, gpus > 1 ? "s" : "",
           gpus > 1 ? "them" : "it");
    for (int gpu = 0; gpu < gpus; gpu++)
        list_gpu(gpu);
    if (gpus > 1)
        printf("        device i of a job is on GPU i mod %d: above %d devices share GPUs, and "
               "their memory\n",
               gpus, gpus);
    else
        printf("        all devices of a job share it, and its memory\n");
    device_libraries(DEVICE_CUDA, libraries, sizeof libraries);
    printf("        libraries, for --cuda-math library: %s\n", libraries);
    allreduce_libraries(DEVICE_CUDA, libraries, sizeof libraries);
    printf("        for --allreduce nccl: %s\n", libraries);
}

int command_devices(int argc, char **argv) {
    if (argc && (!strcmp(argv[0], "--help") || !strcmp(argv[0], "-h")))
        return printf("usage: duet devices\nlists the devices that --device and --devices choose "
                      "from\n"),
               0;
    if (argc)
        return report_error(fail(ERR_USAGE, "unknown flag: %s: duet devices takes none", argv[0]));
    list_emulated();
    list_gpus();
    return 0;
}
