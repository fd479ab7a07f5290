/* Checks the machine and the program: cores, memory, open files, vector kernels, the libraries of
 * the build, the driver, and the number of GPUs, which decides what else is checked. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/advice.h"
#include "base/error.h"
#include "doctor/check.h"
#include "doctor/cuda/gpu.h"
#include "trace/ledger.h"

/* The most memory that a check takes: 4 ranks with a device of 160 MiB each. */
static const uint64_t NEEDED = (uint64_t)4 * (160 << 20);

static void look_at_cores(struct doctor *d) {
    cpu_set_t set;
    long here = sysconf(_SC_NPROCESSORS_ONLN);
    int usable = sched_getaffinity(0, sizeof set, &set) ? (int)here : CPU_COUNT(&set);
    note(d, FINDING_OK, "cores", "",
         "%d usable of %ld: more emulated devices than cores share them", usable, here);
}

static void look_at_memory(struct doctor *d) {
    char available[32], needed[32], bound[100], all[32];
    uint64_t bytes = device_default_memory(1);
    snprintf(bound, sizeof bound, "at least %s: 4 ranks, each with a device",
             format_bytes(NEEDED, needed, sizeof needed));
    format_bytes((uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE), all,
                 sizeof all);
    note(d, bytes < NEEDED ? FINDING_OFF : FINDING_OK, "memory", bound,
         "%s for emulated devices, of %s", format_bytes(bytes, available, sizeof available), all);
}

/* The launcher holds a pidfd of each rank. A rank holds a descriptor of the memory of each peer
 * while it maps them all, and some of its own. */
static void look_at_limits(struct doctor *d) {
    struct rlimit files;
    static const rlim_t ENOUGH = 2 * MAX_DEVICES + 32;
    if (getrlimit(RLIMIT_NOFILE, &files)) return;
    note(d, files.rlim_cur < ENOUGH ? FINDING_OFF : FINDING_OK, "open files",
         "at least 160: 2 for each of 64 ranks and some more; raise it with ulimit -n",
         "%llu at most", (unsigned long long)files.rlim_cur);
}

static void look_at_kernels(struct doctor *d) {
    note(d, FINDING_OK, "vector kernels", "", "%s in force", host_best_isa());
}

static void look_at_build(struct doctor *d) {
    char text[160];
    gpu_build(text, sizeof text);
#ifdef HAVE_ZLIB
    note(d, FINDING_OK, "build", "", "zlib; %s", text);
#else
    note(d, FINDING_OK, "build", "", "no zlib (raw IDX files only); %s", text);
#endif
}

static void look_at_gpu(struct doctor *d, int gpu) {
    char what[32], memory[32];
    struct gpu_facts f;
    snprintf(what, sizeof what, "cuda(%d): device", gpu);
    if (gpu_facts(gpu, &f)) {
        note(d, FINDING_OFF, what, "", "%s", error_message());
        return;
    }
    note(d, FINDING_OK, what, "", "%s, compute capability %d.%d, %d SMs, %s%s", f.name, f.major,
         f.minor, f.multiprocessors, format_bytes(f.memory, memory, sizeof memory),
         f.exclusive ? ", one process at a time: ranks cannot share it" : "");
}

/* A missing GPU is a failure only if one was requested. */
static void look_for_gpus(struct doctor *d) {
    const struct doctor_config *config = &d->config;
    enum finding_state none = config->target == DOCTOR_CUDA ? FINDING_OFF : FINDING_NOT_HERE;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char driver[100];
    int count = 0;
    if (config->target == DOCTOR_CPU) {
        note(d, FINDING_NOT_HERE, "GPUs", "", "not looked for: --device cpu");
        return;
    }
    if (gpu_driver(driver, sizeof driver)) {
        note(d, none, "driver", "", "%s", error_with_options());
        return;
    }
    note(d, FINDING_OK, "driver", "", "%s", driver);
    if (device_probe(DEVICE_CUDA, &count)) {
        note(d, none, "GPUs", "", "%s", error_with_options());
        return;
    }
    d->progress->gpus = count;
    char libraries[300];
    device_libraries(DEVICE_CUDA, libraries, sizeof libraries);
    if (*libraries) note(d, FINDING_OK, "libraries", "", "%s", libraries);
    note(d, FINDING_OK, "GPUs", "", "%d%s%s", count,
         visible ? ", chosen by CUDA_VISIBLE_DEVICES=" : "", visible ? visible : "");
    for (int gpu = 0; gpu < count; gpu++)
        look_at_gpu(d, gpu);
}

int check_machine(struct doctor *d, int first) {
    static const struct {
        const char *name;
        void (*look)(struct doctor *d);
    } steps[] = {{"cores", look_at_cores},       {"memory", look_at_memory},
                 {"open files", look_at_limits}, {"vector kernels", look_at_kernels},
                 {"build", look_at_build},       {"GPUs", look_for_gpus}};
    for (int i = first; i < (int)(sizeof steps / sizeof *steps); i++) {
        doctor_step(d, i, "%s", steps[i].name);
        steps[i].look(d);
    }
    return OK;
}
