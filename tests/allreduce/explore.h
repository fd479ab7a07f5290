/* The explorer of test_protocol.c: a model of n ranks that run plans, and the walk through all of
 * its states. test_protocol.c says what it looks for. */
#ifndef TESTS_ALLREDUCE_EXPLORE_H
#define TESTS_ALLREDUCE_EXPLORE_H

#include "tests/harness/harness.h"

#include <stdint.h>

#include "tests/allreduce/reference.h"
#include "base/error.h"
#include "tests/allreduce/explored.h"

/* ---- the model: for each rank the events of all calls, one after another ---- */

struct event {
    const struct plan *plan;
    /* NULL: the user checks the result of `call` and writes the next input */
    const struct plan_step *step;
    int call;
    uint32_t base;
};

struct model {
    int n;
    int same_half; /* a planted bug: scratch does not alternate */
    int windowed;  /* 1: all calls are those of a process group */
    int root;
    struct plan plans[CALLS][RANKS];
    struct event events[RANKS][EVENTS];
    int count[RANKS];
    /* flags[w][p][kind][r]: what rank w has posted to r once p of its events have ended */
    uint32_t flags[RANKS][EVENTS + 1][PLAN_FLAG_KINDS][RANKS];
};

struct memory {
    float data[RANKS][COUNT], scratch[RANKS][2][HALF];
};

struct state {
    uint16_t at[RANKS]; /* half steps: 2 e before event e begins, 2 e + 1 inside it */
    struct memory memory;
};

static inline struct model *windowed_new(int n, int root, int slices, const struct kind *sequence) {
    struct model *m = calloc(1, sizeof *m);
    cr_assert_not_null(m);
    m->n = n;
    m->windowed = 1;
    m->root = root;
    for (int call = 0; call < CALLS; call++)
        for (int r = 0; r < n; r++)
            cr_assert_eq(
                build_windowed(&m->plans[call][r], sequence[call], n, r, root, slices, call), OK,
                "%s", error_message());
    return m;
}

static inline struct model *model_new(int n, int slices, const struct kind *sequence) {
    struct model *m = calloc(1, sizeof *m);
    struct plan_config config = tiny_config(slices);
    cr_assert_not_null(m);
    m->n = n;
    for (int call = 0; call < CALLS; call++)
        for (int r = 0; r < n; r++)
            cr_assert_eq(build(&m->plans[call][r], sequence[call], n, r, &config), OK, "%s",
                         error_message());
    return m;
}

static inline void model_free(struct model *m) {
    for (int call = 0; call < CALLS; call++)
        for (int r = 0; r < m->n; r++)
            plan_free(&m->plans[call][r]);
    free(m);
}

/* Lays out events and flags. Call it after any change of the plans. */
static inline void model_prepare(struct model *m) {
    memset(m->flags, 0, sizeof m->flags);
    for (int r = 0; r < m->n; r++) {
        uint32_t base = 0;
        m->count[r] = 0;
        for (int to = 0; to < m->n; to++)
            m->flags[r][0][PLAN_TAKEN][to] = m->flags[r][0][PLAN_LEFT][to] = m->plans[0][r].credits;
        for (int call = 0; call < CALLS; call++) {
            const struct plan *p = &m->plans[call][r];
            cr_assert(m->count[r] + p->step_count + 1 <= EVENTS);
            for (int i = 0; i <= p->step_count; i++) {
                struct event *e = &m->events[r][m->count[r]];
                *e = (struct event){p, i < p->step_count ? &p->steps[i] : NULL, call, base};
                memcpy(m->flags[r][m->count[r] + 1], m->flags[r][m->count[r]],
                       sizeof m->flags[r][0]);
                m->count[r]++;
                for (int to = 0; e->step && to < m->n; to++)
                    if (e->step->post_ranks >> to & 1)
                        m->flags[r][m->count[r]][e->step->post_kind][to] =
                            base + e->step->post_epoch;
            }
            base += p->epochs;
        }
    }
}

/* ---- what an event touches ---- */

struct access {
    int rank, scratch, write; /* scratch: 0 data, 1 and 2 the halves */
    uint64_t from, to;
};

/* Broadcasts are not counted (allreduce/plans/copies.c), nor calls through windows other than
 * allreduces (group/plans/windows.c). A mailbox does not alternate. Eager calls take a slot each.
 */
static inline int half_of(const struct model *m, const struct event *e) {
    int counted = 0;
    if (e->plan->credits && e->plan->what != COLLECTIVE_SEND) return e->call % 2;
    for (int call = 0; call < e->call; call++)
        counted += m->plans[call][0].what == COLLECTIVE_ALL_REDUCE ||
                   (!m->windowed && m->plans[call][0].what == COLLECTIVE_ALL_GATHER);
    return m->same_half ? 0 : counted % 2;
}

static inline int accesses(const struct model *m, int rank, const struct event *e,
                           struct access *out) {
    int count = 0;
    if (!e->step) {
        out[0] = (struct access){rank, 0, 1, 0, COUNT};
        return !m->windowed;
    }
    const struct plan_step *s = e->step;
    int source = s->source_buffer == PLAN_DATA ? 0 : 1 + half_of(m, e),
        dest = s->dest_buffer == PLAN_DATA ? 0 : 1 + half_of(m, e);
    for (int r = 0; r < m->n && s->op != PLAN_NONE; r++) {
        if (s->source_buffer < PLAN_INPUT && (plan_op_sums(s->op) || r == s->source_rank))
            out[count++] =
                (struct access){r, source, 0, s->source_offset, s->source_offset + s->length};
        if (s->dest_buffer < PLAN_INPUT && s->dest_ranks >> r & 1)
            out[count++] = (struct access){r, dest, 1, s->dest_offset, s->dest_offset + s->length};
    }
    return count;
}

static inline int conflict(const struct model *m, int r1, const struct event *e1, int r2,
                           const struct event *e2) {
    struct access a[2 * RANKS], b[2 * RANKS];
    int na = accesses(m, r1, e1, a), nb = accesses(m, r2, e2, b);
    for (int i = 0; i < na; i++)
        for (int j = 0; j < nb; j++)
            if ((a[i].write || b[j].write) && a[i].rank == b[j].rank &&
                a[i].scratch == b[j].scratch && a[i].from < b[j].to && b[j].from < a[i].to)
                return 1;
    return 0;
}

/* ---- the walk ---- */

enum verdict { FINE, RACE, DEADLOCK, WRONG };
static const char *const verdict_names[] = {"fine", "race", "deadlock", "wrong"};

struct search {
    const struct model *model;
    struct state *stack;
    uint64_t (*seen)[2]; /* open addressing; key 0 is free */
    size_t depth, stack_size, states, table_size, ends;
    char text[200];
};

static inline void hash_state(const struct model *m, const struct state *s, uint64_t key[2]) {
    uint64_t h = 0x243f6a8885a308d3u, word;
    const unsigned char *bytes = (const unsigned char *)&s->memory;
    for (size_t i = 0; i < sizeof s->memory; i += 8) {
        memcpy(&word, bytes + i, 8);
        h = (h ^ word) * 0x9e3779b97f4a7c15u;
        h ^= h >> 31;
    }
    key[0] = 1;
    for (int r = 0; r < m->n; r++)
        key[0] = key[0] << 12 | s->at[r];
    key[1] = h;
}

static inline void push(struct search *search, const struct state *s) {
    uint64_t key[2];
    hash_state(search->model, s, key);
    if (2 * search->states >= search->table_size) {
        size_t old_size = search->table_size, size = old_size ? 2 * old_size : 1 << 14;
        uint64_t(*old)[2] = search->seen;
        search->seen = calloc(size, sizeof *search->seen);
        cr_assert_not_null(search->seen);
        search->table_size = size;
        for (size_t i = 0; i < old_size; i++) {
            if (!old[i][0]) continue;
            size_t at = (old[i][0] * 0xff51afd7ed558ccdu ^ old[i][1]) % size;
            while (search->seen[at][0])
                at = (at + 1) % size;
            memcpy(search->seen[at], old[i], sizeof key);
        }
        free(old);
    }
    size_t at = (key[0] * 0xff51afd7ed558ccdu ^ key[1]) % search->table_size;
    for (; search->seen[at][0]; at = (at + 1) % search->table_size)
        if (search->seen[at][0] == key[0] && search->seen[at][1] == key[1]) return;
    memcpy(search->seen[at], key, sizeof key);
    search->states++;
    if (search->depth == search->stack_size) {
        search->stack_size = search->stack_size ? 2 * search->stack_size : 1024;
        search->stack = realloc(search->stack, search->stack_size * sizeof *search->stack);
        cr_assert_not_null(search->stack);
    }
    search->stack[search->depth++] = *s;
}

static inline int may_begin(const struct model *m, const struct state *s, int rank,
                            const struct event *e) {
    for (int w = 0; e->step && w < m->n; w++)
        if (e->step->wait_ranks >> w & 1 &&
            m->flags[w][s->at[w] / 2][e->step->wait_kind][rank] < e->base + e->step->wait_epoch)
            return 0;
    return 1;
}

/* What each rank must find in element i after a call. */
static inline float result(const struct model *m, int call, int i) {
    enum collective what = m->plans[call][0].what;
    float sum = 0;
    if (what == COLLECTIVE_ALL_GATHER) return input(call, i % m->n, i);
    if (what == COLLECTIVE_BROADCAST) return input(call, 0, i);
    for (int r = 0; r < m->n; r++)
        sum += input(call, r, i);
    return sum;
}

static inline int end_windowed(const struct model *m, struct state *s, const struct event *e) {
    float in[RANKS][WIDE], out[RANKS][WIDE];
    void *data[RANKS], *scratch[RANKS], *outputs[RANKS];
    const void *inputs[RANKS];
    if (!e->step) return FINE;
    for (int r = 0; r < m->n; r++) {
        for (int i = 0; i < WIDE; i++)
            in[r][i] = input(e->call, r, i);
        data[r] = s->memory.data[r];
        scratch[r] = s->memory.scratch[r][half_of(m, e)];
        inputs[r] = in[r];
        outputs[r] = out[r];
    }
    struct reference_memory memory = {
        .data = data, .scratch = scratch, .input = inputs, .output = outputs, .scale = 1};
    reference_step(e->plan, e->step, &memory);
    for (size_t i = 0; e->step->dest_buffer == PLAN_OUTPUT && i < e->step->length; i++) {
        int at = (int)(e->step->dest_offset + i);
        if (out[e->plan->rank][at] != output(e->plan, m->root, e->call, at)) return WRONG;
    }
    return FINE;
}

static inline int end_event(const struct model *m, struct state *s, int rank,
                            const struct event *e) {
    if (m->windowed) return end_windowed(m, s, e);
    if (!e->step) {
        for (int i = 0; i < COUNT; i++) {
            if (s->memory.data[rank][i] != result(m, e->call, i)) return WRONG;
            s->memory.data[rank][i] = input(e->call + 1, rank, i);
        }
        return FINE;
    }
    void *data[RANKS], *scratch[RANKS];
    for (int r = 0; r < m->n; r++) {
        data[r] = s->memory.data[r];
        scratch[r] = s->memory.scratch[r][half_of(m, e)];
    }
    struct reference_memory memory = {.data = data, .scratch = scratch, .scale = 1};
    reference_step(e->plan, e->step, &memory);
    return FINE;
}

/* Moves one rank by half a step if it can move, and then sets *moved. */
static inline enum verdict advance(struct search *search, const struct state *from, int rank,
                                   int *moved) {
    const struct model *m = search->model;
    struct state next = *from;
    int index = from->at[rank] / 2;
    if (index == m->count[rank]) return FINE;
    const struct event *e = &m->events[rank][index];
    if (from->at[rank] % 2 == 0) {
        if (!may_begin(m, from, rank, e)) return FINE;
        for (int r = 0; r < m->n; r++) {
            const struct event *other = &m->events[r][from->at[r] / 2];
            if (r != rank && from->at[r] % 2 == 1 && conflict(m, rank, e, r, other)) {
                snprintf(search->text, sizeof search->text,
                         "event %d of rank %d (call %d) overlaps event %d of rank %d (call %d)",
                         index, rank, e->call, from->at[r] / 2, r, other->call);
                return RACE;
            }
        }
    } else if (end_event(m, &next, rank, e) == WRONG) {
        snprintf(search->text, sizeof search->text, "call %d of rank %d", e->call, rank);
        return WRONG;
    }
    next.at[rank]++;
    *moved = 1;
    push(search, &next);
    return FINE;
}

static inline enum verdict explore(struct model *m, size_t *states, char *text, size_t text_bytes) {
    struct search search = {.model = m};
    struct state start;
    enum verdict verdict = FINE;
    model_prepare(m);
    memset(&start, 0, sizeof start);
    for (int r = 0; r < m->n && !m->windowed; r++)
        for (int i = 0; i < COUNT; i++)
            start.memory.data[r][i] = input(0, r, i);
    push(&search, &start);
    while (search.depth > 0 && verdict == FINE) {
        struct state s = search.stack[--search.depth];
        int moved = 0, ended = 0;
        for (int r = 0; r < m->n && verdict == FINE; r++) {
            verdict = advance(&search, &s, r, &moved);
            ended += s.at[r] == 2 * m->count[r];
        }
        if (verdict == FINE && !moved && ended < m->n) {
            verdict = DEADLOCK;
            snprintf(search.text, sizeof search.text, "ranks at events %d, %d, %d, %d", s.at[0] / 2,
                     s.at[1] / 2, s.at[2] / 2, s.at[3] / 2);
        }
        search.ends += ended == m->n;
    }
    if (verdict == FINE && search.ends == 0) verdict = DEADLOCK;
    if (states) *states = search.states;
    if (text) snprintf(text, text_bytes, "%s", search.text);
    free(search.stack);
    free(search.seen);
    return verdict;
}

#endif
