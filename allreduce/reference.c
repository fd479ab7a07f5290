/* The reference executor: see reference.h. It is written so that a reader can see that it is right,
 * not to be fast. */
#include "allreduce/reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fold.h"

/* flags[reader][kind][writer] is the epoch that was posted last. */
typedef uint32_t flag_table[MAX_DEVICES][PLAN_FLAG_KINDS][MAX_DEVICES];

/* Where element `offset` of a rank's buffer lies. */
static char *place_of(const struct reference_memory *m, int buffer, int rank, size_t offset) {
    char *start = buffer == PLAN_DATA      ? m->data[rank]
                  : buffer == PLAN_SCRATCH ? m->scratch[rank]
                  : buffer == PLAN_OUTPUT  ? m->output[rank]
                                           : (char *)m->input[rank];
    return start + offset * element_bytes(m->how.type);
}

enum { WIDEST = 8 }; /* bytes of an element */

/* The n terms combined in fold order, in term[0]. */
static void fold_terms(struct arithmetic how, char term[][WIDEST], int n) {
    for (struct fold f = fold_begin(n); fold_next(&f);)
        element_combine(how, term[f.to], term[f.to], term[f.from]);
}

/* Where term r of the step lies. */
static int source_buffer_of(const struct plan *plan, const struct plan_step *s, int r) {
    return s->op == PLAN_SUM_OWN && r == plan->rank ? PLAN_INPUT : s->source_buffer;
}

void reference_step(const struct plan *plan, const struct plan_step *s,
                    const struct reference_memory *m) {
    size_t bytes = element_bytes(m->how.type);
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
        if (sums) fold_terms(m->how, term, plan->n);
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

static int check_range(const struct plan *plan, int i, int buffer, uint64_t offset, uint64_t length,
                       size_t scratch) {
    static const char *const names[] = {"data", "scratch", "input", "output"};
    const uint64_t ends[] = {plan->data, scratch, plan->input, plan->output}, end = ends[buffer];
    if (offset <= end && length <= end - offset) return OK;
    return fail(
        ERR_FAILED,
        "%s plan of rank %d, step %d: range %llu + %llu is outside of %llu elements of %s: a bug "
        "in the planner",
        plan_name(plan), plan->rank, i, (unsigned long long)offset, (unsigned long long)length,
        (unsigned long long)end, names[buffer]);
}

static int senseless(const struct plan *plan, int i) {
    return fail(
        ERR_FAILED,
        "%s plan of rank %d, step %d: op %d: its ranks, buffers or flags make no sense: a bug "
        "in the planner",
        plan_name(plan), plan->rank, i, plan->steps[i].op);
}

static int check_step(const struct plan *plan, int i, size_t scratch) {
    const struct plan_step *s = &plan->steps[i];
    uint64_t all = rank_all(plan->n), others = rank_others(plan->n, plan->rank);
    int reduces = s->op == PLAN_REDUCE || s->op == PLAN_REDUCE_COPY;
    int sane = s->op <= PLAN_SUM_OWN && s->wait_kind < PLAN_FLAG_KINDS &&
               s->post_kind < PLAN_FLAG_KINDS && !(s->wait_ranks & ~others) &&
               !(s->post_ranks & ~others) && !(s->dest_ranks & ~all) &&
               !s->wait_ranks == !s->wait_epoch && !s->post_ranks == !s->post_epoch &&
               s->wait_epoch <= plan->epochs && s->post_epoch <= plan->epochs + plan->credits &&
               s->source_rank >= 0 && s->source_rank < plan->n;
    if (s->op == PLAN_NONE) {
        sane = sane && s->length == 0 && (s->wait_ranks || s->post_ranks);
    } else {
        /* INPUT is read by its own rank alone and never written; OUTPUT is written by it only */
        sane =
            sane && s->source_buffer < PLAN_OUTPUT && s->dest_buffer < PLAN_BUFFERS &&
            s->dest_buffer != PLAN_INPUT &&
            (s->source_buffer != PLAN_INPUT ||
             (s->op == PLAN_COPY && s->source_rank == plan->rank)) &&
            (s->dest_buffer != PLAN_OUTPUT || (!reduces && s->dest_ranks == rank_bit(plan->rank)));
        if (!sane) return senseless(plan, i);
        sane = sane && s->dest_ranks && (!reduces || s->dest_ranks >> plan->rank & 1) &&
               (s->op != PLAN_REDUCE || s->dest_ranks == rank_bit(plan->rank));
        CHECK(check_range(plan, i, s->source_buffer, s->source_offset, s->length, scratch));
        if (s->op == PLAN_SUM_OWN)
            CHECK(check_range(plan, i, PLAN_INPUT, s->source_offset, s->length, scratch));
        CHECK(check_range(plan, i, s->dest_buffer, s->dest_offset, s->length, scratch));
    }
    return sane ? OK : senseless(plan, i);
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
                plan_name(plan), plan->rank, plan_flag_name((enum plan_flag)s->post_kind), r, *flag,
                s->post_epoch);
        *flag = s->post_epoch;
    }
    return OK;
}

/* What mailboxes and slots have room for is posted before any call. */
static void post_credits(flag_table flags, const struct plan *plans, int n) {
    for (int reader = 0; reader < n; reader++)
        for (int writer = 0; writer < n; writer++)
            flags[reader][PLAN_TAKEN][writer] = flags[reader][PLAN_LEFT][writer] = plans[0].credits;
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
    post_credits(*flags, plans, n);
    for (int r = 0; r < n; r++) {
        const struct plan *p = &plans[r];
        if (p->rank != r || p->n != n || p->count != plans[0].count ||
            p->epochs != plans[0].epochs || p->credits != plans[0].credits ||
            p->what != plans[0].what || p->algorithm != plans[0].algorithm || p->scratch > scratch)
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
                                plan_name(&plans[r]), r, i, w),
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
    return fail(ERR_FAILED, "%s plan: deadlock: %s: a bug in the planner", plan_name(&plans[0]),
                text);
}

int plan_walk(const struct plan *plans, int n, plan_walk_step *step, void *context) {
    flag_table *flags = calloc(1, sizeof *flags);
    if (!flags) return fail(ERR_MEMORY, "plans: no host memory for flags: free some");
    int at[MAX_DEVICES] = {0}, code = OK, ended = 0, moved = 1;
    post_credits(*flags, plans, n);
    while (moved && ended < n) {
        moved = ended = 0;
        for (int r = 0; r < n; r++) {
            const struct plan *p = &plans[r];
            for (; at[r] < p->step_count && missing(*flags, p, &p->steps[at[r]]) < 0; at[r]++) {
                CHECK_GOTO(step(context, r, at[r]), code, out);
                CHECK_GOTO(post_flags(*flags, p, &p->steps[at[r]]), code, out);
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

struct run {
    const struct plan *plans;
    const struct reference_memory *memory;
};

static int run_step(void *context, int rank, int step) {
    const struct run *run = context;
    reference_step(&run->plans[rank], &run->plans[rank].steps[step], run->memory);
    return OK;
}

int reference_run(const struct plan *plans, int n, const struct reference_memory *memory) {
    struct run run = {plans, memory};
    return plan_walk(plans, n, run_step, &run);
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
