/* Every interleaving of the plans, explored.
 *
 * A run of n ranks is a walk through states: how far each rank is, and what lies in memory. A step has two
 * halves, begin (its flags have arrived, it starts to read and write) and end (all is written, its flags are
 * posted), so two steps of different ranks can overlap. From every state each rank that can move is moved,
 * and states seen before are not visited twice; what remains unseen does not exist. In each state:
 *
 *   - no step may overlap another rank's step on a range that one of them writes     (a race)
 *   - some rank can move, unless all are at the end                                  (a deadlock)
 *   - between two calls each rank checks its result and writes its next input  (wrong sum, early return)
 *
 * Three calls in a row, as scratch alternates between two halves. 2 to 4 ranks; data of 6 elements in one,
 * two or three slices. Then the explorer itself is tested: any wait dropped from any plan must show up. */
#include "tests/harness.h"

#include <stdint.h>

#include "allreduce/reference.h"
#include "base/error.h"

enum { RANKS = 4, CALLS = 3, COUNT = 6, HALF = 12, EVENTS = 192 };

static const enum allreduce_algorithm algorithms[] = {ALLREDUCE_NAIVE, ALLREDUCE_ONESHOT, ALLREDUCE_DIRECT,
                                                      ALLREDUCE_RING, ALLREDUCE_TREE};
enum { ALGORITHMS = sizeof algorithms / sizeof *algorithms };

/* ---- the model: for each rank the events of all calls, one after another ---- */

struct event {
    const struct plan *plan;
    const struct plan_step *step; /* NULL: the user checks the result of `call` and writes the next input */
    int call;
    uint32_t base;
};

struct model {
    int n;
    int same_half; /* a planted bug: scratch does not alternate */
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

/* Integers below 2^20 that look random: a sum that misses a term, or takes one twice or from another call,
 * shows. */
static float input(int call, int rank, int i) {
    uint64_t x = (uint64_t)((call * RANKS + rank) * COUNT + i + 1) * 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return (float)(x >> 44);
}

/* Data in `slices` 1, 2 or 3 slices or rounds. */
static struct plan_config tiny_config(int slices) {
    size_t slice = (size_t)(COUNT / slices);
    struct plan_config config = {
        .align = 1, .slice = slice, .pipeline_from = 0, .slices = slices, .scratch = 2 * slice};
    return config;
}

static struct model *model_new(int n, int slices, const enum allreduce_algorithm *sequence) {
    struct model *m = calloc(1, sizeof *m);
    struct plan_config config = tiny_config(slices);
    cr_assert_not_null(m);
    m->n = n;
    for (int call = 0; call < CALLS; call++)
        for (int r = 0; r < n; r++)
            cr_assert_eq(plan_build(&m->plans[call][r], sequence[call], n, r, COUNT, &config), OK, "%s",
                         error_message());
    return m;
}

static void model_free(struct model *m) {
    for (int call = 0; call < CALLS; call++)
        for (int r = 0; r < m->n; r++)
            plan_free(&m->plans[call][r]);
    free(m);
}

/* Lays out events and flags; after any change of the plans. */
static void model_prepare(struct model *m) {
    memset(m->flags, 0, sizeof m->flags);
    for (int r = 0; r < m->n; r++) {
        uint32_t base = 0;
        m->count[r] = 0;
        for (int call = 0; call < CALLS; call++) {
            const struct plan *p = &m->plans[call][r];
            cr_assert(m->count[r] + p->step_count + 1 <= EVENTS);
            for (int i = 0; i <= p->step_count; i++) {
                struct event *e = &m->events[r][m->count[r]];
                *e = (struct event){p, i < p->step_count ? &p->steps[i] : NULL, call, base};
                memcpy(m->flags[r][m->count[r] + 1], m->flags[r][m->count[r]], sizeof m->flags[r][0]);
                m->count[r]++;
                for (int to = 0; e->step && to < m->n; to++)
                    if (e->step->post_ranks >> to & 1)
                        m->flags[r][m->count[r]][e->step->post_kind][to] = base + e->step->post_epoch;
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

static int half_of(const struct model *m, const struct event *e) {
    return m->same_half ? 0 : e->call % 2;
}

static int accesses(const struct model *m, int rank, const struct event *e, struct access *out) {
    int count = 0;
    if (!e->step) {
        out[0] = (struct access){rank, 0, 1, 0, COUNT};
        return 1;
    }
    const struct plan_step *s = e->step;
    int source = s->source_buffer == PLAN_DATA ? 0 : 1 + half_of(m, e),
        dest = s->dest_buffer == PLAN_DATA ? 0 : 1 + half_of(m, e);
    for (int r = 0; r < m->n && s->op != PLAN_NONE; r++) {
        if (s->op == PLAN_SUM || r == s->source_rank)
            out[count++] = (struct access){r, source, 0, s->source_offset, s->source_offset + s->length};
        if (s->dest_ranks >> r & 1)
            out[count++] = (struct access){r, dest, 1, s->dest_offset, s->dest_offset + s->length};
    }
    return count;
}

static int conflict(const struct model *m, int r1, const struct event *e1, int r2, const struct event *e2) {
    struct access a[2 * RANKS], b[2 * RANKS];
    int na = accesses(m, r1, e1, a), nb = accesses(m, r2, e2, b);
    for (int i = 0; i < na; i++)
        for (int j = 0; j < nb; j++)
            if ((a[i].write || b[j].write) && a[i].rank == b[j].rank && a[i].scratch == b[j].scratch &&
                a[i].from < b[j].to && b[j].from < a[i].to)
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

static void hash_state(const struct model *m, const struct state *s, uint64_t key[2]) {
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

static void push(struct search *search, const struct state *s) {
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

static int may_begin(const struct model *m, const struct state *s, int rank, const struct event *e) {
    for (int w = 0; e->step && w < m->n; w++)
        if (e->step->wait_ranks >> w & 1 &&
            m->flags[w][s->at[w] / 2][e->step->wait_kind][rank] < e->base + e->step->wait_epoch)
            return 0;
    return 1;
}

static int end_event(const struct model *m, struct state *s, int rank, const struct event *e) {
    if (!e->step) {
        for (int i = 0; i < COUNT; i++) {
            float sum = 0;
            for (int r = 0; r < m->n; r++)
                sum += input(e->call, r, i);
            if (s->memory.data[rank][i] != sum) return WRONG;
            s->memory.data[rank][i] = input(e->call + 1, rank, i);
        }
        return FINE;
    }
    float *data[RANKS], *scratch[RANKS];
    for (int r = 0; r < m->n; r++) {
        data[r] = s->memory.data[r];
        scratch[r] = s->memory.scratch[r][half_of(m, e)];
    }
    reference_step(e->plan, e->step, data, scratch, 1);
    return FINE;
}

/* Moves one rank by half a step if it can move; *moved says so. */
static enum verdict advance(struct search *search, const struct state *from, int rank, int *moved) {
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
                         "event %d of rank %d (call %d) overlaps event %d of rank %d (call %d)", index, rank,
                         e->call, from->at[r] / 2, r, other->call);
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

static enum verdict explore(struct model *m, size_t *states, char *text, size_t text_bytes) {
    struct search search = {.model = m};
    struct state start;
    enum verdict verdict = FINE;
    model_prepare(m);
    memset(&start, 0, sizeof start);
    for (int r = 0; r < m->n; r++)
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

/* ---- the plans as they are ---- */

static size_t check_sequence(int n, int slices, const enum allreduce_algorithm *sequence) {
    struct model *m = model_new(n, slices, sequence);
    size_t states;
    char text[200];
    enum verdict verdict = explore(m, &states, text, sizeof text);
    cr_assert_eq(verdict, FINE, "%d ranks, %d slices, %s, %s, %s: %s: %s", n, slices,
                 allreduce_algorithm_name(sequence[0]), allreduce_algorithm_name(sequence[1]),
                 allreduce_algorithm_name(sequence[2]), verdict_names[verdict], text);
    model_free(m);
    return states;
}

Test(protocol, every_interleaving_of_three_calls_is_right, .timeout = 240) {
    for (int n = 2; n <= RANKS; n++) {
        for (int slices = 1; slices <= 3; slices++) {
            if (n == 4 && test_short()) continue;
            for (int a = 0; a < ALGORITHMS; a++) {
                enum allreduce_algorithm sequence[CALLS] = {algorithms[a], algorithms[a], algorithms[a]};
                size_t states = check_sequence(n, slices, sequence);
                if (getenv("DUET_SHOW"))
                    printf("%d ranks, %d slices, %s: %zu states\n", n, slices,
                           allreduce_algorithm_name(algorithms[a]), states);
            }
        }
    }
}

/* One communicator serves calls of any algorithm one after another: every ordered triple. */
Test(protocol, algorithms_may_follow_each_other, .timeout = 240) {
    for (int a = 0; a < ALGORITHMS; a++) {
        for (int b = 0; b < ALGORITHMS; b++) {
            for (int c = 0; c < ALGORITHMS; c++) {
                enum allreduce_algorithm sequence[CALLS] = {algorithms[a], algorithms[b], algorithms[c]};
                for (int slices = 1; slices <= 2; slices++) {
                    check_sequence(2, slices, sequence);
                    if (!test_short()) check_sequence(3, slices, sequence);
                }
            }
        }
    }
}

/* ---- the explorer must find bugs ---- */

/* Drops, in all calls, rank `rank`'s wait for `peer` at step i. */
static enum verdict explore_without(enum allreduce_algorithm algorithm, int n, int rank, int i, int peer) {
    struct model *m = model_new(n, 2, (enum allreduce_algorithm[CALLS]){algorithm, algorithm, algorithm});
    for (int call = 0; call < CALLS; call++)
        m->plans[call][rank].steps[i].wait_ranks &= ~rank_bit(peer);
    enum verdict verdict = explore(m, NULL, NULL, 0);
    model_free(m);
    return verdict;
}

/* The one kind of wait that may be there for nothing: a leaf of a tree says only "I am in this call", and
 * its parent may have heard that already, from the same rank's words in the other tree. Which pairs that
 * strikes depends on n; the planner does not track it, one satisfied look at a flag being cheaper than the
 * rule. */
static int heard_before(const struct plan *plan, int i, int peer) {
    struct tree_node a = plan_tree_node(0, plan->n, peer), b = plan_tree_node(1, plan->n, peer);
    const struct plan_step *s = &plan->steps[i];
    int from_leaf =
        (s->wait_kind == PLAN_UP_A && a.children == 0) || (s->wait_kind == PLAN_UP_B && b.children == 0);
    for (int j = 0; plan->algorithm == ALLREDUCE_TREE && from_leaf && j < i; j++)
        if (plan->steps[j].wait_ranks >> peer & 1) return 1;
    return 0;
}

/* So no wait is there for nothing, and the explorer sees every one that is missing. */
Test(protocol, any_dropped_wait_is_found, .timeout = 240) {
    for (int n = 2; n <= 3; n++) {
        for (int a = 0; a < ALGORITHMS; a++) {
            struct plan_config config = tiny_config(2);
            int dropped = 0, spare = 0;
            for (int r = 0; r < n; r++) {
                struct plan plan;
                cr_assert_eq(plan_build(&plan, algorithms[a], n, r, COUNT, &config), OK);
                for (int i = 0; i < plan.step_count; i++) {
                    for (int peer = 0; peer < n; peer++) {
                        if (!(plan.steps[i].wait_ranks >> peer & 1)) continue;
                        enum verdict verdict = explore_without(algorithms[a], n, r, i, peer);
                        dropped++;
                        spare += verdict == FINE;
                        cr_expect(verdict == RACE || verdict == WRONG ||
                                      (verdict == FINE && heard_before(&plan, i, peer)),
                                  "%s, %d ranks: rank %d, step %d does without its wait for rank %d: %s",
                                  allreduce_algorithm_name(algorithms[a]), n, r, i, peer,
                                  verdict_names[verdict]);
                    }
                }
                plan_free(&plan);
            }
            cr_assert(dropped >= 2, "%s: every plan waits", allreduce_algorithm_name(algorithms[a]));
            cr_assert(spare <= 1, "%s: %d of %d waits are there for nothing",
                      allreduce_algorithm_name(algorithms[a]), spare, dropped);
            if (getenv("DUET_SHOW"))
                printf("%d ranks, %s: %d waits, %d spare\n", n, allreduce_algorithm_name(algorithms[a]),
                       dropped, spare);
        }
    }
}

/* No post is there for nothing either: without it somebody waits for ever. */
Test(protocol, any_dropped_post_is_found, .timeout = 240) {
    for (int n = 2; n <= 3; n++) {
        for (int a = 0; a < ALGORITHMS; a++) {
            enum allreduce_algorithm sequence[CALLS] = {algorithms[a], algorithms[a], algorithms[a]};
            for (int r = 0; r < n; r++) {
                struct model *probe = model_new(n, 2, sequence);
                for (int i = 0; i < probe->plans[0][r].step_count; i++) {
                    if (!probe->plans[0][r].steps[i].post_ranks) continue;
                    struct model *m = model_new(n, 2, sequence);
                    m->plans[CALLS - 1][r].steps[i].post_ranks =
                        0; /* the last call: no later post makes up for it */
                    int last_of_kind = 1;
                    for (int j = i + 1; j < probe->plans[0][r].step_count; j++)
                        last_of_kind &= !(
                            probe->plans[0][r].steps[j].post_ranks & probe->plans[0][r].steps[i].post_ranks &&
                            probe->plans[0][r].steps[j].post_kind == probe->plans[0][r].steps[i].post_kind);
                    enum verdict verdict = explore(m, NULL, NULL, 0);
                    /* An earlier slice's word may come late with the next slice's: slower, and right. */
                    cr_expect(verdict == DEADLOCK || (!last_of_kind && verdict == FINE),
                              "%s, %d ranks: rank %d, step %d: %s", allreduce_algorithm_name(algorithms[a]),
                              n, r, i, verdict_names[verdict]);
                    model_free(m);
                }
                model_free(probe);
            }
        }
    }
}

/* A flag that promises one slice more than is there. */
Test(protocol, a_post_too_far_is_found, .timeout = 120) {
    static const enum allreduce_algorithm sliced[] = {ALLREDUCE_ONESHOT, ALLREDUCE_RING, ALLREDUCE_TREE};
    for (int a = 0; a < 3; a++) {
        struct model *m = model_new(3, 2, (enum allreduce_algorithm[CALLS]){sliced[a], sliced[a], sliced[a]});
        int planted = 0;
        for (int r = 0; r < 3 && !planted; r++) {
            for (int i = 0; i + 1 < m->plans[0][r].step_count && !planted; i++) {
                struct plan_step *s = &m->plans[0][r].steps[i];
                if (s->op == PLAN_NONE || !s->post_ranks || s->post_epoch >= m->plans[0][r].epochs) continue;
                s->post_epoch++;
                planted = 1;
            }
        }
        cr_assert(planted);
        enum verdict verdict = explore(m, NULL, NULL, 0);
        cr_assert(verdict == RACE || verdict == WRONG, "%s: %s", allreduce_algorithm_name(sliced[a]),
                  verdict_names[verdict]);
        model_free(m);
    }
}

/* Scratch must alternate between calls: oneshot is the one that leans on it. */
Test(protocol, scratch_that_does_not_alternate_is_found, .timeout = 60) {
    for (int n = 2; n <= 3; n++) {
        struct model *m = model_new(
            n, 1, (enum allreduce_algorithm[CALLS]){ALLREDUCE_ONESHOT, ALLREDUCE_ONESHOT, ALLREDUCE_ONESHOT});
        m->same_half = 1;
        enum verdict verdict = explore(m, NULL, NULL, 0);
        cr_assert(verdict == RACE || verdict == WRONG, "%d ranks: %s", n, verdict_names[verdict]);
        model_free(m);
    }
}

/* Two slices in the wrong places: each rank by itself in order, nobody out of step, the sum wrong. */
Test(protocol, swapped_slices_are_found, .timeout = 60) {
    static const enum allreduce_algorithm pulled[] = {ALLREDUCE_DIRECT, ALLREDUCE_RING, ALLREDUCE_TREE};
    for (int a = 0; a < 3; a++) {
        struct model *m = model_new(3, 2, (enum allreduce_algorithm[CALLS]){pulled[a], pulled[a], pulled[a]});
        for (int i = 0; i < m->plans[1][1].step_count; i++) {
            struct plan_step *s = &m->plans[1][1].steps[i];
            if (s->op == PLAN_NONE) continue;
            s->source_offset = s->source_offset > 0 ? 0 : COUNT - s->length;
            break;
        }
        enum verdict verdict = explore(m, NULL, NULL, 0);
        cr_assert(verdict == RACE || verdict == WRONG, "%s: %s", allreduce_algorithm_name(pulled[a]),
                  verdict_names[verdict]);
        model_free(m);
    }
}
