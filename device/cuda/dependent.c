/* Programmatic dependent launch: a kernel may be started while the one before it on the stream
 * still runs, and waits inside (griddepcontrol.wait) until that one has ended and its memory can be
 * seen. What it saves is the time from one kernel's end to the next one's begin, some 30 times a
 * step.
 *
 *     without   | kernel 1 |  launch | kernel 2 |
 *     with      | kernel 1 |
 *                   launch, wait .. | kernel 2 |
 *
 * Each of Duet's kernels waits before it touches memory (here() in kernels/launch.h), so it reads
 * what it would read without: the bits are the same. Since every kernel waits for the one before
 * it, it also waits for all before that.
 *
 * Kernels are launched so where all of this holds; elsewhere as ever:
 *   - the GPU is of compute capability 9.0 or later, and the code that it was given has the wait
 *   - the driver accepts the launch; one that it refuses is launched in the plain way
 *   - for recordings: a graph of two kernels was recorded and made when the device was opened, by
 *     a driver and a runtime of CUDA 12.3 or later, the first whose graphs know such an edge
 *   - the environment does not say DUET_DEPENDENT_LAUNCH=0 */
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda.h"

enum { CAPABILITY = 90, RECORDS_SINCE = 12030 }; /* 10 * major + minor; CUDA's version */

static int is_wanted(void) {
    const char *value = getenv("DUET_DEPENDENT_LAUNCH");
    return !value || strcmp(value, "0") != 0;
}

/* Only a kernel is followed so: what CUDA makes of an event, a flag or a copy in front of a
 * dependent launch is not documented. */
int cuda_may_depend(const struct cuda_stream *s) {
    const struct cuda_device *d = (const struct cuda_device *)s->head.device;
    return s->linked && d->dependent >= (s->capturing ? DEPENDENT_RECORDED : DEPENDENT_PLAIN);
}

void cuda_launch_dependent(struct cuda_stream *s, const void *kernel, dim3 grid, dim3 block,
                           void **params) {
    cudaLaunchAttribute dependent = {.id = cudaLaunchAttributeProgrammaticStreamSerialization,
                                     .val = {.programmaticStreamSerializationAllowed = 1}};
    const cudaLaunchConfig_t how = {.gridDim = grid,
                                    .blockDim = block,
                                    .stream = s->stream,
                                    .attrs = &dependent,
                                    .numAttrs = 1};
    cudaError_t error = cudaLaunchKernelExC(&how, kernel, params);
    if (s->capturing || (error != cudaErrorNotSupported && error != cudaErrorInvalidValue)) return;
    cudaGetLastError(); /* a refusal of the attribute: nothing was enqueued */
    (void)cudaLaunchKernel(kernel, grid, block, params, 0, s->stream);
}

/* ---- whether it works here ---- */

static int launch_two(struct cuda_device *d) {
    const int one = 1;
    struct op_args args = {.out[0] = tensor_plain(d->compute.workspace, DTYPE_F32, 1, &one)};
    CHECK(cuda_launch_op(&d->compute, OP_FILL, &args));
    return cuda_launch_op(&d->compute, OP_FILL, &args);
}

/* Two kernels in a row, of which the second is a dependent launch. They are not run. What a refusal
 * has left behind is cleared, unless the context itself is broken, which the next call finds. */
static int can_record(struct cuda_device *d) {
    struct stream *stream = &d->compute.head;
    struct recording *recording = NULL;
    int code = cuda_record_begin(stream);
    if (code) return 0;
    code = launch_two(d);
    CHECK_KEEP(cuda_record_end(stream, code ? NULL : &recording), code);
    if (recording) cuda_recording_free(recording);
    cudaGetLastError();
    return !code;
}

static int graphs_know_it(void) {
    int driver = 0;
    return CUDART_VERSION >= RECORDS_SINCE && cudaDriverGetVersion(&driver) == cudaSuccess &&
           driver >= RECORDS_SINCE;
}

void cuda_dependent_open(struct cuda_device *d) {
    d->dependent = DEPENDENT_NEVER;
    if (10 * d->major + d->minor < CAPABILITY || d->code_version < CAPABILITY || !is_wanted())
        return;
    d->dependent = DEPENDENT_PLAIN;
    if (!graphs_know_it()) return;
    d->dependent = DEPENDENT_RECORDED;
    if (!can_record(d)) d->dependent = DEPENDENT_PLAIN;
}
