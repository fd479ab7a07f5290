/* Cuts ranges, makes steps and appends them; see steps.h. */
#include "allreduce/plans/steps.h"

#include "base/error.h"
#include "base/grow.h"

/* ---- ranges ---- */

static size_t at_most(size_t x, size_t most) {
    return x < most ? x : most;
}

struct range range_part(struct range whole, int parts, int i, size_t align) {
    size_t part = (whole.length + (size_t)parts - 1) / (size_t)parts;
    part = (part + align - 1) / align * align;
    return range_piece(whole, part, (size_t)i);
}

struct range range_piece(struct range whole, size_t length, size_t i) {
    size_t start = at_most(length * i, whole.length);
    return (struct range){whole.offset + start, at_most(length, whole.length - start)};
}

size_t range_pieces(struct range whole, size_t length) {
    return (whole.length + length - 1) / length;
}

int plan_slices(const struct plan_config *config, size_t count, size_t length) {
    size_t least = count >= config->pipeline_from ? (size_t)config->slices : 1;
    size_t enough = (length + config->slice - 1) / config->slice;
    return (int)(enough > least ? enough : least);
}

size_t plan_scratch_slice(const struct plan_config *config, size_t room) {
    size_t slice = at_most(room, config->slice);
    return slice > config->align ? slice - slice % config->align : slice;
}

/* ---- steps ---- */

static struct plan_step in_place(enum plan_op op, struct range part, uint64_t dest_ranks) {
    return (struct plan_step){
        .op = (uint8_t)op,
        .source_buffer = PLAN_DATA,
        .source_offset = part.offset,
        .dest_buffer = PLAN_DATA,
        .dest_offset = part.offset,
        .dest_ranks = dest_ranks,
        .length = part.length,
    };
}

struct plan_step copy_from(int rank, struct range part, uint64_t dest_ranks) {
    struct plan_step step = in_place(PLAN_COPY, part, dest_ranks);
    step.source_rank = (int16_t)rank;
    return step;
}

struct plan_step reduce_from(int rank, struct range part, uint64_t dest_ranks) {
    struct plan_step step = in_place(PLAN_REDUCE, part, dest_ranks);
    step.source_rank = (int16_t)rank;
    return step;
}

struct plan_step sum_all(struct range part, uint64_t dest_ranks) {
    return in_place(PLAN_SUM, part, dest_ranks);
}

void from_scratch(struct plan_step *step, size_t offset) {
    step->source_buffer = PLAN_SCRATCH;
    step->source_offset = offset;
}

void to_scratch(struct plan_step *step, size_t offset) {
    step->dest_buffer = PLAN_SCRATCH;
    step->dest_offset = offset;
}

void await(struct plan_step *step, uint64_t ranks, enum plan_flag kind, size_t epoch) {
    step->wait_ranks = ranks;
    step->wait_kind = (uint8_t)kind;
    step->wait_epoch = (uint32_t)epoch;
}

void post(struct plan_step *step, uint64_t ranks, enum plan_flag kind, size_t epoch) {
    step->post_ranks = ranks;
    step->post_kind = (uint8_t)kind;
    step->post_epoch = (uint32_t)epoch;
}

void add_step(struct plan *plan, struct plan_step step) {
    if (!plan->error)
        plan->error = list_grow("allreduce plan", &plan->steps, plan->step_count,
                                &plan->step_capacity, sizeof step);
    if (!plan->error) plan->steps[plan->step_count++] = step;
}

void add_await(struct plan *plan, uint64_t ranks, enum plan_flag kind, size_t epoch) {
    struct plan_step step = {.op = PLAN_NONE};
    await(&step, ranks, kind, epoch);
    add_step(plan, step);
}

void add_post(struct plan *plan, uint64_t ranks, enum plan_flag kind, size_t epoch) {
    struct plan_step step = {.op = PLAN_NONE};
    post(&step, ranks, kind, epoch);
    add_step(plan, step);
}
