/* Turns a CUDA error into a message. Three functions differ in the owner of the error:
 *
 *     cuda_fail          a call outside of any stream: the caller owns the error
 *     cuda_stream_fail   a call on a stream: the stream keeps its first error
 *     cuda_sync_fail     a fault that an event's waiter sees before the stream does
 *
 * A later call reports a kernel's fault, and from then on every call of the process on that GPU
 * reports it. So the message names the last operation that was enqueued, and its step. The fault is
 * there or earlier. All three call cudaGetLastError, which clears the runtime's record of the
 * error. Otherwise the next launch, which calls that function, would find it again.
 *
 * Three other places add their own advice to a CUDA error: probe (device.c), a full GPU (memory.c)
 * and an import that is refused (ipc.c). */
#include <stdio.h>

#include "device/cuda/cuda.h"

static int code_of(cudaError_t error) {
    return error == cudaErrorMemoryAllocation ? ERR_MEMORY : ERR_FAILED;
}

/* "fill of step 7", "fill", "nothing" */
enum { WORK_TEXT = 64 };
static const char *work_text(const struct cuda_work *work, char text[WORK_TEXT]) {
    if (!work->name[0]) return "nothing";
    snprintf(text, WORK_TEXT, work->step < 0 ? "%s" : "%s of step %d", work->name, (int)work->step);
    return text;
}

int cuda_fail(cudaError_t error, const char *what, const char *device_name) {
    cudaGetLastError();
    return fail(code_of(error), "%s on %s: %s: %s", what, device_name, cudaGetErrorName(error),
                cudaGetErrorString(error));
}

int cuda_stream_error(const struct cuda_stream *s) {
    return s->error ? fail(s->error, "%s", s->error_text) : OK;
}

int cuda_stream_fail(struct cuda_stream *s, cudaError_t error, const char *what) {
    cudaGetLastError();
    if (s->error) return cuda_stream_error(s);
    char last[WORK_TEXT];
    snprintf(s->error_text, sizeof s->error_text,
             "%s on %s: %s: %s: last begun on stream %s: %s; CUDA_LAUNCH_BLOCKING=1 names the one "
             "that failed",
             what, s->head.device->name, cudaGetErrorName(error), cudaGetErrorString(error),
             lane_name(s->head.lane), work_text(&s->last, last));
    s->error = code_of(error);
    return cuda_stream_error(s);
}

int cuda_sync_fail(const struct device *device, cudaError_t error, const struct cuda_work *behind) {
    char text[WORK_TEXT];
    cudaGetLastError();
    return fail(code_of(error),
                "event sync on %s: %s: %s: up to %s; CUDA_LAUNCH_BLOCKING=1 names the exact one",
                device->name, cudaGetErrorName(error), cudaGetErrorString(error),
                work_text(behind, text));
}
