/* Collectives through windows, in the pattern of pattern.h.
 *
 * A window has two halves, and the pieces of a block alternate between them: while piece j is taken
 * from one half, piece j + 1 is shown in the other.
 *
 *     rank that shows    show 0   show 1            show 2 (when 0 is taken)   ...
 *     rank that takes             take 0            take 1                     ...
 *
 * Flags                    written by    read by       meaning
 *   ready, epoch j + 1     who shows     who takes     piece j is in my window
 *   done,  epoch j + 1     who takes     who showed    I have taken piece j
 *
 * Epochs are 1 .. m, for m pieces. If blocks differ in length, m counts the pieces of the longest
 * one, and the flags between two ranks count the pieces that go from one to the other.
 *
 * Early overwriting. A rank writes to its own window only. It shows piece j when all takers are
 * done with piece j - 2, which was in the same half, and leaves when they are done with all pieces.
 * So no rank touches a window before its owner is in the call, or after the owner has left it
 * (plan.h, rules 1 and 2). The result of some of these calls does not depend on all ranks, but no
 * SCRATCH is used, so rule 3 is not needed. These calls do not count towards the alternation of
 * SCRATCH halves.
 *
 * A deadlock is impossible: order the steps of all ranks by piece, show before take. A show of
 * piece j awaits takes of piece j - 2, and a take of piece j awaits shows of piece j. So each step
 * awaits only earlier steps, and in each rank show j + 1 is before take j. */
#include "group/plans/windows.h"

#include <string.h>

#include "base/error.h"
#include "group/plans/pattern.h"

/* Shows piece j of the block for rank `to`, which `readers` take. */
static void show_block(const struct flow *f, size_t j, int to, uint64_t readers) {
    const struct window_request *q = f->q;
    if (j >= pieces_of(f, q->rank, to)) return;
    struct range piece = range_piece(block_of(q, q->rank, to), f->piece, j);
    piece.offset += input_at(q, f->pattern, to);
    struct plan_step copy = copy_from(q->rank, piece, rank_bit(q->rank));
    copy.source_buffer = PLAN_INPUT;
    copy.dest_offset = part_offset(f, j, f->pattern->parts ? to : 0);
    if (readers && j >= HALVES) await(&copy, readers, PLAN_DONE, j + 1 - HALVES);
    if (readers) post(&copy, readers, PLAN_READY, j + 1);
    add_step(f->plan, copy);
}

/* Each rank takes from its right neighbour first, so each shows to its left one first; and last to
 * itself, since a sum reads this rank's own block in its window too. */
static void show(const struct flow *f, size_t j) {
    int n = f->q->n, me = f->q->rank;
    if (!f->pattern->parts) {
        show_block(f, j, f->takers ? __builtin_ctzll(f->takers) : me, f->takers);
        return;
    }
    for (int k = 1; k <= n; k++) {
        int to = (me + n - k) % n;
        if (to != me || f->pattern->sums) show_block(f, j, to, rank_bit(to) & ~rank_bit(me));
    }
}

/* Nobody reads this rank's window any more. */
static void leave(const struct flow *f) {
    int me = f->q->rank;
    if (!f->q->sizes) {
        add_await(f->plan, f->takers, PLAN_DONE, pieces_of(f, me, me));
        return;
    }
    for (int to = 0; to < f->q->n; to++)
        if (f->takers >> to & 1 && pieces_of(f, me, to))
            add_await(f->plan, rank_bit(to), PLAN_DONE, pieces_of(f, me, to));
}

static size_t most_pieces(const struct flow *f) {
    size_t most = 0;
    for (int from = 0; from < f->q->n; from++)
        for (int to = 0; to < f->q->n; to++)
            if (pieces_of(f, from, to) > most) most = pieces_of(f, from, to);
    return most;
}

static void through_windows(struct plan *plan, const struct window_request *q,
                            const struct pattern *p) {
    struct flow f = flow_of(plan, q, p);
    size_t pieces = most_pieces(&f);
    plan->epochs = (uint32_t)pieces;
    for (size_t j = 0; j <= pieces; j++) {
        if (f.shows && j < pieces) show(&f, j);
        keep_own(&f, j);
        if (j > 0) take_piece(&f, j - 1);
    }
    if (f.shows && f.takers) leave(&f);
}

/* ---- calls that do not fit the pattern ---- */

/* The algorithm, in place in the windows. Others touch its DATA only after this rank has posted a
 * flag, after the copy in, and no longer once it leaves, before the copy out. */
static int allreduce_in_windows(struct plan *plan, const struct window_request *q) {
    int me = q->rank;
    struct plan inner;
    struct plan_step in = copy_from(me, (struct range){0, q->count}, rank_bit(me)), out = in;
    CHECK(plan_build(&inner, q->algorithm, q->n, me, q->count, &q->config));
    in.source_buffer = PLAN_INPUT;
    out.dest_buffer = PLAN_OUTPUT;
    plan->scratch = inner.scratch;
    plan->epochs = inner.epochs;
    add_step(plan, in);
    for (int i = 0; i < inner.step_count; i++)
        add_step(plan, inner.steps[i]);
    add_step(plan, out);
    plan_free(&inner);
    return OK;
}

/* Each rank tells all others that it has arrived. */
static void barrier(struct plan *plan, const struct window_request *q) {
    uint64_t others = rank_others(q->n, q->rank);
    plan->epochs = 1;
    if (!others) return;
    add_post(plan, others, PLAN_READY, 1);
    add_await(plan, others, PLAN_READY, 1);
}

/* ---- all of them ---- */

int plan_build_window(struct plan *plan, const struct window_request *q) {
    const struct pattern *p = pattern_of(q->what);
    memset(plan, 0, sizeof *plan);
    plan->what = q->what;
    plan->algorithm = p ? ALLREDUCE_AUTO : q->algorithm;
    plan->n = q->n;
    plan->rank = q->rank;
    plan->count = q->count;
    plan->data = q->window;
    plan->input = p ? input_at(q, p, q->n - 1) + block_of(q, q->rank, q->n - 1).length : q->count;
    plan->output = p ? output_at(q, p, q->n - 1) + block_of(q, q->n - 1, q->rank).length : q->count;
    if (q->slots)
        through_slots(plan, q, p);
    else if (q->what == COLLECTIVE_BARRIER)
        barrier(plan, q);
    else if (q->what == COLLECTIVE_SEND)
        send_message(plan, q);
    else if (p && p->shows && (q->count || q->sizes))
        through_windows(plan, q, p);
    else if (!p && q->count)
        CHECK_KEEP(allreduce_in_windows(plan, q), plan->error);
    int code = plan->error;
    if (code) plan_free(plan);
    return code;
}

size_t window_longest(const struct window_request *q) {
    const struct pattern *p = pattern_of(q->what);
    if (!p) return q->window;
    if (q->what == COLLECTIVE_BARRIER) return SIZE_MAX;
    size_t piece =
        q->what == COLLECTIVE_SEND ? q->window / MAILBOX_PIECES - q->head : piece_of(q, p);
    return piece * MOST_PIECES;
}

size_t window_touched(const struct window_request *q) {
    const struct pattern *p = pattern_of(q->what);
    size_t n = (size_t)q->n;
    if (!p) return 2 * n * q->count;
    size_t shows = (size_t)__builtin_popcountll(ranks_of(p->shows, q->n, q->root)),
           takes = (size_t)__builtin_popcountll(ranks_of(p->takes, q->n, q->root));
    return (shows * (p->parts ? n : 1) + takes * (p->stacks ? n : 1)) * q->count;
}
