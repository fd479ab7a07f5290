/* Implements gpu.h for a program built without CUDA. */
#include <stdio.h>

#include "base/error.h"
#include "doctor/cuda/gpu.h"

void gpu_build(char *text, size_t bytes) {
    snprintf(text, bytes, "no CUDA");
}

static int none(void) {
    return fail(ERR_USAGE, "device cuda: not built into this program: use --device cpu");
}

int gpu_driver(char *text, size_t bytes) {
    snprintf(text, bytes, "not asked");
    return none();
}

int gpu_facts(int gpu, struct gpu_facts *facts) {
    (void)gpu, (void)facts;
    return none();
}

int gpu_reaches(int from, int to) {
    (void)from, (void)to;
    return 0;
}
