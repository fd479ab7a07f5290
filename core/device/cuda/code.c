/* Finds the GPUs for which this program holds machine code.
 *
 * nvcc makes machine code for a few architectures and PTX, an assembly language, for all others.
 * Code runs on its own architecture and on later ones of the same major version: code for 8.0 also
 * runs on 8.6 and 8.9. On any other GPU the driver compiles the PTX while the kernels are
 * loaded. */
#include "device/cuda/cuda.h"

#include <stdio.h>

#include "base/program_name.h"
#include "base/text/text.h"

/* mk/cuda.mk gives the list; the emulation, which compiles for no GPU, has that of CUDA 13. */
#ifndef DUET_GPU_CODE
#define DUET_GPU_CODE 80, 90, 100, 120
#endif
static const int built_for[] = {DUET_GPU_CODE}; /* 10 * major + minor */
enum { BUILDS = sizeof built_for / sizeof *built_for };

/* 1 if the program holds machine code for GPUs of this compute capability. */
static int code_runs(int major, int minor) {
    for (int i = 0; i < BUILDS; i++)
        if (built_for[i] / 10 == major && built_for[i] % 10 <= minor) return 1;
    return 0;
}

void cuda_code_say(const struct cuda_device *d) {
    char list[16 * BUILDS] = "";
    if (code_runs(d->major, d->minor) || d->head.config.index != d->gpu) return;
    for (int i = 0; i < BUILDS; i++)
        text_append(list, sizeof list, "%s%d.%d", i ? ", " : "", built_for[i] / 10,
                    built_for[i] % 10);
    fprintf(stderr,
            "%s: device %s: %s has compute capability %d.%d: this program holds code for %s: the "
            "driver compiles its kernels now, which takes from seconds to a minute and is kept in "
            "~/.nv/ComputeCache\n",
            program_name(), d->head.name, d->gpu_name, d->major, d->minor, list);
}
