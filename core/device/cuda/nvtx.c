/* Marks the phases of a step as NVTX ranges, so that a profiler's timeline shows Duet's own names.
 * A range covers the time in which the work of a phase is enqueued; the profiler lists the kernels
 * below it.
 *
 * Ranges are started and ended by number, not pushed and popped, because a stream may pass from one
 * thread to another. Without a profiler each call tests one pointer. */
#include "device/cuda/cuda.h"

#ifdef HAVE_NVTX
#include <nvtx3/nvToolsExt.h>

void cuda_nvtx_end(struct cuda_stream *s) {
    if (s->range) nvtxRangeEnd(s->range);
    s->range = 0;
}

void cuda_nvtx_phase(struct cuda_stream *s) {
    if (s->range && s->range_phase == s->head.phase) return;
    cuda_nvtx_end(s);
    if (s->head.phase == PHASE_NONE) return;
    s->range = nvtxRangeStartA(phase_name(s->head.phase));
    s->range_phase = s->head.phase;
}
#else
void cuda_nvtx_end(struct cuda_stream *s) {
    (void)s;
}

void cuda_nvtx_phase(struct cuda_stream *s) {
    (void)s;
}
#endif
