/* Kernels as nvcc compiled them: with EMULATED_PTX=1, or a folder, a launch runs the kernel's PTX
 * (tests/stand_ins/ptx) in place of its text compiled as C++.
 *
 * A kernel is found by its name, and its parameter must have the size that nvcc gave it. Kernels
 * of tests and of their libraries, which nvcc never sees, run as C. A fault becomes the CUDA error
 * that a GPU would report, and a line on stderr says what it was. */
#include "tests/stand_ins/cuda_emulation/emulation.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/stand_ins/ptx/library.h"
#include "tests/stand_ins/ptx/machine.h"

/* What a kernel's launches run; program NULL: its text. */
struct known {
    const struct emulated_kernel *kernel;
    struct ptx_program *program;
    char name[200];
    int broken; /* it should have a program, and has none */
    struct known *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static struct ptx_library library;
static struct known *all;
static enum { UNREAD, OFF, ON, BROKEN } mode;
static atomic_ulong launches;
static atomic_int paused;
static const struct ptx_range *only; /* set while nothing runs */
static int only_count;

static void complain(const char *what) {
    fprintf(stderr, "emulated PTX: %s\n", what);
}

static void use(const char *folder) {
    struct ptx_error error = {""};
    while (all) {
        struct known *gone = all;
        all = gone->next;
        ptx_program_free(gone->program);
        free(gone);
    }
    ptx_library_close(&library);
    mode = OFF;
    if (!folder) return;
    mode = ptx_library_open(&library, folder, &error) ? ON : BROKEN;
    if (mode == BROKEN) complain(error.text);
}

void emulated_ptx_use(const char *folder) {
    pthread_mutex_lock(&lock);
    use(folder);
    pthread_mutex_unlock(&lock);
}

void emulated_ptx_pause(int now) {
    atomic_store(&paused, now);
}

void emulated_ptx_only(const struct ptx_range *ranges, int count) {
    only = ranges;
    only_count = count;
}

unsigned long emulated_ptx_launches(void) {
    return atomic_load(&launches);
}

int emulated_ptx_ran(const char *name) {
    int ran = 0;
    pthread_mutex_lock(&lock);
    for (const struct known *k = all; k && !ran; k = k->next)
        ran = k->program && !strcmp(k->name, name);
    pthread_mutex_unlock(&lock);
    return ran;
}

/* The kernel's name of the text that DUET_KERNEL made: "... [with PARAM = pool; void (*
 * KERNEL)(PARAM) = product<0, 3>]". Returns 0 for a kernel that was named in another way. */
static int kernel_name(const struct emulated_kernel *kernel, char *name, size_t bytes) {
    const char *text = kernel->name(), *at = strstr(text, "KERNEL)(PARAM) = ");
    size_t used = 0;
    if (!strstr(text, "emulated_record<")) return 0;
    for (at = at ? at + 17 : text; *at && *at != ']' && *at != ';' && used + 1 < bytes; at++)
        if (*at != ' ') name[used++] = *at;
    name[used] = 0;
    return 1;
}

/* EMULATED_PTX_LOG=FILE: a line for each kernel that a process runs by its PTX. */
static void note(const char *name) {
    const char *path = getenv("EMULATED_PTX_LOG");
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    if (fd < 0) return;
    dprintf(fd, "%s\n", name);
    close(fd);
}

static void find(struct known *k) {
    struct ptx_error error = {""};
    char text[800];
    if (!kernel_name(k->kernel, k->name, sizeof k->name)) return;
    k->broken = 1;
    if (mode != ON) return;
    const struct ptx_function *f = ptx_library_find(&library, k->name);
    if (!f)
        snprintf(error.text, sizeof error.text, "no kernel of that name in %s", library.folder);
    else
        k->program = ptx_program_make(f, &error);
    if (k->program && k->program->param_bytes != k->kernel->bytes) {
        snprintf(error.text, sizeof error.text, "its parameter has %zu bytes, for the host %zu",
                 k->program->param_bytes, k->kernel->bytes);
        ptx_program_free(k->program);
        k->program = NULL;
    }
    k->broken = !k->program;
    snprintf(text, sizeof text, "kernel %s: %s", k->name, error.text);
    if (k->broken)
        complain(text);
    else
        note(k->name);
}

const struct emulated_ptx *emulated_ptx_of(const struct emulated_kernel *kernel, int *broken) {
    *broken = 0;
    if (atomic_load(&paused)) return NULL;
    pthread_mutex_lock(&lock);
    if (mode == UNREAD) {
        const char *folder = getenv("EMULATED_PTX");
        int on = folder && *folder && strcmp(folder, "0") != 0;
        use(on ? strcmp(folder, "1") ? folder : PTX_FOLDER : NULL);
    }
    struct known *k = all;
    while (k && k->kernel != kernel)
        k = k->next;
    if (!k && mode != OFF) {
        k = calloc(1, sizeof *k);
        if (!k) abort();
        k->kernel = kernel;
        k->next = all;
        all = k;
        find(k);
    }
    pthread_mutex_unlock(&lock);
    if (k) *broken = k->broken;
    return k && k->program ? (const struct emulated_ptx *)k : NULL;
}

/* ---- on the stream's thread ---- */

static cudaError_t error_of(enum ptx_fault_kind kind) {
    return kind == PTX_FAULT_ADDRESS     ? cudaErrorIllegalAddress
           : kind == PTX_FAULT_ALIGNMENT ? cudaErrorMisalignedAddress
                                         : cudaErrorLaunchFailure;
}

struct emulated_ptx_run *emulated_ptx_begin(const struct emulated_ptx *ptx, const struct item *item,
                                            struct gpu *gpu) {
    const struct known *k = (const struct known *)ptx;
    const struct emulated_index grid = item->u.launch.grid, threads = item->u.launch.threads;
    const uint32_t count = threads.x * threads.y * threads.z;
    struct ptx_range *ranges = NULL;
    struct ptx_grid g = {.program = k->program,
                         .param = item->param,
                         .blocks = {grid.x, grid.y, grid.z},
                         .threads = {threads.x, threads.y, threads.z},
                         .dependent = item->u.launch.dependent};
    if (k->program->kernel->most_threads && count > k->program->kernel->most_threads) {
        complain("more threads than the kernel's .maxntid");
        gpu->fault = cudaErrorLaunchFailure;
        return NULL;
    }
    g.range_count = only ? only_count : memory_ranges(gpu, &ranges);
    g.ranges = only ? only : ranges;
    struct emulated_ptx_run *run = calloc(1, sizeof *run);
    if (!run) abort();
    run->machine = ptx_machine_new(&g);
    if (!run->machine) abort();
    run->name = k->name;
    run->ranges = ranges;
    run->gpu = gpu;
    atomic_fetch_add(&launches, 1);
    return run;
}

int emulated_ptx_block(struct emulated_ptx_run *run, struct emulated_index block) {
    struct ptx_fault fault = {PTX_NO_FAULT, ""};
    const uint32_t at[3] = {block.x, block.y, block.z};
    if (ptx_run_block(run->machine, at, &fault)) return 1;
    fprintf(stderr, "emulated PTX: kernel %s: %s\n", run->name, fault.text);
    run->gpu->fault = error_of(fault.kind);
    return 0;
}

void emulated_ptx_end(struct emulated_ptx_run *run) {
    ptx_machine_free(run->machine);
    free(run->ranges);
    free(run);
}
