/* Eager collectives through slots. An eager call has few bytes, so its time is the time of its
 * waits. With a window (windows.c) a rank that shows a block waits until all others have taken it,
 * since the next call uses the same window. So each rank has a row of slots for short blocks, and
 * each eager call takes the next slot in all rows:
 *
 *     call                0     1     2     3     4     5     6     7     8 = 0 again
 *     slots of rank 0    [  ]  [  ]  [  ]  [  ]  [  ]  [  ]  [  ]  [  ]
 *     slots of rank 1    [  ]  [  ]  [  ]  [  ]  [  ]  [  ]  [  ]  [  ]
 *                        |----- one half -----|  |--- the other one ----|
 *
 * A rank that shows copies its INPUT to its slot and posts `shown`. A rank that takes awaits
 * `shown` and copies, or adds up, the contents of the slots. It reads its own term of a sum from
 * its INPUT, at the same offset as in its slot. No rank waits at the end: the root of a broadcast
 * continues at once. The pattern (pattern.h) says which ranks show and which take. An allreduce is
 * oneshot: all show, and all add up in fold order. At a barrier all show nothing and await all. The
 * root of a gather and the receivers of a scatter only show that they are in the call. So a rank
 * without a block of its own also notices if they make another call, such as one with split sizes.
 *
 * Flags                              written by   read by      meaning
 *   shown, epoch 1                   who shows    who takes    my block is in my slot
 *   left,  epoch 1 + half the slots  each rank    each other   I have left all earlier calls
 *
 * Epochs count eager calls: call k has the base k on all ranks.
 *
 * Early overwriting. The first call in a half is a turn. It awaits the `left` that each rank posted
 * at the previous turn, half the slots ago. A rank that posted it had left all earlier calls, and
 * these were the last users of the half that now begins. So no rank is ahead of another by more
 * than the number of slots, and it waits for this only once per half. `left` starts at half the
 * slots, as if a turn had preceded the first one.
 *
 * A deadlock is impossible: a show awaits nothing, a take awaits the shows of the same call, and a
 * turn awaits flags posted at the previous turn. */
#include "group/plans/pattern.h"

/* An allreduce. */
static const struct pattern sum_to_all = {.shows = EVERYBODY, .takes = EVERYBODY, .sums = 1};

/* Elements that a rank shows. */
static size_t shown(const struct window_request *q, const struct pattern *p) {
    return q->count * (p->parts ? (size_t)q->n : 1);
}

static void take_turn(struct plan *plan, const struct window_request *q, uint64_t others) {
    struct plan_step step = {.op = PLAN_NONE};
    await(&step, others, PLAN_LEFT, 1);
    post(&step, others, PLAN_LEFT, 1 + q->slots);
    add_step(plan, step);
}

/* All that a rank shows is in one slot, and one flag tells all takers. */
static void show(const struct flow *f) {
    int me = f->q->rank;
    struct plan_step copy = copy_from(me, (struct range){0, shown(f->q, f->pattern)}, rank_bit(me));
    copy.source_buffer = PLAN_INPUT;
    to_scratch(&copy, 0);
    post(&copy, f->takers, PLAN_SHOWN, 1);
    add_step(f->plan, copy);
}

void through_slots(struct plan *plan, const struct window_request *q, const struct pattern *p) {
    struct flow f = flow_of(plan, q, p ? p : &sum_to_all);
    uint64_t others = rank_others(q->n, q->rank);
    plan->data = 0;
    plan->scratch = q->window;
    plan->credits = q->slots;
    plan->epochs = 1;
    if (q->turn && others) take_turn(plan, q, others);
    if (q->what == COLLECTIVE_BARRIER && others) {
        add_post(plan, others, PLAN_SHOWN, 1);
        add_await(plan, others, PLAN_SHOWN, 1);
    }
    int meets = q->what == COLLECTIVE_GATHER || q->what == COLLECTIVE_SCATTER;
    if (meets && f.takes && f.showers) add_post(plan, f.showers, PLAN_SHOWN, 1);
    if (q->count && f.shows && f.takers) show(&f);
    if (q->count) keep_own(&f, 0);
    if (q->count) take_piece(&f, 0);
    if (meets && f.shows && f.takers) add_await(plan, f.takers, PLAN_SHOWN, 1);
}
