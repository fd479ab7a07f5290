/* Plans as a whole. This file names algorithms and flags, builds a plan, and counts the bytes that
 * it moves. plans/steps.h says how an algorithm writes its steps. */
#include "allreduce/plan.h"

#include <stdlib.h>
#include <string.h>

#include "allreduce/plans/steps.h"
#include "base/error.h"
#include "base/text/nearest.h"

// clang-format off
static const struct {
    const char *word;
    void (*build)(struct plan *, const struct plan_config *); /* NULL: the algorithm has no plan */
    int in_fold_order, uses_scratch;
} algorithms[ALLREDUCE_ALGORITHM_COUNT] = {
    [ALLREDUCE_AUTO] = {"auto", NULL, 0, 1},
#define PLAN(NAME, word, in_fold_order, uses_scratch) \
    [ALLREDUCE_##NAME] = {#word, plan_##word, in_fold_order, uses_scratch},
    ALLREDUCE_PLANS(PLAN)
#undef PLAN
    [ALLREDUCE_NCCL] = {"nccl", NULL, 0, 0},
    [ALLREDUCE_MPI] = {"mpi", NULL, 0, 0},
};
// clang-format on

static int known(enum allreduce_algorithm algorithm) {
    return (unsigned)algorithm < ALLREDUCE_ALGORITHM_COUNT;
}

const char *allreduce_algorithm_name(enum allreduce_algorithm algorithm) {
    return known(algorithm) ? algorithms[algorithm].word : "?";
}

const char *collective_name(enum collective what) {
    static const char *const names[COLLECTIVE_COUNT] = {
        "allreduce",      "barrier", "broadcast", "reduce",     "all_gather",
        "reduce_scatter", "gather",  "scatter",   "all_to_all", "send"};
    return (unsigned)what < COLLECTIVE_COUNT ? names[what] : "?";
}

const char *plan_name(const struct plan *plan) {
    return plan->what == COLLECTIVE_ALL_REDUCE ? allreduce_algorithm_name(plan->algorithm)
                                               : collective_name(plan->what);
}

int allreduce_algorithm_parse(const char *word, enum allreduce_algorithm *out) {
    const char *words[ALLREDUCE_ALGORITHM_COUNT];
    for (int a = 0; a < ALLREDUCE_ALGORITHM_COUNT; a++) {
        words[a] = algorithms[a].word;
        if (strcmp(word, words[a])) continue;
        *out = (enum allreduce_algorithm)a;
        return OK;
    }
    return unknown_value("allreduce algorithm", word, words, ALLREDUCE_ALGORITHM_COUNT);
}

int allreduce_has_plan(enum allreduce_algorithm algorithm) {
    return known(algorithm) && algorithms[algorithm].build;
}

int allreduce_keeps_order(enum allreduce_algorithm algorithm) {
    return known(algorithm) && algorithms[algorithm].in_fold_order;
}

int allreduce_uses_scratch(enum allreduce_algorithm algorithm) {
    return known(algorithm) && algorithms[algorithm].uses_scratch;
}

const char *plan_flag_name(enum plan_flag kind) {
    static const char *const names[PLAN_FLAG_KINDS] = {"ready", "done",   "slice",  "up A",
                                                       "up B",  "down A", "down B", "sent",
                                                       "taken", "shown",  "left"};
    return (unsigned)kind < PLAN_FLAG_KINDS ? names[kind] : "?";
}

struct plan_config plan_config_default(void) {
    struct plan_config config = {.align = 16,
                                 .slice = 64 * 1024,
                                 .pipeline_from = 256 * 1024,
                                 .slices = 4,
                                 .scratch = 128 * 1024};
    return config;
}

/* One rank has nobody to talk to: only the scale is left to do. */
static void plan_alone(struct plan *plan) {
    struct plan_step scale = copy_from(0, (struct range){0, plan->count}, rank_bit(0));
    scale.scale = PLAN_SCALE_SOURCE;
    add_step(plan, scale);
}

int plan_build(struct plan *plan, enum allreduce_algorithm algorithm, int n, int rank, size_t count,
               const struct plan_config *config) {
    memset(plan, 0, sizeof *plan);
    if (n < 1 || n > MAX_DEVICES)
        return fail(ERR_USAGE, "allreduce: %d ranks: give 1 to %d", n, MAX_DEVICES);
    if (rank < 0 || rank >= n)
        return fail(ERR_USAGE, "allreduce: rank %d of %d: give 0 to %d", rank, n, n - 1);
    if (!allreduce_has_plan(algorithm))
        return fail(ERR_USAGE, "allreduce plan: %s: has no plan: choose an algorithm",
                    allreduce_algorithm_name(algorithm));
    if (config->align < 1 || config->slice < 1 || config->slices < 1 || config->scratch < (size_t)n)
        return fail(ERR_USAGE,
                    "allreduce plan: align %zu, slice %zu, slices %d, scratch %zu: give at least "
                    "1, 1, 1, %d",
                    config->align, config->slice, config->slices, config->scratch, n);
    plan->algorithm = algorithm;
    plan->n = n;
    plan->rank = rank;
    plan->count = plan->data = count;
    if (count == 0) return OK;
    if (n == 1)
        plan_alone(plan);
    else
        algorithms[algorithm].build(plan, config);
    int code = plan->error;
    if (code) plan_free(plan);
    return code;
}

void plan_free(struct plan *plan) {
    if (!plan) return;
    free(plan->steps);
    memset(plan, 0, sizeof *plan);
}

uint64_t plan_step_loads(const struct plan_step *step, int n, int rank) {
    if (step->op == PLAN_NONE || step->length == 0) return 0;
    uint64_t sources = plan_op_sums(step->op) ? rank_all(n) : rank_bit(step->source_rank);
    return sources & ~rank_bit(rank);
}

uint64_t plan_step_stores(const struct plan_step *step, int rank) {
    if (step->op == PLAN_NONE || step->length == 0) return 0;
    return step->dest_ranks & ~rank_bit(rank);
}

uint64_t plan_traffic(const struct plan *plan, uint64_t *bytes) {
    int n = plan->n, rank = plan->rank;
    uint64_t sum = 0;
    for (int i = 0; i < plan->step_count; i++) {
        const struct plan_step *step = &plan->steps[i];
        uint64_t loads = plan_step_loads(step, n, rank), stores = plan_step_stores(step, rank);
        for (int r = 0; r < n; r++) {
            uint64_t in = loads >> r & 1 ? step->length * sizeof(float) : 0;
            uint64_t out = stores >> r & 1 ? step->length * sizeof(float) : 0;
            if (bytes) bytes[r * n + rank] += in;
            if (bytes) bytes[rank * n + r] += out;
            sum += in + out;
        }
    }
    return sum;
}
