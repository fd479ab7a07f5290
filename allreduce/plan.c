/* What all algorithms share: names, cutting ranges, appending steps, counting bytes. */
#include "allreduce/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static const char *const algorithm_names[ALLREDUCE_ALGORITHM_COUNT] = {
    "auto", "naive", "oneshot", "direct", "ring", "tree", "fused", "nccl"};

static void (*const builders[ALLREDUCE_ALGORITHM_COUNT])(struct plan *,
                                                         const struct plan_config *) = {
    [ALLREDUCE_NAIVE] = plan_naive,   [ALLREDUCE_ONESHOT] = plan_oneshot,
    [ALLREDUCE_DIRECT] = plan_direct, [ALLREDUCE_RING] = plan_ring,
    [ALLREDUCE_TREE] = plan_tree,     [ALLREDUCE_FUSED] = plan_fused,
};

const char *allreduce_algorithm_name(enum allreduce_algorithm algorithm) {
    return (unsigned)algorithm < ALLREDUCE_ALGORITHM_COUNT ? algorithm_names[algorithm] : "?";
}

int allreduce_algorithm_parse(const char *word, enum allreduce_algorithm *out) {
    for (int a = 0; a < ALLREDUCE_ALGORITHM_COUNT; a++) {
        if (strcmp(word, algorithm_names[a]) == 0) {
            *out = (enum allreduce_algorithm)a;
            return OK;
        }
    }
    return fail(
        ERR_USAGE,
        "allreduce algorithm: %s: choose auto, naive, oneshot, direct, ring, tree, fused or nccl",
        word);
}

int allreduce_has_plan(enum allreduce_algorithm algorithm) {
    return (unsigned)algorithm < ALLREDUCE_ALGORITHM_COUNT && builders[algorithm];
}

int allreduce_keeps_order(enum allreduce_algorithm algorithm) {
    return algorithm == ALLREDUCE_NAIVE || algorithm == ALLREDUCE_ONESHOT ||
           algorithm == ALLREDUCE_DIRECT || algorithm == ALLREDUCE_FUSED;
}

const char *plan_flag_name(enum plan_flag kind) {
    static const char *const names[PLAN_FLAG_KINDS] = {"ready", "done",   "slice", "up A",
                                                       "up B",  "down A", "down B"};
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

static size_t round_up(size_t x, size_t unit) {
    return (x + unit - 1) / unit * unit;
}

struct range range_part(struct range whole, int parts, int i, size_t align) {
    size_t part = round_up((whole.length + (size_t)parts - 1) / (size_t)parts, align);
    size_t start = part * (size_t)i < whole.length ? part * (size_t)i : whole.length;
    size_t left = whole.length - start;
    struct range r = {whole.offset + start, part < left ? part : left};
    return r;
}

int plan_slices(const struct plan_config *config, size_t count, size_t length) {
    size_t least = count >= config->pipeline_from ? (size_t)config->slices : 1;
    size_t enough = (length + config->slice - 1) / config->slice;
    return (int)(enough > least ? enough : least);
}

void plan_add(struct plan *plan, const struct plan_step *step) {
    if (plan->error) return;
    if (plan->step_count == plan->step_capacity) {
        int capacity = plan->step_capacity ? 2 * plan->step_capacity : 16;
        struct plan_step *steps = realloc(plan->steps, (size_t)capacity * sizeof *steps);
        if (!steps) {
            plan->error =
                fail(ERR_MEMORY, "allreduce plan: no host memory for %d steps: use larger slices",
                     capacity);
            return;
        }
        plan->steps = steps;
        plan->step_capacity = capacity;
    }
    plan->steps[plan->step_count++] = *step;
}

/* One rank has nobody to talk to: only the scale is left to do. */
static void plan_alone(struct plan *plan) {
    struct plan_step scale = {.op = PLAN_COPY,
                              .scale = PLAN_SCALE_SOURCE,
                              .source_buffer = PLAN_DATA,
                              .dest_buffer = PLAN_DATA,
                              .dest_ranks = rank_bit(0),
                              .length = plan->count};
    plan_add(plan, &scale);
}

int plan_build(struct plan *plan, enum allreduce_algorithm algorithm, int n, int rank, size_t count,
               const struct plan_config *config) {
    memset(plan, 0, sizeof *plan);
    if (n < 1 || n > MAX_DEVICES)
        return fail(ERR_USAGE, "allreduce: %d ranks: give 1 to %d", n, MAX_DEVICES);
    if (rank < 0 || rank >= n)
        return fail(ERR_USAGE, "allreduce: rank %d of %d: give 0 to %d", rank, n, n - 1);
    if (!allreduce_has_plan(algorithm))
        return fail(ERR_USAGE,
                    "allreduce plan: algorithm %s: has no plan of its own: choose one first",
                    allreduce_algorithm_name(algorithm));
    if (config->align < 1 || config->slice < 1 || config->slices < 1 || config->scratch < (size_t)n)
        return fail(ERR_USAGE,
                    "allreduce plan: align %zu, slice %zu, slices %d, scratch %zu: give at least "
                    "1, 1, 1, %d",
                    config->align, config->slice, config->slices, config->scratch, n);
    plan->algorithm = algorithm;
    plan->n = n;
    plan->rank = rank;
    plan->count = count;
    if (count == 0) return OK;
    if (n == 1)
        plan_alone(plan);
    else
        builders[algorithm](plan, config);
    int code = plan->error;
    if (code) plan_free(plan);
    return code;
}

void plan_free(struct plan *plan) {
    if (!plan) return;
    free(plan->steps);
    memset(plan, 0, sizeof *plan);
}

uint64_t plan_traffic(const struct plan *plan, uint64_t *bytes) {
    uint64_t sum = 0;
    for (int i = 0; i < plan->step_count; i++) {
        const struct plan_step *s = &plan->steps[i];
        if (s->op == PLAN_NONE) continue;
        uint64_t loads = s->op == PLAN_SUM ? rank_all(plan->n) : rank_bit(s->source_rank);
        for (int r = 0; r < plan->n; r++) {
            if (r == plan->rank) continue;
            uint64_t in = loads >> r & 1 ? s->length * sizeof(float) : 0;
            uint64_t out = s->dest_ranks >> r & 1 ? s->length * sizeof(float) : 0;
            if (bytes) {
                bytes[r * plan->n + plan->rank] += in;
                bytes[plan->rank * plan->n + r] += out;
            }
            sum += in + out;
        }
    }
    return sum;
}
