/* What both GPU executors make of a plan: where a flag lies, and a step as a sum
 * (device/cuda/kernels/sum.h). Compiled for the host and for GPUs; tested on the host with every
 * plan (tests/allreduce/test_channels.c).
 *
 * Flags lie in the memory of the rank that reads them, [channel][kind][writer], 128 bytes apart:
 * the reader polls its own memory, a post is one store into the peer's, and no two writers share
 * a line. */
#ifndef ALLREDUCE_CUDA_STEP_H
#define ALLREDUCE_CUDA_STEP_H

#include "allreduce/plan.h"
#include "device/cuda/kernels/sum.h"

/* Channels: so many blocks run a plan side by side (cuda/spin.h). Stepwise uses channel 0 alone. */
enum { CUDA_CHANNELS = 32 };

struct cuda_flag {
    uint64_t epoch; /* one writer; only grows */
    uint64_t pad[15];
};

static inline size_t cuda_flags_bytes(int n) {
    return (size_t)CUDA_CHANNELS * PLAN_FLAG_KINDS * (size_t)n * sizeof(struct cuda_flag);
}

DUET_HD uint64_t cuda_flag_at(int n, uint32_t channel, uint32_t kind, int writer) {
    return ((uint64_t)channel * PLAN_FLAG_KINDS + kind) * (uint64_t)n + (uint64_t)writer;
}

/* A flag that has come as far as `epoch`, or further. By the sign of the difference, as streams
 * compare. */
DUET_HD int cuda_flag_reached(uint64_t seen, uint64_t epoch) {
    return (int64_t)(seen - epoch) >= 0;
}

/* All ranks' memory as the offsets of a step see it. */
struct step_memory {
    float *const *data;    /* [n], the call's DATA begins `data_offset` elements behind */
    float *const *scratch; /* [n], the call's half `scratch_offset` elements behind */
    uint64_t data_offset, scratch_offset;
};

DUET_HD float *step_range(const struct step_memory *m, uint32_t buffer, int rank, uint64_t offset) {
    return buffer == PLAN_DATA ? m->data[rank] + m->data_offset + offset
                               : m->scratch[rank] + m->scratch_offset + offset;
}

DUET_HD uint32_t count_bits(uint64_t set) {
#ifdef __CUDA_ARCH__
    return (uint32_t)__popcll(set);
#else
    return (uint32_t)__builtin_popcountll(set);
#endif
}

/* Rank r's part in `sum`, for r = 0 .. n - 1 in any order, so that n threads can share the work:
 * its source, its destination, and with r = 0 what there is only one of. skew and aligned are
 * the caller's.
 *     copy    source                             reduce   own, then source
 *     sum     ranks 0 .. n - 1 */
DUET_HD void step_entry(struct sum *sum, const struct plan_step *s, const struct step_memory *m,
                        int n, int me, int r, float scale) {
    int reduces = s->op == PLAN_REDUCE || s->op == PLAN_REDUCE_COPY;
    if (s->op == PLAN_SUM) sum->source[r] = step_range(m, s->source_buffer, r, s->source_offset);
    if (reduces && r == me) sum->source[0] = step_range(m, s->dest_buffer, r, s->dest_offset);
    if (s->op != PLAN_SUM && r == s->source_rank)
        sum->source[reduces] = step_range(m, s->source_buffer, r, s->source_offset);
    if (s->dest_ranks >> r & 1)
        sum->dest[count_bits(s->dest_ranks & (((uint64_t)1 << r) - 1))] =
            step_range(m, s->dest_buffer, r, s->dest_offset);
    if (r > 0) return;
    float source_scale = s->scale & PLAN_SCALE_SOURCE ? scale : 1,
          own_scale = s->scale & PLAN_SCALE_DEST ? scale : 1;
    sum->length = s->length;
    sum->sources = s->op == PLAN_SUM ? (uint32_t)n : reduces ? 2 : 1;
    sum->dests = count_bits(s->dest_ranks);
    sum->first_scale = reduces ? own_scale : source_scale;
    sum->scale = source_scale;
}

#endif
