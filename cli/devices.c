/* duet devices: what there is to train on, and how much memory an emulated device gets by default. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/commands.h"
#include "device/device.h"

static void print_libraries(void) {
    char text[1100];
    device_libraries(DEVICE_CUDA, text, sizeof text);
    printf("        libraries, for --cuda-math library: %s\n", text);
}

int command_devices(int argc, char **argv) {
    if (argc && (!strcmp(argv[0], "--help") || !strcmp(argv[0], "-h")))
        return printf("usage: duet devices\nlists the devices that --device and --devices choose from\n"), 0;
    if (argc) return report_error(fail(ERR_USAGE, "unknown flag: %s: duet devices takes none", argv[0]));
    static const char *const isas[] = {"avx512", "avx2", "generic"};
    const char *isa = "generic";
    for (int i = 2; i >= 0; i--)
        if (host_fast_kernel(OP_CONV2D_FORWARD, isas[i])) isa = isas[i];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    printf("cpu     emulated devices, each with a core's arithmetic (%s kernels) and memory of its own; 1 to "
           "%d of them\n",
           isa, MAX_DEVICES);
    printf("        %ld cores here: more devices than cores share them\n", cores);
    for (int n = 1; n <= 8; n *= 2) {
        char text[32];
        printf("        %d device%s: %s of memory each by default\n", n, n > 1 ? "s" : "",
               format_bytes(device_default_memory(n), text, sizeof text));
    }
    int gpus;
    if (device_probe(DEVICE_CUDA, &gpus)) {
        printf("cuda    none: %s\n", error_message());
    } else {
        printf("cuda    %d GPU%s; not yet run on hardware\n", gpus, gpus > 1 ? "s" : "");
        print_libraries();
    }
    return 0;
}
