/* naive: everything goes to rank 0, is added there, and comes back. The textbook's first
 * allreduce, kept because it shows what the others save: rank 0 moves 2(n-1)S bytes and does all
 * the work while the rest wait.
 *
 *     rank 1 --\                      /--> rank 1
 *     rank 2 ---> rank 0: x0+x1+.. --+---> rank 2
 *     rank 3 --/                      \--> rank 3
 *
 * Rank 0 acts alone; the others only say "ready" and wait for "done". The sum is taken
 * literally, term by term in fold order: x1 .. x(n-1) are copied into rank
 * 0's scratch, one slice at a time, and added there. So `naive` judges PLAN_SUM, which the
 * others use, by different means.
 *
 * Flags                written by          read by         meaning
 *   ready, epoch 1     each rank r > 0     rank 0          r is in the call: its data may be read and written
 *   done,  epoch 1     rank 0              each rank r > 0 r's data holds the result and is left alone
 *
 * Early overwriting: rank 0 alone touches everything between ready and done, and takes its steps
 * in order. Its scratch is its own. A rank r > 0 waits for done before it leaves, and says ready
 * of the next call after that. */
#include "allreduce/plan.h"
#include "base/fold.h"

/* Where term r of the present slice lies: rank 0's own in its data, the others' in its scratch. */
static struct plan_step place_term(struct plan_step s, int r, size_t slice, struct range part) {
    s.dest_buffer = r == 0 ? PLAN_DATA : PLAN_SCRATCH;
    s.dest_offset = r == 0 ? part.offset : (size_t)(r - 1) * slice;
    return s;
}

static void sum_slice(struct plan *plan, struct range part, size_t slice, int first, int last) {
    int n = plan->n;
    for (int r = 1; r < n; r++) {
        struct plan_step take = {.op = PLAN_COPY,
                                 .scale = PLAN_SCALE_SOURCE,
                                 .source_buffer = PLAN_DATA,
                                 .source_rank = (int16_t)r,
                                 .source_offset = part.offset,
                                 .dest_ranks = rank_bit(0),
                                 .length = part.length};
        if (first) {
            take.wait_ranks = rank_bit(r);
            take.wait_kind = PLAN_READY;
            take.wait_epoch = 1;
        }
        take = place_term(take, r, slice, part);
        plan_add(plan, &take);
    }
    int own_is_raw = 1;
    for (struct fold f = fold_begin(n); fold_next(&f);) {
        struct plan_step from =
            place_term((struct plan_step){.op = PLAN_NONE}, f.from, slice, part);
        struct plan_step add = {.op = PLAN_REDUCE,
                                .source_buffer = from.dest_buffer,
                                .source_offset = from.dest_offset,
                                .source_rank = 0,
                                .dest_ranks = rank_bit(0),
                                .length = part.length};
        add = place_term(add, f.to, slice, part);
        if (f.to == 0 && own_is_raw) {
            add.scale = PLAN_SCALE_DEST;
            own_is_raw = 0;
        }
        plan_add(plan, &add);
    }
    struct plan_step give = {.op = PLAN_COPY,
                             .source_buffer = PLAN_DATA,
                             .source_rank = 0,
                             .source_offset = part.offset,
                             .dest_buffer = PLAN_DATA,
                             .dest_ranks = rank_others(n, 0),
                             .dest_offset = part.offset,
                             .length = part.length};
    if (last) {
        give.post_ranks = rank_others(n, 0);
        give.post_kind = PLAN_DONE;
        give.post_epoch = 1;
    }
    plan_add(plan, &give);
}

void plan_naive(struct plan *plan, const struct plan_config *config) {
    plan->epochs = 1;
    if (plan->rank > 0) {
        struct plan_step ready = {
            .post_ranks = rank_bit(0), .post_kind = PLAN_READY, .post_epoch = 1};
        struct plan_step done = {
            .wait_ranks = rank_bit(0), .wait_kind = PLAN_DONE, .wait_epoch = 1};
        plan_add(plan, &ready);
        plan_add(plan, &done);
        return;
    }
    size_t slice = config->scratch / (size_t)(plan->n - 1);
    if (slice > config->slice) slice = config->slice;
    if (slice > config->align) slice -= slice % config->align;
    plan->scratch = slice * (size_t)(plan->n - 1);
    for (size_t at = 0; at < plan->count; at += slice) {
        size_t left = plan->count - at;
        struct range part = {at, slice < left ? slice : left};
        sum_slice(plan, part, slice, at == 0, left <= slice);
    }
}
