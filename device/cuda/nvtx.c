/* The phases of a step as NVTX ranges, so that a profiler's timeline speaks this house's words.
 * A range that is started and ended by its number, not pushed and popped: a stream may pass from
 * thread to thread. Without a profiler each call is a test of a pointer. It names the time in
 * which a phase is enqueued; the kernels themselves the profiler hangs below it. */
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
