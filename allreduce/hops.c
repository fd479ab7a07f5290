/* Finds the moves of a call and the hop of each move; see hops.h. It runs all ranks' plans on
 * integers, each step as soon as the flags that it awaits are posted. For every range of memory it
 * records in which hop the range was last copied to, added to and read. A move that uses the range
 * follows those hops. Additions into one stretch do not wait for each other, since their order does
 * not matter. */
#include "allreduce/hops.h"

#include <stdlib.h>
#include <string.h>

#include "allreduce/cuts.h"
#include "allreduce/walk.h"
#include "base/error.h"
#include "base/grow.h"

/* The hops in which a stretch of memory was last touched; 0: never, or before the call. */
struct touched {
    int copied, added, read;
};

struct builder {
    struct hops *out;
    const struct plan *plans;
    int n;
    struct cuts cuts[HOP_BUFFERS];
    struct touched *touched[HOP_BUFFERS]; /* [n][stretches] */
    int *ended[MAX_DEVICES]; /* [rank][step]: the hop of the last move of a step that ran */
    int step;                /* the step that is running */
    /* [reader][kind][writer]: the step of `writer` that posts what `reader` last awaited */
    int (*poster)[PLAN_FLAG_KINDS][MAX_DEVICES];
};

/* One move of a step, before its hop is known. */
struct location {
    int rank, buffer;
    uint64_t offset;
};

/* ---- which move comes after which ---- */

static int later(int a, int b) {
    return a > b ? a : b;
}

/* The hop of a move that depends on moves of `hop`. Moves within a rank take no hop. */
static int next_hop(int hop, int over_link) {
    return hop + (over_link ? 1 : 0);
}

static struct touched *touched_at(const struct builder *b, struct location p, uint64_t count,
                                  size_t *stretches) {
    const struct cuts *cuts = &b->cuts[p.buffer];
    size_t first = cuts_find(cuts, p.offset);
    *stretches = cuts_find(cuts, p.offset + count) - first;
    return b->touched[p.buffer] + (size_t)p.rank * (size_t)cuts->count + first;
}

static int hop_of_read(const struct builder *b, struct location from, uint64_t count, int hop) {
    size_t stretches;
    const struct touched *t = touched_at(b, from, count, &stretches);
    for (size_t i = 0; i < stretches; i++)
        hop = later(hop, later(t[i].copied, t[i].added));
    return hop;
}

static int hop_of_write(const struct builder *b, struct location to, uint64_t count, int action,
                        int hop) {
    size_t stretches;
    const struct touched *t = touched_at(b, to, count, &stretches);
    for (size_t i = 0; i < stretches; i++) {
        hop = later(hop, later(t[i].copied, t[i].read));
        if (action == HOP_COPY) hop = later(hop, t[i].added);
    }
    return hop;
}

static void touch(const struct builder *b, const struct hop_move *m) {
    struct location from = {m->from, m->from_buffer, m->from_offset},
                    to = {m->to, m->to_buffer, m->to_offset};
    size_t stretches;
    struct touched *t = touched_at(b, from, m->count, &stretches);
    for (size_t i = 0; i < stretches; i++)
        t[i].read = later(t[i].read, m->hop);
    t = touched_at(b, to, m->count, &stretches);
    for (size_t i = 0; i < stretches; i++) {
        int *hop = m->action == HOP_COPY ? &t[i].copied : &t[i].added;
        *hop = later(*hop, m->hop);
    }
}

/* ---- the moves of a step ---- */

static int append(struct hops *h, const struct hop_move *move) {
    if (h->move_count == HOPS_MOST_MOVES)
        return fail(ERR_USAGE, "hops: more than %d moves: give fewer bytes or ranks",
                    HOPS_MOST_MOVES);
    CHECK(list_grow("hops", &h->moves, h->move_count, &h->move_capacity, sizeof *move));
    h->moves[h->move_count++] = *move;
    return OK;
}

/* Appends one move after everything that it depends on, and after hop `after`; sets *hop to its
 * hop. Moving a range onto itself is not a move. */
static int add_move(struct builder *b, int rank, struct location from, struct location to,
                    int action, uint64_t count, int after, int *hop) {
    *hop = after;
    if (!memcmp(&from, &to, sizeof from)) return OK;
    *hop = next_hop(hop_of_write(b, to, count, action, hop_of_read(b, from, count, after)),
                    from.rank != to.rank);
    struct hop_move move = {.hop = *hop,
                            .from = (int16_t)from.rank,
                            .to = (int16_t)to.rank,
                            .by = (int16_t)rank,
                            .action = (uint8_t)action,
                            .from_buffer = (uint8_t)from.buffer,
                            .to_buffer = (uint8_t)to.buffer,
                            .step = b->step,
                            .order = b->out->move_count,
                            .from_offset = from.offset,
                            .to_offset = to.offset,
                            .count = count};
    CHECK(append(b->out, &move));
    touch(b, &move);
    if (from.rank != to.rank) b->out->hops = later(b->out->hops, *hop);
    return OK;
}

/* The two halves of a step. The rank first brings together, at its own destination, what the step
 * reads. A copy of its own data needs no first half. Then it stores to the other destinations.
 * *hop: the hop of the flags going in, that of the last move coming out. */
static int add_moves(struct builder *b, const struct plan *p, const struct plan_step *s, int *hop) {
    int me = p->rank, keeps = s->dest_ranks >> me & 1, after = *hop, loaded = *hop;
    int reduces = s->op == PLAN_REDUCE || s->op == PLAN_REDUCE_COPY;
    int only_copies = s->op == PLAN_COPY && s->source_rank == me;
    struct location own_source = {me, s->source_buffer, s->source_offset},
                    own_dest = {me, s->dest_buffer, s->dest_offset},
                    held = only_copies ? own_source : own_dest;
    if (!keeps && !only_copies)
        return fail(ERR_FAILED, "hops: rank %d loads what it does not keep: a bug in the plan", me);
    if (s->op == PLAN_SUM || only_copies) {
        if (keeps) CHECK(add_move(b, me, own_source, own_dest, HOP_COPY, s->length, after, hop));
    } else {
        struct location from = {s->source_rank, s->source_buffer, s->source_offset};
        CHECK(add_move(b, me, from, held, reduces ? HOP_REDUCE : HOP_COPY, s->length, after, hop));
    }
    if (!only_copies) loaded = later(loaded, *hop);
    for (int r = 0; s->op == PLAN_SUM && r < p->n; r++) {
        struct location from = {r, s->source_buffer, s->source_offset};
        if (r == me) continue;
        CHECK(add_move(b, me, from, held, HOP_REDUCE, s->length, after, hop));
        loaded = later(loaded, *hop);
    }
    int last = loaded;
    for (int r = 0; r < p->n; r++) {
        struct location to = {r, s->dest_buffer, s->dest_offset};
        if (r == me || !(s->dest_ranks >> r & 1)) continue;
        CHECK(add_move(b, me, held, to, HOP_COPY, s->length, loaded, hop));
        last = later(last, *hop);
    }
    *hop = last;
    return OK;
}

/* ---- all steps of all ranks ---- */

/* The step of rank w that posts what step s of rank r awaits from it; -1: there is none. The epochs
 * of a flag only grow, so the search goes on where the last one ended. */
static int poster_of(struct builder *b, int r, int w, const struct plan_step *s) {
    const struct plan *p = &b->plans[w];
    int *at = &b->poster[r][s->wait_kind][w];
    if (*at < p->step_count && p->steps[*at].post_epoch > s->wait_epoch) *at = 0;
    for (; *at < p->step_count; ++*at) {
        const struct plan_step *post = &p->steps[*at];
        if (post->post_kind == s->wait_kind && post->post_ranks >> r & 1 &&
            post->post_epoch >= s->wait_epoch)
            return *at;
    }
    *at = 0;
    return -1;
}

/* The hop of the latest flag that the step awaits; all have been posted. */
static int hop_of_flags(struct builder *b, int rank, const struct plan_step *s) {
    int hop = 0;
    for (int w = 0; w < b->n; w++) {
        if (!(s->wait_ranks >> w & 1)) continue;
        int step = poster_of(b, rank, w, s);
        if (step >= 0) hop = later(hop, b->ended[w][step]);
    }
    return hop;
}

static int run_step(void *context, int rank, int step) {
    struct builder *b = context;
    const struct plan *p = &b->plans[rank];
    const struct plan_step *s = &p->steps[step];
    int hop = hop_of_flags(b, rank, s);
    b->step = step;
    if (s->op != PLAN_NONE && s->length) CHECK(add_moves(b, p, s, &hop));
    b->ended[rank][step] = hop;
    return OK;
}

/* ---- memory ---- */

static int builder_init(struct builder *b) {
    for (int r = 0; r < b->n; r++) {
        const struct plan *p = &b->plans[r];
        if (p->n != b->n || p->rank != r || p->count != b->plans[0].count || p->input || p->output)
            return fail(ERR_FAILED, "hops: the plan of rank %d is of another call: a bug", r);
        const size_t sizes[] = {p->data ? p->data : p->count, p->scratch};
        for (int k = 0; k < HOP_BUFFERS; k++)
            if (sizes[k] > b->out->sizes[k]) b->out->sizes[k] = sizes[k];
        b->ended[r] = calloc((size_t)p->step_count + 1, sizeof *b->ended[r]);
        if (!b->ended[r]) return fail(ERR_MEMORY, "hops: out of host memory for steps: free some");
        for (int i = 0; i < p->step_count; i++) {
            const struct plan_step *s = &p->steps[i];
            if (s->op == PLAN_NONE || !s->length) continue;
            CHECK(cuts_add(&b->cuts[s->source_buffer], s->source_offset, s->length));
            CHECK(cuts_add(&b->cuts[s->dest_buffer], s->dest_offset, s->length));
        }
    }
    b->poster = calloc((size_t)b->n, sizeof *b->poster);
    for (int k = 0; k < HOP_BUFFERS; k++) {
        cuts_sort(&b->cuts[k]);
        b->touched[k] = calloc((size_t)b->n * (size_t)b->cuts[k].count + 1, sizeof *b->touched[k]);
    }
    for (int k = 0; k < HOP_BUFFERS; k++)
        if (!b->poster || !b->touched[k])
            return fail(ERR_MEMORY, "hops: out of host memory for %d ranks: free some", b->n);
    return OK;
}

static void builder_free(struct builder *b) {
    free(b->poster);
    for (int k = 0; k < HOP_BUFFERS; k++) {
        free(b->touched[k]);
        cuts_free(&b->cuts[k]);
    }
    for (int r = 0; r < b->n; r++)
        free(b->ended[r]);
}

int hops_of_plans(struct hops *hops, const struct plan *plans, int n) {
    memset(hops, 0, sizeof *hops);
    if (n < 1 || n > MAX_DEVICES)
        return fail(ERR_USAGE, "hops: %d ranks: give 1 to %d", n, MAX_DEVICES);
    struct builder b = {.out = hops, .plans = plans, .n = n};
    hops->name = plan_name(&plans[0]);
    hops->n = n;
    hops->count = plans[0].count;
    int code = builder_init(&b);
    if (!code) code = plan_walk(plans, n, run_step, &b);
    if (!code) code = hops_join(hops);
    builder_free(&b);
    if (code) hops_free(hops);
    return code;
}

int hops_of_call(struct hops *hops, enum allreduce_algorithm algorithm, int n, size_t count,
                 const struct plan_config *config) {
    struct plan_config usual = plan_config_default();
    struct plan plans[MAX_DEVICES] = {{.n = 0}};
    int code = OK;
    memset(hops, 0, sizeof *hops);
    if (n < 1 || n > MAX_DEVICES)
        return fail(ERR_USAGE, "hops: %d ranks: give 1 to %d", n, MAX_DEVICES);
    for (int r = 0; !code && r < n; r++)
        code = plan_build(&plans[r], algorithm, n, r, count, config ? config : &usual);
    if (!code) code = hops_of_plans(hops, plans, n);
    for (int r = 0; r < n; r++)
        plan_free(&plans[r]);
    return code;
}

void hops_free(struct hops *hops) {
    if (!hops) return;
    free(hops->moves);
    free(hops->chunks);
    memset(hops, 0, sizeof *hops);
}
