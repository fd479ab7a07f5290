/* How stepwise and spin read a plan: the position of a flag, and a step in the form of a sum
 * (device/cuda/kernels/sum.h). This code is compiled for the host and for GPUs;
 * tests/allreduce/test_channels.c runs it on the host with every plan.
 *
 * Flags are in the memory of the rank that reads them, as [channel][kind][writer], 128 bytes apart.
 * So a reader polls its own memory, a post is one store into the peer's memory, and no two writers
 * share a cache line. */
#ifndef ALLREDUCE_CUDA_STEP_H
#define ALLREDUCE_CUDA_STEP_H

#include "allreduce/plan.h"
#include "device/cuda/kernels/sum.h"

/* The most blocks that run a plan in parallel (spin.h). Stepwise uses channel 0 only. */
enum { CUDA_CHANNELS = 32 };

struct cuda_flag {
    uint64_t epoch; /* one rank writes it; it only grows */
    uint64_t pad[15];
};

/* Bytes of all flags that one of n ranks reads. */
static inline size_t cuda_flags_bytes(int n) {
    return (size_t)CUDA_CHANNELS * PLAN_FLAG_KINDS * (size_t)n * sizeof(struct cuda_flag);
}

/* The index of a flag among those of its reader. */
DUET_HD uint64_t cuda_flag_at(int n, uint32_t channel, uint32_t kind, int writer) {
    return ((uint64_t)channel * PLAN_FLAG_KINDS + kind) * (uint64_t)n + (uint64_t)writer;
}

/* 1: a flag that was read as `seen` has reached `epoch` or a later one. The sign of the difference
 * decides, as in a stream's wait (device/cuda/flag.h). */
DUET_HD int cuda_flag_reached(uint64_t seen, uint64_t epoch) {
    return (int64_t)(seen - epoch) >= 0;
}

/* All ranks' memory, to which the offsets of a step refer. */
struct step_memory {
    float *const *data;      /* [n] rank r's registered buffer */
    float *const *scratch;   /* [n] rank r's scratch */
    uint64_t data_offset;    /* elements from data[r] to the start of the call's DATA */
    uint64_t scratch_offset; /* elements from scratch[r] to the start of the call's half */
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

/* Writes rank r's entry of `sum`: its source, its destination, and for r = 0 also the fields that a
 * sum has once. The caller calls it for r = 0 .. n - 1, in any order, so that n threads can share
 * the work. The caller sets skew and aligned. The sources are
 *     copy      the step's source
 *     reduce    this rank's own term, then the step's source
 *     sum       the terms of ranks 0 .. n - 1 */
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
