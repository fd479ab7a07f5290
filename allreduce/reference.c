/* The reference executor: see reference.h. It is written to be right at sight, not to be fast. */
#include "allreduce/reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fold.h"

/* flags[reader][kind][writer] is the epoch that was posted last. */
typedef uint32_t flag_table[MAX_DEVICES][PLAN_FLAG_KINDS][MAX_DEVICES];

static float *range_of(float *const *data, float *const *scratch, int buffer, int rank,
                       size_t offset) {
    return (buffer == PLAN_DATA ? data[rank] : scratch[rank]) + offset;
}

void reference_step(const struct plan *plan, const struct plan_step *s, float *const *data,
                    float *const *scratch, float scale) {
    if (s->op == PLAN_NONE) return;
    float source_scale = s->scale & PLAN_SCALE_SOURCE ? scale : 1.0f,
          dest_scale = s->scale & PLAN_SCALE_DEST ? scale : 1.0f;
    for (size_t i = 0; i < s->length; i++) {
        float term[MAX_DEVICES], result;
        if (s->op == PLAN_SUM) {
            for (int r = 0; r < plan->n; r++)
                term[r] = *range_of(data, scratch, s->source_buffer, r, s->source_offset + i) *
                          source_scale;
            result = fold_sum_float(term, plan->n);
        } else {
            result =
                *range_of(data, scratch, s->source_buffer, s->source_rank, s->source_offset + i) *
                source_scale;
        }
        if (s->op == PLAN_REDUCE || s->op == PLAN_REDUCE_COPY) {
            float own = *range_of(data, scratch, s->dest_buffer, plan->rank, s->dest_offset + i) *
                        dest_scale;
            result = own + result;
        }
        for (int r = 0; r < plan->n; r++)
            if (s->dest_ranks >> r & 1)
                *range_of(data, scratch, s->dest_buffer, r, s->dest_offset + i) = result;
    }
}

/* ---- checks ---- */

static int check_range(const struct plan *plan, int i, int buffer, uint64_t offset, uint64_t length,
                       size_t scratch) {
    uint64_t end = buffer == PLAN_DATA ? plan->count : scratch;
    if (offset <= end && length <= end - offset) return OK;
    return fail(
        ERR_FAILED,
        "%s plan of rank %d, step %d: range %llu + %llu lies outside of %llu elements of %s: a bug "
        "in the planner",
        allreduce_algorithm_name(plan->algorithm), plan->rank, i, (unsigned long long)offset,
        (unsigned long long)length, (unsigned long long)end,
        buffer == PLAN_DATA ? "data" : "scratch");
}

static int check_step(const struct plan *plan, int i, size_t scratch) {
    const struct plan_step *s = &plan->steps[i];
    uint64_t all = rank_all(plan->n), others = rank_others(plan->n, plan->rank);
    int reduces = s->op == PLAN_REDUCE || s->op == PLAN_REDUCE_COPY;
    int sane = s->op <= PLAN_SUM && s->wait_kind < PLAN_FLAG_KINDS &&
               s->post_kind < PLAN_FLAG_KINDS && !(s->wait_ranks & ~others) &&
               !(s->post_ranks & ~others) && !(s->dest_ranks & ~all) &&
               !s->wait_ranks == !s->wait_epoch && !s->post_ranks == !s->post_epoch &&
               s->wait_epoch <= plan->epochs && s->post_epoch <= plan->epochs &&
               s->source_rank >= 0 && s->source_rank < plan->n;
    if (s->op == PLAN_NONE) {
        sane = sane && s->length == 0 && (s->wait_ranks || s->post_ranks);
    } else {
        sane = sane && s->dest_ranks && (!reduces || s->dest_ranks >> plan->rank & 1) &&
               (s->op != PLAN_REDUCE || s->dest_ranks == rank_bit(plan->rank));
        CHECK(check_range(plan, i, s->source_buffer, s->source_offset, s->length, scratch));
        CHECK(check_range(plan, i, s->dest_buffer, s->dest_offset, s->length, scratch));
    }
    return sane ? OK
                : fail(ERR_FAILED,
                       "%s plan of rank %d, step %d: op %d: its ranks or flags make no sense: a "
                       "bug in the planner",
                       allreduce_algorithm_name(plan->algorithm), plan->rank, i, s->op);
}

/* Posts what the step posts. A flag that does not grow is an error. */
static int post_flags(flag_table flags, const struct plan *plan, const struct plan_step *s) {
    for (int r = 0; r < plan->n; r++) {
        if (!(s->post_ranks >> r & 1)) continue;
        uint32_t *flag = &flags[r][s->post_kind][plan->rank];
        if (s->post_epoch <= *flag)
            return fail(
                ERR_FAILED,
                "%s plan of rank %d: flag %s of rank %d goes from %u to %u: a bug in the planner",
                allreduce_algorithm_name(plan->algorithm), plan->rank,
                plan_flag_name((enum plan_flag)s->post_kind), r, *flag, s->post_epoch);
        *flag = s->post_epoch;
    }
    return OK;
}

/* The first rank that the step still waits for; -1: none, it may go on. */
static int missing(flag_table flags, const struct plan *plan, const struct plan_step *s) {
    for (int w = 0; w < plan->n; w++)
        if (s->wait_ranks >> w & 1 && flags[plan->rank][s->wait_kind][w] < s->wait_epoch) return w;
    return -1;
}

int plan_check(const struct plan *plans, int n, size_t scratch) {
    flag_table *flags = calloc(1, sizeof *flags);
    if (!flags) return fail(ERR_MEMORY, "plan check: no host memory for flags: free some");
    int code = OK;
    for (int r = 0; r < n; r++) {
        const struct plan *p = &plans[r];
        if (p->rank != r || p->n != n || p->count != plans[0].count ||
            p->epochs != plans[0].epochs || p->algorithm != plans[0].algorithm ||
            p->scratch > scratch)
            CHECK_GOTO(fail(ERR_FAILED,
                            "plan of rank %d: differs from rank 0's in n, count, epochs or "
                            "algorithm: a bug in the planner",
                            r),
                       code, out);
        for (int i = 0; i < p->step_count; i++) {
            CHECK_GOTO(check_step(p, i, scratch), code, out);
            CHECK_GOTO(post_flags(*flags, p, &p->steps[i]), code, out);
        }
    }
    for (int r = 0; r < n; r++) {
        for (int i = 0; i < plans[r].step_count; i++) {
            int w = missing(*flags, &plans[r], &plans[r].steps[i]);
            if (w >= 0)
                CHECK_GOTO(fail(ERR_FAILED,
                                "%s plan of rank %d, step %d: rank %d never posts enough: a bug in "
                                "the planner",
                                allreduce_algorithm_name(plans[r].algorithm), r, i, w),
                           code, out);
        }
    }
out:
    free(flags);
    return code;
}

/* ---- running ---- */

static int deadlock(const struct plan *plans, int n, const int *at, flag_table flags) {
    char text[400] = "";
    size_t used = 0;
    for (int r = 0; r < n; r++) {
        if (at[r] == plans[r].step_count || used > sizeof text - 80) continue;
        const struct plan_step *s = &plans[r].steps[at[r]];
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "%srank %d at step %d for flag %s of rank %d", used ? ", " : "", r,
                                 at[r], plan_flag_name((enum plan_flag)s->wait_kind),
                                 missing(flags, &plans[r], s));
    }
    return fail(ERR_FAILED, "%s plan: deadlock: %s: a bug in the planner",
                allreduce_algorithm_name(plans[0].algorithm), text);
}

int reference_run(const struct plan *plans, int n, float *const *data, float *const *scratch,
                  float scale) {
    flag_table *flags = calloc(1, sizeof *flags);
    if (!flags) return fail(ERR_MEMORY, "reference executor: no host memory for flags: free some");
    int at[MAX_DEVICES] = {0}, code = OK, ended = 0, moved = 1;
    while (moved && ended < n) {
        moved = ended = 0;
        for (int r = 0; r < n; r++) {
            const struct plan *p = &plans[r];
            if (at[r] < p->step_count && missing(*flags, p, &p->steps[at[r]]) < 0) {
                reference_step(p, &p->steps[at[r]], data, scratch, scale);
                CHECK_GOTO(post_flags(*flags, p, &p->steps[at[r]]), code, out);
                at[r]++;
                moved = 1;
            }
            ended += at[r] == p->step_count;
        }
    }
    if (ended < n) code = deadlock(plans, n, at, *flags);
out:
    free(flags);
    return code;
}

int reference_allreduce(enum allreduce_algorithm algorithm, int n, size_t count,
                        const struct plan_config *config, float *const *data, float scale) {
    if (n < 1 || n > MAX_DEVICES)
        return fail(ERR_USAGE, "allreduce: %d ranks: give 1 to %d", n, MAX_DEVICES);
    int code = OK;
    size_t half = config->scratch;
    float *memory = malloc((size_t)n * half * sizeof *memory + 1), *scratch[MAX_DEVICES];
    struct plan *plans = calloc((size_t)n, sizeof *plans);
    if (!memory || !plans)
        CHECK_GOTO(
            fail(ERR_MEMORY, "reference executor: no host memory for scratch: use a smaller one"),
            code, out);
    for (size_t i = 0; i < (size_t)n * half; i++)
        memory[i] = NAN;
    for (int r = 0; r < n; r++) {
        scratch[r] = memory + (size_t)r * half;
        CHECK_GOTO(plan_build(&plans[r], algorithm, n, r, count, config), code, out);
    }
    CHECK_GOTO(plan_check(plans, n, half), code, out);
    code = reference_run(plans, n, data, scratch, scale);
out:
    for (int r = 0; plans && r < n; r++)
        plan_free(&plans[r]);
    free(plans);
    free(memory);
    return code;
}
