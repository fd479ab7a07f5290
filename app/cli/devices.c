/* duet devices lists the emulated devices and their default memory, the GPUs and how the devices of
 * a run share them, and the libraries that training on GPUs may use. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "allreduce/allreduce.h"
#include "base/advice.h"
#include "base/error.h"
#include "base/program_name.h"
#include "base/text/text.h"
#include "cli/commands.h"
#include "clock/hardware.h"
#include "device/device.h"
#include "doctor/cuda/gpu.h"

enum {
    MOST_LISTED = 8, /* devices whose default memory is listed */
    COLUMN = 8       /* the column where all text begins */
};

/* A paragraph that begins at column `indent` and continues at COLUMN. */
__attribute__((format(printf, 2, 3))) static void say_line(int indent, const char *format, ...) {
    char line[2048];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    text_wrap(stdout, text_width(stdout), indent, COLUMN, line);
}

static void list_emulated(void) {
    printf("cpu     1 to %d emulated devices: each computes on one core (%s kernels)\n"
           "        and has its own memory\n",
           MAX_DEVICES, host_best_isa());
    printf("        %ld cores here: more devices than cores share them\n",
           sysconf(_SC_NPROCESSORS_ONLN));
    for (int n = 1; n <= MOST_LISTED; n *= 2) {
        char text[32];
        printf("        %d device%s: %s of memory each by default\n", n, n > 1 ? "s" : "",
               format_bytes(device_default_memory(n), text, sizeof text));
    }
}

static void list_gpu(int gpu) {
    struct gpu_facts facts;
    char memory[32];
    if (gpu_facts(gpu, &facts)) {
        say_line(COLUMN, "%s", error_with_options());
        return;
    }
    say_line(COLUMN, "GPU %d: %s, compute capability %d.%d, %s%s", gpu, facts.name, facts.major,
             facts.minor, format_bytes(facts.memory, memory, sizeof memory),
             facts.exclusive ? "; takes one process at a time: ranks share it only under MPS" : "");
}

static void list_gpus(void) {
    int gpus;
    char libraries[1100];
    if (device_probe(DEVICE_CUDA, &gpus)) {
        say_line(0, "cuda    none: %s", error_with_options());
        return;
    }
    say_line(0, "cuda    %d GPU%s; %s doctor checks %s", gpus, gpus > 1 ? "s" : "", program_name(),
             gpus > 1 ? "them" : "it");
    for (int gpu = 0; gpu < gpus; gpu++)
        list_gpu(gpu);
    if (gpus > 1)
        say_line(COLUMN,
                 "device i of a run is on GPU i mod %d; more than %d devices share GPUs and their "
                 "memory",
                 gpus, gpus);
    else
        say_line(COLUMN, "all devices of a run share it and its memory; the ranks of ddp take "
                         "turns on it, unless MPS runs (nvidia-cuda-mps-control -d)");
    device_libraries(DEVICE_CUDA, libraries, sizeof libraries);
    say_line(COLUMN, "libraries, for --cuda-math library: %s", libraries);
    allreduce_libraries(DEVICE_CUDA, libraries, sizeof libraries);
    say_line(COLUMN, "for --allreduce nccl: %s", libraries);
}

/* What joins the GPUs of a machine that is for sale; "": the table of links shows it. */
static const char *machine_words(const char *name) {
    static const char *const words[][2] = {
        {"pc-pcie3", " on PCIe 3: a PC or a simple server"},
        {"pc-pcie4", " on PCIe 4: the default of GPUs with PCIe 4"},
        {"pc-pcie5", " on PCIe 5"},
        {"pc-pcie3-2roots", ", 4 on each of two CPUs, PCIe 3"},
        {"pc-pcie4-2roots", ", 4 on each of two CPUs, PCIe 4"},
        {"nvlink-pair", " joined by an NVLink bridge"},
        {"nvlink-4", " joined in pairs by NVLink 2: DGX Station, p3.8xlarge"},
        {"dgx1", " in a mesh of NVLink 2: DGX-1, p3.16xl"},
        {"dgx-a100", " on NVLink 3 switches: DGX A100, p4d"},
        {"dgx-h100", " on NVLink 4 switches: DGX H100, p5"},
        {"dgx-b200", " on NVLink 5 switches: DGX B200"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(words[i][0], name)) return words[i][1];
    return "";
}

/* --gpus: the table of hardware that duet estimate --gpu knows. */
static int list_hardware(void) {
    struct hardware *h;
    CHECK(hardware_open(&h, NULL));
    printf("GPUs: TFLOP/s in fp32 and in TF32, memory bandwidth and size\n");
    for (int i = 0; i < h->gpus; i++) {
        const struct gpu_spec *g = &h->gpu[i];
        char tensor[32] = "-";
        if (g->tensor) snprintf(tensor, sizeof tensor, "%.1f", g->tensor);
        printf("  %-12s %7.2f %7s %5.0f GB/s, %3.0f GiB\n", g->name, g->fp32, tensor, g->gbs,
               g->gib);
    }
    printf("\nlinks: GB/s in each direction, and the microseconds before the first byte\n");
    for (int i = 0; i < h->links; i++)
        printf("  %-16s %7.2f %5.1f\n", h->link[i].name, h->link[i].gbs, h->link[i].us);
    printf("\nmachines: GPUs, and what joins them\n");
    for (int i = 0; i < h->machines; i++) {
        const struct machine *m = &h->machine[i];
        printf("  %-16s %d GPU%s%s%s%s%s%s\n", m->name, m->gpus, m->gpus > 1 ? "s" : "",
               machine_words(m->name),
               m->fitted ? ", calibrated for "
               : *m->gpu ? ", published times of "
                         : "",
               m->gpu, *m->network.name ? "; network " : "", m->network.name);
    }
    hardware_free(h);
    return OK;
}

int command_devices(int argc, char **argv, const struct duet_model *own) {
    (void)own;
    if (argc && (!strcmp(argv[0], "--help") || !strcmp(argv[0], "-h")))
        return printf(
                   "usage: duet devices [--gpus]\n\nLists the devices that --device and --devices "
                   "choose from.\n--gpus: the hardware that duet estimate --gpu knows\n"),
               0;
    if (argc == 1 && !strcmp(argv[0], "--gpus")) return report_error(list_hardware());
    if (argc)
        return report_error(
            fail(ERR_USAGE, "unknown option: %s: duet devices takes only --gpus", argv[0]));
    list_emulated();
    list_gpus();
    return 0;
}
