/* The reference executor: one thread runs the plans of all ranks, element by element, in the
 * simplest way, so that a reader can see that it is right. Every executor must give its bits. It
 * also finds errors that a real run would show only as a hang or a crash: a wait that no post ever
 * satisfies, a range outside of memory, a flag that would go backwards. */
#ifndef TESTS_ALLREDUCE_REFERENCE_H
#define TESTS_ALLREDUCE_REFERENCE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "allreduce/element.h"
#include "allreduce/plan.h"
#include "allreduce/walk.h"
#include "base/error.h"
#include "base/fold.h"

/* ---- one element ---- */

static inline int64_t combine_integers(enum element_op op, int64_t a, int64_t b) {
    switch (op) {
    case ELEMENT_PRODUCT: return (int64_t)((uint64_t)a * (uint64_t)b);
    case ELEMENT_MIN: return a < b ? a : b;
    case ELEMENT_MAX: return a > b ? a : b;
    default: return (int64_t)((uint64_t)a + (uint64_t)b);
    }
}

/* Holds for narrower elements, too: the sum or product of two floats, rounded to a float once more,
 * is that of one float operation, since a double has more than twice their digits. */
static inline double combine_floats(enum element_op op, double a, double b) {
    switch (op) {
    case ELEMENT_PRODUCT: return a * b;
    case ELEMENT_MIN: return a < b || a != a ? a : b;
    case ELEMENT_MAX: return a > b || a != a ? a : b;
    default: return a + b;
    }
}

static inline double get_float(enum dtype type, const void *from) {
    double wide;
    float x;
    uint16_t half;
    memcpy(type == DTYPE_F64   ? (void *)&wide
           : type == DTYPE_F32 ? (void *)&x
                               : (void *)&half,
           from, dtype_bytes(type));
    return type == DTYPE_F64   ? wide
           : type == DTYPE_F32 ? x
           : type == DTYPE_F16 ? float_of_f16(half)
                               : float_of_bf16(half);
}

static inline void put_float(enum dtype type, void *to, double wide) {
    const float x = (float)wide;
    const uint16_t half = type == DTYPE_F16 ? f16_of_float(x) : bf16_of_float(x);
    memcpy(to,
           type == DTYPE_F64   ? (const void *)&wide
           : type == DTYPE_F32 ? (const void *)&x
                               : (const void *)&half,
           dtype_bytes(type));
}

static inline int64_t get_integer(enum dtype type, const void *from) {
    int64_t wide;
    int32_t narrow;
    if (type == DTYPE_U8) return *(const uint8_t *)from;
    if (type == DTYPE_I32) {
        memcpy(&narrow, from, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, from, sizeof wide);
    return wide;
}

/* The low bytes: this is where sums and products wrap around. */
static inline void put_integer(enum dtype type, void *to, int64_t x) {
    memcpy(to, &x, dtype_bytes(type)); /* little endian, as comm/flag.c asserts */
}

static inline void element_combine(struct arithmetic how, void *to, const void *a, const void *b) {
    if (dtype_is_float(how.type))
        put_float(how.type, to,
                  combine_floats(how.op, get_float(how.type, a), get_float(how.type, b)));
    else
        put_integer(how.type, to,
                    combine_integers(how.op, get_integer(how.type, a), get_integer(how.type, b)));
}

static inline void element_scale(enum dtype type, void *to, const void *from, double scale) {
    if (!dtype_is_float(type) || scale == 1)
        memmove(to, from, dtype_bytes(type));
    else
        put_float(type, to, get_float(type, from) * (type == DTYPE_F64 ? scale : (float)scale));
}

/* ---- a step ---- */

/* Memory of all ranks, for elements of any type and any operation: data[r] and scratch[r] are rank
 * r's; input and output its INPUT and OUTPUT, for plans that have them. `how` zeroed: sums of
 * floats. */
struct reference_memory {
    struct arithmetic how;
    void *const *data, *const *scratch, *const *output;
    const void *const *input;
    double scale;
};

/* Where element `offset` of a rank's buffer lies. */
static inline char *place_of(const struct reference_memory *m, int buffer, int rank,
                             size_t offset) {
    char *start = buffer == PLAN_DATA      ? m->data[rank]
                  : buffer == PLAN_SCRATCH ? m->scratch[rank]
                  : buffer == PLAN_OUTPUT  ? m->output[rank]
                                           : (char *)m->input[rank];
    return start + offset * dtype_bytes(m->how.type);
}

enum { WIDEST = 8 }; /* bytes of the largest element */

/* Where term r of the step lies. */
static inline int source_buffer_of(const struct plan *plan, const struct plan_step *s, int r) {
    return s->op == PLAN_SUM_OWN && r == plan->rank ? PLAN_INPUT : s->source_buffer;
}

static inline void reference_step(const struct plan *plan, const struct plan_step *s,
                                  const struct reference_memory *m) {
    size_t bytes = dtype_bytes(m->how.type);
    if (s->op == PLAN_NONE) return;
    double source_scale = s->scale & PLAN_SCALE_SOURCE ? m->scale : 1,
           dest_scale = s->scale & PLAN_SCALE_DEST ? m->scale : 1;
    for (size_t i = 0; i < s->length; i++) {
        char term[MAX_DEVICES][WIDEST], own[WIDEST];
        int sums = plan_op_sums(s->op);
        for (int r = 0; r < (sums ? plan->n : 1); r++)
            element_scale(m->how.type, term[r],
                          place_of(m, source_buffer_of(plan, s, r), sums ? r : s->source_rank,
                                   s->source_offset + i),
                          source_scale);
        for (struct fold f = fold_begin(plan->n); sums && fold_next(&f);)
            element_combine(m->how, term[f.to], term[f.to], term[f.from]);
        if (s->op == PLAN_REDUCE || s->op == PLAN_REDUCE_COPY) {
            element_scale(m->how.type, own,
                          place_of(m, s->dest_buffer, plan->rank, s->dest_offset + i), dest_scale);
            element_combine(m->how, term[0], own, term[0]);
        }
        for (int r = 0; r < plan->n; r++)
            if (s->dest_ranks >> r & 1)
                memcpy(place_of(m, s->dest_buffer, r, s->dest_offset + i), term[0], bytes);
    }
}

/* ---- checks ---- */

static inline int is_inside(const struct plan *plan, int buffer, uint64_t offset, uint64_t length,
                            size_t scratch) {
    const uint64_t ends[] = {plan->data, scratch, plan->input, plan->output};
    return offset <= ends[buffer] && length <= ends[buffer] - offset;
}

/* INPUT is read by its own rank alone and never written; OUTPUT is written by it only. */
static inline int moves_well(const struct plan *plan, const struct plan_step *s, size_t scratch) {
    const uint64_t me = rank_bit(plan->rank);
    int reduces = s->op == PLAN_REDUCE || s->op == PLAN_REDUCE_COPY;
    return s->source_buffer < PLAN_OUTPUT && s->dest_buffer < PLAN_BUFFERS &&
           s->dest_buffer != PLAN_INPUT &&
           (s->source_buffer != PLAN_INPUT ||
            (s->op == PLAN_COPY && s->source_rank == plan->rank)) &&
           (s->dest_buffer != PLAN_OUTPUT || (!reduces && s->dest_ranks == me)) && s->dest_ranks &&
           (!reduces || s->dest_ranks & me) && (s->op != PLAN_REDUCE || s->dest_ranks == me) &&
           is_inside(plan, s->source_buffer, s->source_offset, s->length, scratch) &&
           (s->op != PLAN_SUM_OWN ||
            is_inside(plan, PLAN_INPUT, s->source_offset, s->length, scratch)) &&
           is_inside(plan, s->dest_buffer, s->dest_offset, s->length, scratch);
}

static inline int makes_sense(const struct plan *plan, const struct plan_step *s, size_t scratch) {
    uint64_t all = rank_all(plan->n), others = rank_others(plan->n, plan->rank);
    int sane = s->op <= PLAN_SUM_OWN && s->wait_kind < PLAN_FLAG_KINDS &&
               s->post_kind < PLAN_FLAG_KINDS && !(s->wait_ranks & ~others) &&
               !(s->post_ranks & ~others) && !(s->dest_ranks & ~all) &&
               !s->wait_ranks == !s->wait_epoch && !s->post_ranks == !s->post_epoch &&
               s->wait_epoch <= plan->epochs && s->post_epoch <= plan->epochs + plan->credits &&
               s->source_rank >= 0 && s->source_rank < plan->n;
    return sane && (s->op == PLAN_NONE ? !s->length && (s->wait_ranks || s->post_ranks)
                                       : moves_well(plan, s, scratch));
}

/* The steps of each rank by themselves: ranges are inside of data and scratch (`scratch` elements
 * in a half), ranks exist, and the flags that it posts grow. What mailboxes and slots have room for
 * is posted before any call. ERR_FAILED names rank and step. */
static inline int plan_check(const struct plan *plans, int n, size_t scratch) {
    for (int r = 0; r < n; r++) {
        const struct plan *p = &plans[r];
        uint32_t posted[MAX_DEVICES][PLAN_FLAG_KINDS] = {{0}};
        int sane = p->rank == r && p->n == n && p->count == plans[0].count &&
                   p->epochs == plans[0].epochs && p->credits == plans[0].credits &&
                   p->what == plans[0].what && p->algorithm == plans[0].algorithm &&
                   p->scratch <= scratch;
        for (int to = 0; to < n; to++)
            posted[to][PLAN_TAKEN] = posted[to][PLAN_LEFT] = p->credits;
        for (int i = 0; i < p->step_count && sane; i++) {
            const struct plan_step *s = &p->steps[i];
            sane = makes_sense(p, s, scratch);
            for (int to = 0; to < n && sane; to++) {
                if (!(s->post_ranks >> to & 1)) continue;
                sane = s->post_epoch > posted[to][s->post_kind];
                posted[to][s->post_kind] = s->post_epoch;
            }
            if (!sane)
                return fail(ERR_FAILED,
                            "%s plan of rank %d, step %d makes no sense: a bug in the "
                            "planner",
                            plan_name(p), r, i);
        }
        if (!sane) return fail(ERR_FAILED, "the plan of rank %d is of another call: a bug", r);
    }
    return OK;
}

/* ---- running ---- */

struct run {
    const struct plan *plans;
    const struct reference_memory *memory;
};

static inline int run_step(void *context, int rank, int step) {
    const struct run *run = context;
    reference_step(&run->plans[rank], &run->plans[rank].steps[step], run->memory);
    return OK;
}

static inline int reference_run(const struct plan *plans, int n,
                                const struct reference_memory *memory) {
    struct run run = {plans, memory};
    return plan_walk(plans, n, run_step, &run);
}

static inline int reference_allreduce(enum allreduce_algorithm algorithm, int n, size_t count,
                                      const struct plan_config *config, float *const *data,
                                      float scale) {
    int code = OK;
    size_t half = config->scratch;
    float *memory = malloc((size_t)n * half * sizeof *memory + 1), *scratch[MAX_DEVICES];
    struct plan *plans = calloc((size_t)n, sizeof *plans);
    if (!memory || !plans)
        CHECK_GOTO(fail(ERR_MEMORY, "reference executor: out of host memory"), code, out);
    for (size_t i = 0; i < (size_t)n * half; i++)
        memory[i] = NAN;
    for (int r = 0; r < n; r++) {
        scratch[r] = memory + (size_t)r * half;
        CHECK_GOTO(plan_build(&plans[r], algorithm, n, r, count, config), code, out);
    }
    CHECK_GOTO(plan_check(plans, n, half), code, out);
    struct reference_memory all = {
        .data = (void *const *)data, .scratch = (void *const *)scratch, .scale = scale};
    code = reference_run(plans, n, &all);
out:
    for (int r = 0; plans && r < n; r++)
        plan_free(&plans[r]);
    free(plans);
    free(memory);
    return code;
}

#endif
