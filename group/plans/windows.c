/* Collectives through windows. All of them are one pattern: some ranks SHOW blocks in their
 * windows, some ranks TAKE them, by a copy or by a sum over all windows.
 *
 *     what              who shows     blocks    who takes         a taker gets
 *     broadcast         root          1         all but root      root's block
 *     scatter           root          n         all but root      its own block of root's
 *     gather            all but root  1         root              a block of each
 *     reduce            all           1         root              the sum
 *     all_gather        all           1         all               a block of each
 *     all_to_all        all           n         all               its own block of each
 *     reduce_scatter    all           n         all               the sum of its own blocks
 *
 * What a rank has for itself it copies from INPUT to OUTPUT, without the window, unless it is a
 * term of a sum.
 *
 * A window has two halves, and pieces of a block go through them in turn: while piece j is taken
 * from one half, piece j + 1 is shown in the other.
 *
 *     rank that shows    show 0   show 1            show 2 (when 0 is taken)   ...
 *     rank that takes             take 0            take 1                     ...
 *
 * Flags                    written by    read by       meaning
 *   ready, epoch j + 1     who shows     who takes     piece j lies in my window
 *   done,  epoch j + 1     who takes     who showed    I have taken piece j
 *
 * Epochs: 1 .. m, for m pieces. Where blocks have lengths of their own, m is that of the longest,
 * and the flags between two ranks count the pieces that go from one to the other.
 *
 * Early overwriting. A rank writes to its own window alone. It shows piece j when all takers are
 * done with piece j - 2, which lay in the same half, and leaves when they are done with all. So
 * nobody touches a window before its rank is in the call, or after that rank has left it (plan.h,
 * rules 1 and 2). The result of some of these calls does not depend on all ranks, but no SCRATCH is
 * used, so rule 3 is not needed; they are not counted among the calls by which halves alternate.
 *
 * There is no deadlock: order the steps of all ranks by piece, show before take. A show of piece j
 * awaits takes of piece j - 2 and a take of piece j shows of piece j, so each step awaits only
 * steps before it, and in each rank show j + 1 stands before take j. */
#include "group/plans/windows.h"

#include <string.h>

#include "group/plans/pattern.h"
#include "base/error.h"

enum { HALVES = 2, MOST_PIECES = 64 };

/* ---- the table ---- */

static const struct pattern patterns[] = {
    [WINDOW_BARRIER - WINDOW_BARRIER] = {WINDOW_BARRIER, NOBODY, NOBODY, 0, 0, 0, "BARRIER"},
    [WINDOW_BROADCAST -
        WINDOW_BARRIER] = {WINDOW_BROADCAST, ROOT, ALL_BUT_ROOT, 0, 0, 0, "BROADCAST"},
    [WINDOW_SCATTER - WINDOW_BARRIER] = {WINDOW_SCATTER, ROOT, ALL_BUT_ROOT, 1, 0, 0, "SCATTER"},
    [WINDOW_GATHER - WINDOW_BARRIER] = {WINDOW_GATHER, ALL_BUT_ROOT, ROOT, 0, 0, 1, "GATHER"},
    [WINDOW_REDUCE - WINDOW_BARRIER] = {WINDOW_REDUCE, EVERYBODY, ROOT, 0, 1, 0, "REDUCE"},
    [WINDOW_ALL_GATHER -
        WINDOW_BARRIER] = {WINDOW_ALL_GATHER, EVERYBODY, EVERYBODY, 0, 0, 1, "ALLGATHER"},
    [WINDOW_ALL_TO_ALL -
        WINDOW_BARRIER] = {WINDOW_ALL_TO_ALL, EVERYBODY, EVERYBODY, 1, 0, 1, "ALLTOALL"},
    [WINDOW_REDUCE_SCATTER -
        WINDOW_BARRIER] = {WINDOW_REDUCE_SCATTER, EVERYBODY, EVERYBODY, 1, 1, 0, "REDUCE_SCATTER"},
    [WINDOW_SEND - WINDOW_BARRIER] = {WINDOW_SEND, NOBODY, NOBODY, 0, 0, 0, "SEND"},
};

const struct pattern *pattern_of(enum allreduce_algorithm what) {
    if (what < WINDOW_BARRIER || what > WINDOW_SEND) return NULL;
    return &patterns[what - WINDOW_BARRIER];
}

const char *window_name(enum allreduce_algorithm what) {
    const struct pattern *p = pattern_of(what);
    return p ? p->name : "ALLREDUCE";
}

uint64_t ranks_of(enum whom whom, int n, int root) {
    switch (whom) {
    case ROOT: return rank_bit(root);
    case ALL_BUT_ROOT: return rank_others(n, root);
    case EVERYBODY: return rank_all(n);
    default: return 0;
    }
}

/* ---- one rank's part ---- */

struct flow {
    struct plan *plan;
    const struct window_request *q;
    const struct pattern *pattern;
    uint64_t showers, takers; /* without this rank */
    int shows, takes;         /* this rank does */
    size_t piece;             /* elements of a piece */
};

/* Elements of a piece: a half of a window holds one piece of each block. */
static size_t piece_of(const struct window_request *q, const struct pattern *p) {
    size_t room = q->window / HALVES / (p->parts ? (size_t)q->n : 1), align = q->config.align;
    return room > align ? room - room % align : room;
}

/* Elements that go from one rank to one other. */
static size_t size_of(const struct window_request *q, int from, int to) {
    return q->sizes ? q->sizes[from * q->n + to] : q->count;
}

static struct range block_of(const struct flow *f, int from, int to) {
    return (struct range){0, size_of(f->q, from, to)};
}

static size_t pieces_of(const struct flow *f, int from, int to) {
    return range_pieces(block_of(f, from, to), f->piece);
}

static size_t most_pieces(const struct flow *f) {
    size_t most = 0;
    for (int from = 0; from < f->q->n; from++)
        for (int to = 0; to < f->q->n; to++)
            if (pieces_of(f, from, to) > most) most = pieces_of(f, from, to);
    return most;
}

/* Where the block for rank `to` begins in this rank's INPUT, and that from `from` in its OUTPUT. */
static size_t input_at(const struct window_request *q, const struct pattern *p, int to) {
    size_t at = 0;
    for (int r = 0; r < to && p->parts; r++)
        at += q->sizes ? size_of(q, q->rank, r) : q->stride;
    return at;
}

static size_t output_at(const struct window_request *q, const struct pattern *p, int from) {
    size_t at = 0;
    for (int r = 0; r < from && p->stacks; r++)
        at += q->sizes ? size_of(q, r, q->rank) : q->stride;
    return at;
}

/* Where piece j of block b lies in a window. */
static size_t in_window(const struct flow *f, size_t j, int b) {
    return (j % HALVES * (f->pattern->parts ? (size_t)f->q->n : 1) + (size_t)b) * f->piece;
}

static struct plan_step private_copy(const struct flow *f, size_t from, size_t to, size_t length) {
    int me = f->q->rank;
    struct plan_step step = copy_from(me, (struct range){from, length}, rank_bit(me));
    step.source_buffer = PLAN_INPUT;
    step.dest_buffer = PLAN_OUTPUT;
    step.dest_offset = to;
    return step;
}

/* What this rank has for itself, behind its show of piece j. Of an all_gather that is what it
 * shows, and is kept piece by piece, each of which then lies in a cache. */
static void keep_own(const struct flow *f, size_t j) {
    const struct window_request *q = f->q;
    size_t from = input_at(q, f->pattern, q->rank), to = output_at(q, f->pattern, q->rank);
    int shown = f->pattern->what == WINDOW_ALL_GATHER, has = f->shows || f->takes;
    struct range own = block_of(f, q->rank, q->rank),
                 part = range_piece(own, shown ? f->piece : own.length, j);
    if (f->pattern->what == WINDOW_BROADCAST || f->pattern->sums) has = 0;
    if (f->pattern->what == WINDOW_GATHER) has = f->takes;
    if (f->pattern->what == WINDOW_SCATTER) has = f->shows;
    if (!has || !part.length) return;
    add_step(f->plan, private_copy(f, from + part.offset, to + part.offset, part.length));
}

/* Shows piece j of the block for rank `to`, which `readers` take. */
static void show_block(const struct flow *f, size_t j, int to, uint64_t readers) {
    const struct window_request *q = f->q;
    if (j >= pieces_of(f, q->rank, to)) return;
    struct range piece = range_piece(block_of(f, q->rank, to), f->piece, j);
    piece.offset += input_at(q, f->pattern, to);
    struct plan_step copy = copy_from(q->rank, piece, rank_bit(q->rank));
    copy.source_buffer = PLAN_INPUT;
    copy.dest_offset = in_window(f, j, f->pattern->parts ? to : 0);
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

static void take_sum(const struct flow *f, size_t j) {
    int me = f->q->rank;
    if (j >= pieces_of(f, me, me)) return;
    struct plan_step sum = sum_all(range_piece(block_of(f, me, me), f->piece, j), rank_bit(me));
    sum.source_offset = in_window(f, j, f->pattern->parts ? me : 0);
    sum.dest_buffer = PLAN_OUTPUT;
    sum.scale = PLAN_SCALE_SOURCE;
    if (f->showers) await(&sum, f->showers, PLAN_READY, j + 1);
    if (f->showers) post(&sum, f->showers, PLAN_DONE, j + 1);
    add_step(f->plan, sum);
}

/* Each rank begins with its neighbour, not all with rank 0. */
static void take_copies(const struct flow *f, size_t j) {
    const struct window_request *q = f->q;
    for (int k = 1; k < q->n; k++) {
        int from = (q->rank + k) % q->n;
        if (!(f->showers >> from & 1) || j >= pieces_of(f, from, q->rank)) continue;
        struct range piece = range_piece(block_of(f, from, q->rank), f->piece, j);
        struct plan_step copy = copy_from(from, piece, rank_bit(q->rank));
        copy.source_offset = in_window(f, j, f->pattern->parts ? q->rank : 0);
        copy.dest_buffer = PLAN_OUTPUT;
        copy.dest_offset = output_at(q, f->pattern, from) + piece.offset;
        await(&copy, rank_bit(from), PLAN_READY, j + 1);
        post(&copy, rank_bit(from), PLAN_DONE, j + 1);
        add_step(f->plan, copy);
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

static void through_windows(struct plan *plan, const struct window_request *q,
                            const struct pattern *p) {
    uint64_t me = rank_bit(q->rank), showers = ranks_of(p->shows, q->n, q->root),
             takers = ranks_of(p->takes, q->n, q->root);
    struct flow f = {.plan = plan,
                     .q = q,
                     .pattern = p,
                     .showers = showers & ~me,
                     .takers = takers & ~me,
                     .shows = (showers & me) != 0,
                     .takes = (takers & me) != 0,
                     .piece = piece_of(q, p)};
    size_t pieces = most_pieces(&f);
    plan->epochs = (uint32_t)pieces;
    for (size_t j = 0; j <= pieces; j++) {
        if (f.shows && j < pieces) show(&f, j);
        keep_own(&f, j);
        if (!f.takes || j == 0) continue;
        if (p->sums)
            take_sum(&f, j - 1);
        else
            take_copies(&f, j - 1);
    }
    if (f.shows && f.takers) leave(&f);
}

/* ---- what does not fit the pattern ---- */

/* The algorithm, in place in the windows. Its DATA is touched by others only after this rank has
 * posted a flag, which it does behind the copy in, and no more once it leaves, which it does before
 * the copy out. */
static int allreduce_in_windows(struct plan *plan, const struct window_request *q) {
    int me = q->rank;
    struct plan inner;
    struct plan_step in = copy_from(me, (struct range){0, q->count}, rank_bit(me)), out = in;
    CHECK(plan_build(&inner, q->what, q->n, me, q->count, &q->config));
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

/* Everybody tells everybody that it has come. */
static void barrier(struct plan *plan, const struct window_request *q) {
    uint64_t others = rank_others(q->n, q->rank);
    plan->epochs = 1;
    if (!others) return;
    add_post(plan, others, PLAN_READY, 1);
    add_await(plan, others, PLAN_READY, 1);
}

/* A message goes through the sender's mailbox for that receiver, MAIL_PIECES places used in turn by
 * all messages of the two. Pieces are numbered over all messages, so flags count on from one to
 * the next: the base of a call's epochs is `first`.
 *
 * Flags                        written by     read by        meaning
 *   sent,  epoch k             the sender     the receiver   piece k lies in its place
 *   taken, epoch k + MAIL_...  the receiver   the sender     piece k is taken: its place is free
 *
 * `taken` begins at MAIL_PIECES, since every place is free at first. An executor may keep `sent` of
 * a piece with the piece itself: for that a place begins with `head` elements. */
static void send(struct plan *plan, const struct window_request *q) {
    size_t stride = q->window / MAIL_PIECES, piece = stride - q->head;
    size_t box = (size_t)q->peer * q->window;
    struct range whole = {0, q->count};
    size_t pieces = q->count ? range_pieces(whole, piece) : 1;
    plan->epochs = (uint32_t)pieces;
    plan->credits = MAIL_PIECES;
    plan->scratch = (size_t)q->n * q->window;
    if (q->rank != q->root && q->rank != q->peer) return;
    for (size_t j = 0; j < pieces; j++) {
        struct range part = range_piece(whole, piece, j);
        size_t place = box + (q->first + j) % MAIL_PIECES * stride + q->head;
        struct plan_step step = copy_from(q->root, part, rank_bit(q->rank));
        if (q->rank == q->root) {
            step.source_buffer = PLAN_INPUT;
            to_scratch(&step, place);
            await(&step, rank_bit(q->peer), PLAN_TAKEN, j + 1);
            post(&step, rank_bit(q->peer), PLAN_SENT, j + 1);
        } else {
            from_scratch(&step, place);
            step.dest_buffer = PLAN_OUTPUT;
            await(&step, rank_bit(q->root), PLAN_SENT, j + 1);
            post(&step, rank_bit(q->root), PLAN_TAKEN, j + 1 + MAIL_PIECES);
        }
        add_step(plan, step);
    }
}

/* ---- all of them ---- */

static int check(const struct window_request *q, const struct pattern *p) {
    const char *name = window_name(q->what);
    int sends = q->what == WINDOW_SEND;
    size_t least = sends ? MAIL_PIECES * (q->head + 1) : HALVES * (size_t)q->n;
    if (q->n < 1 || q->n > MAX_DEVICES || q->rank < 0 || q->rank >= q->n)
        return fail(ERR_USAGE, "%s: rank %d of %d: give a rank of 1 to %d ranks", name, q->rank,
                    q->n, MAX_DEVICES);
    if (q->root < 0 || q->root >= q->n)
        return fail(ERR_USAGE, "%s: root %d: give 0 to %d", name, q->root, q->n - 1);
    if (sends && q->n < 2)
        return fail(ERR_USAGE, "%s: of %d rank: two different ranks are needed: give 2 or more",
                    name, q->n);
    if (sends && (q->peer < 0 || q->peer >= q->n || q->peer == q->root))
        return fail(ERR_USAGE, "%s: from rank %d to rank %d of %d: give two different ranks", name,
                    q->root, q->peer, q->n);
    if (!p && !allreduce_has_plan(q->what))
        return fail(ERR_USAGE, "collective %d: has no plan: choose an algorithm", (int)q->what);
    if (q->slots) return check_slots(q, p);
    if (q->window < least || q->config.align < 1 || (!p && q->count > q->window))
        return fail(ERR_USAGE, "%s: a window of %zu elements for %zu: give at least %zu", name,
                    q->window, q->count, p ? least : q->count);
    return OK;
}

int plan_build_window(struct plan *plan, const struct window_request *q) {
    const struct pattern *p = pattern_of(q->what);
    memset(plan, 0, sizeof *plan);
    CHECK(check(q, p));
    plan->algorithm = q->what;
    plan->n = q->n;
    plan->rank = q->rank;
    plan->count = q->count;
    plan->data = q->window;
    plan->input = p ? input_at(q, p, q->n - 1) + size_of(q, q->rank, q->n - 1) : q->count;
    plan->output = p ? output_at(q, p, q->n - 1) + size_of(q, q->n - 1, q->rank) : q->count;
    if (q->slots)
        through_slots(plan, q, p);
    else if (q->what == WINDOW_BARRIER)
        barrier(plan, q);
    else if (q->what == WINDOW_SEND)
        send(plan, q);
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
    if (q->what == WINDOW_BARRIER) return SIZE_MAX;
    size_t piece = q->what == WINDOW_SEND ? q->window / MAIL_PIECES - q->head : piece_of(q, p);
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
