/* Tracks the contents of memory after each hop, as sets of terms; see hops.h. It also checks the
 * list of moves. It fails if a term is added twice, or memory is read before it is written. */
#include <stdlib.h>
#include <string.h>

#include "allreduce/hops.h"
#include "base/error.h"
#include "base/grow.h"

/* One buffer of one rank in runs of elements that hold the same terms. A run ends where the next
 * one begins; the last one, without terms, has no end. */
struct runs {
    struct run {
        uint64_t at, terms;
    } * run; /* [count], owned */
    int count, room;
};

struct hops_state {
    const struct hops *of;
    int done; /* moves */
    struct runs runs[MAX_DEVICES][HOP_BUFFERS];
};

/* ---- runs ---- */

static int grow(struct runs *r) {
    return list_grow("hops", &r->run, r->count, &r->room, sizeof *r->run);
}

/* The run that holds the element at `offset`. */
static int run_of(const struct runs *r, uint64_t offset) {
    int low = 0, high = r->count;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (r->run[middle].at <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Makes a run begin at `offset`, and sets *index to it. */
static int cut(struct runs *r, uint64_t offset, int *index) {
    int i = run_of(r, offset);
    *index = i;
    if (r->run[i].at == offset) return OK;
    CHECK(grow(r));
    *index = ++i;
    memmove(r->run + i + 1, r->run + i, (size_t)(r->count - i) * sizeof *r->run);
    r->run[i] = (struct run){offset, r->run[i - 1].terms};
    r->count++;
    return OK;
}

/* Puts `terms` into `count` elements from `offset` on, or adds them to the existing ones. */
static int put(struct runs *r, uint64_t offset, uint64_t count, uint64_t terms, int add) {
    int first, end;
    CHECK(cut(r, offset, &first));
    CHECK(cut(r, offset + count, &end));
    for (int i = first; i < end; i++) {
        uint64_t *held = &r->run[i].terms;
        if (add && (!*held || *held & terms))
            return fail(ERR_FAILED, "hops: a term is %s: a bug in the plan",
                        *held ? "added twice" : "added to nothing");
        *held = add ? *held | terms : terms;
    }
    return OK;
}

/* Joins neighbouring runs that hold the same. */
static void tidy(struct runs *r) {
    int kept = 0;
    for (int i = 0; i < r->count; i++)
        if (!kept || r->run[kept - 1].terms != r->run[i].terms) r->run[kept++] = r->run[i];
    r->count = kept;
}

/* ---- the replay ---- */

int hops_state_init(struct hops_state **out, const struct hops *hops) {
    int code = OK;
    struct hops_state *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return fail(ERR_MEMORY, "hops: out of host memory for a replay: free some");
    s->of = hops;
    for (int r = 0; !code && r < hops->n; r++) {
        for (int b = 0; !code && b < HOP_BUFFERS; b++) {
            struct runs *runs = &s->runs[r][b];
            code = grow(runs);
            if (code) break;
            runs->run[runs->count++] = (struct run){0, 0};
            if (b == PLAN_DATA && hops->sizes[b])
                code = put(runs, 0, hops->sizes[b], rank_bit(r), 0);
        }
    }
    if (code) hops_state_free(s), s = NULL;
    *out = s;
    return code;
}

void hops_state_free(struct hops_state *state) {
    if (!state) return;
    for (int r = 0; r < state->of->n; r++) {
        for (int b = 0; b < HOP_BUFFERS; b++)
            free(state->runs[r][b].run);
    }
    free(state);
}

/* Source and destination may be in the same buffer, but never overlap, so that the source's runs
 * stay what they are while the destination's are cut; only their indices move. */
static int carry_out(struct hops_state *s, const struct hop_move *m) {
    struct runs *from = &s->runs[m->from][m->from_buffer], *to = &s->runs[m->to][m->to_buffer];
    uint64_t end = m->from_offset + m->count;
    for (uint64_t at = m->from_offset; at < end;) {
        int i = run_of(from, at);
        uint64_t stop =
            i + 1 < from->count && from->run[i + 1].at < end ? from->run[i + 1].at : end;
        uint64_t terms = from->run[i].terms;
        if (!terms)
            return fail(ERR_FAILED, "hops: rank %d reads unwritten memory: a bug in the plan",
                        m->by);
        CHECK(put(to, m->to_offset + (at - m->from_offset), stop - at, terms,
                  m->action == HOP_REDUCE));
        at = stop;
    }
    tidy(to);
    return OK;
}

int hops_state_run(struct hops_state *state, int hop) {
    const struct hops *h = state->of;
    for (; state->done < h->move_count && h->moves[state->done].hop <= hop; state->done++)
        CHECK(carry_out(state, &h->moves[state->done]));
    return OK;
}

uint64_t hops_state_terms(const struct hops_state *state, int rank, int chunk) {
    const struct runs *r = &state->runs[rank][PLAN_DATA];
    const struct hop_chunk *c = &state->of->chunks[chunk];
    uint64_t terms = ~(uint64_t)0;
    for (int i = run_of(r, c->offset); i < r->count && r->run[i].at < c->offset + c->count; i++)
        terms &= r->run[i].terms;
    return terms;
}
