/* The table of collectives, and the verbs that windows and slots share: see pattern.h. */
#include "group/plans/pattern.h"

/* ---- the table ---- */

static const struct pattern patterns[] = {
    [COLLECTIVE_BARRIER] = {NOBODY, NOBODY, 0, 0, 0, "BARRIER"},
    [COLLECTIVE_BROADCAST] = {ROOT, ALL_BUT_ROOT, 0, 0, 0, "BROADCAST"},
    [COLLECTIVE_SCATTER] = {ROOT, ALL_BUT_ROOT, 1, 0, 0, "SCATTER"},
    [COLLECTIVE_GATHER] = {ALL_BUT_ROOT, ROOT, 0, 0, 1, "GATHER"},
    [COLLECTIVE_REDUCE] = {EVERYBODY, ROOT, 0, 1, 0, "REDUCE"},
    [COLLECTIVE_ALL_GATHER] = {EVERYBODY, EVERYBODY, 0, 0, 1, "ALLGATHER"},
    [COLLECTIVE_ALL_TO_ALL] = {EVERYBODY, EVERYBODY, 1, 0, 1, "ALLTOALL"},
    [COLLECTIVE_REDUCE_SCATTER] = {EVERYBODY, EVERYBODY, 1, 1, 0, "REDUCE_SCATTER"},
    [COLLECTIVE_SEND] = {NOBODY, NOBODY, 0, 0, 0, "SEND"},
};

const struct pattern *pattern_of(enum collective what) {
    return what == COLLECTIVE_ALL_REDUCE ? NULL : &patterns[what];
}

const char *window_name(enum collective what) {
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

size_t piece_of(const struct window_request *q, const struct pattern *p) {
    size_t room = q->window / HALVES / (p->parts ? (size_t)q->n : 1), align = q->config.align;
    return room > align ? room - room % align : room;
}

struct flow flow_of(struct plan *plan, const struct window_request *q, const struct pattern *p) {
    uint64_t me = rank_bit(q->rank), showers = ranks_of(p->shows, q->n, q->root),
             takers = ranks_of(p->takes, q->n, q->root);
    return (struct flow){.plan = plan,
                         .q = q,
                         .pattern = p,
                         .showers = showers & ~me,
                         .takers = takers & ~me,
                         .shows = (showers & me) != 0,
                         .takes = (takers & me) != 0,
                         .piece = q->slots ? q->count : piece_of(q, p)};
}

struct range block_of(const struct window_request *q, int from, int to) {
    return (struct range){0, q->sizes ? q->sizes[from * q->n + to] : q->count};
}

size_t pieces_of(const struct flow *f, int from, int to) {
    return range_pieces(block_of(f->q, from, to), f->piece);
}

size_t input_at(const struct window_request *q, const struct pattern *p, int to) {
    size_t at = 0;
    for (int r = 0; r < to && p->parts; r++)
        at += q->sizes ? block_of(q, q->rank, r).length : q->stride;
    return at;
}

size_t output_at(const struct window_request *q, const struct pattern *p, int from) {
    size_t at = 0;
    for (int r = 0; r < from && p->stacks; r++)
        at += q->sizes ? block_of(q, r, q->rank).length : q->stride;
    return at;
}

size_t part_offset(const struct flow *f, size_t j, int b) {
    return (j % HALVES * (f->pattern->parts ? (size_t)f->q->n : 1) + (size_t)b) * f->piece;
}

/* ---- the verbs ---- */

/* This rank's block for itself, after its show of piece j. In an all_gather that is the block it
 * shows, copied piece by piece while each is in a cache. */
void keep_own(const struct flow *f, size_t j) {
    const struct pattern *p = f->pattern;
    int me = f->q->rank, is_shown = f->shows && !p->parts;
    int has = !p->sums && (p->parts ? f->shows : p->stacks && f->takes);
    struct range own = block_of(f->q, me, me),
                 part = range_piece(own, is_shown ? f->piece : own.length, j);
    if (!has || !part.length) return;
    struct plan_step copy = copy_from(me, part, rank_bit(me));
    copy.source_buffer = PLAN_INPUT;
    copy.source_offset += input_at(f->q, p, me);
    copy.dest_buffer = PLAN_OUTPUT;
    copy.dest_offset += output_at(f->q, p, me);
    add_step(f->plan, copy);
}

/* The step reads piece j of what `ranks` show. A window is given back to them. */
static void read_shown(const struct flow *f, struct plan_step *step, uint64_t ranks, size_t j) {
    int slots = f->q->slots != 0;
    step->source_buffer = slots ? PLAN_SCRATCH : PLAN_DATA;
    step->source_offset = part_offset(f, j, f->pattern->parts ? f->q->rank : 0);
    step->dest_buffer = PLAN_OUTPUT;
    if (!ranks) return;
    await(step, ranks, slots ? PLAN_SHOWN : PLAN_READY, j + 1);
    if (!slots) post(step, ranks, PLAN_DONE, j + 1);
}

/* This rank's own term is in its window, or, with slots, in INPUT itself. */
static void take_sum(const struct flow *f, size_t j) {
    int me = f->q->rank;
    if (j >= pieces_of(f, me, me)) return;
    struct plan_step sum = sum_all(range_piece(block_of(f->q, me, me), f->piece, j), rank_bit(me));
    if (f->q->slots) sum.op = PLAN_SUM_OWN;
    sum.scale = PLAN_SCALE_SOURCE;
    read_shown(f, &sum, f->showers, j);
    add_step(f->plan, sum);
}

/* Each rank begins with its neighbour, not all with rank 0. */
static void take_copies(const struct flow *f, size_t j) {
    const struct window_request *q = f->q;
    for (int k = 1; k < q->n; k++) {
        int from = (q->rank + k) % q->n;
        if (!(f->showers >> from & 1) || j >= pieces_of(f, from, q->rank)) continue;
        struct range piece = range_piece(block_of(q, from, q->rank), f->piece, j);
        struct plan_step copy = copy_from(from, piece, rank_bit(q->rank));
        copy.dest_offset += output_at(q, f->pattern, from);
        read_shown(f, &copy, rank_bit(from), j);
        add_step(f->plan, copy);
    }
}

void take_piece(const struct flow *f, size_t j) {
    if (!f->takes) return;
    if (f->pattern->sums)
        take_sum(f, j);
    else
        take_copies(f, j);
}
