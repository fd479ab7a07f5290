/* Computes the data for the drawing of a collective: see collective.h. */
#include "report/collective/collective.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/nearest.h"
#include "group/group.h"
#include "group/plans/windows.h"

#define WORD(NAME, word, in_fold_order, uses_scratch) {#word, 0, ALLREDUCE_##NAME},
static const struct {
    const char *word;
    enum collective what; /* in place */
    enum allreduce_algorithm algorithm;
} planned[] = {ALLREDUCE_PLANS(WORD){"all-gather", COLLECTIVE_ALL_GATHER, 0},
               {"broadcast", COLLECTIVE_BROADCAST, 0}};
#undef WORD
enum { PLANNED = sizeof planned / sizeof *planned };

/* The collectives of process groups follow these. */
static enum collective window_of(int i) {
    return (enum collective)(COLLECTIVE_BARRIER + (i - PLANNED));
}

const char *collective_word(int i, char word[COLLECTIVE_WORD]) {
    if (i < 0 || (i >= PLANNED && window_of(i) >= COLLECTIVE_COUNT)) return NULL;
    if (i < PLANNED) {
        snprintf(word, COLLECTIVE_WORD, "%s", planned[i].word);
        return word;
    }
    snprintf(word, COLLECTIVE_WORD, "group-%s", window_name(window_of(i)));
    for (char *c = word; *c; c++)
        *c = *c == '_' ? '-' : (char)tolower((unsigned char)*c);
    return word;
}

static int find_word(const char *word, int *index) {
    enum { MOST = PLANNED + COLLECTIVE_COUNT - COLLECTIVE_BARRIER };
    static const int most = MOST;
    char words[MOST][COLLECTIVE_WORD];
    const char *known[MOST + 1];
    for (int i = 0; i < most; i++) {
        known[i] = collective_word(i, words[i]);
        if (!strcmp(word, known[i])) return *index = i, OK;
    }
    known[MOST] = "auto"; /* the command replaces it by its choice before it calls this */
    return unknown_value("--algorithm", word, known, MOST + 1);
}

/* A call of a process group from rank 0, with the group's usual windows (group/group.h). */
static int window_plan(struct plan *plan, enum collective what, int n, int rank, size_t count) {
    struct group_sizes sizes = group_sizes_default();
    int sends = what == COLLECTIVE_SEND;
    sizes.mailbox = group_mailbox_among(sizes.mailbox, n);
    if (sends && n < 2)
        return fail(ERR_USAGE, "group-send: --ranks %d: give two different ranks, or more", n);
    size_t window = sends ? group_mailbox_bytes(&sizes) : sizes.window;
    struct window_request q = {.what = what,
                               .n = n,
                               .rank = rank,
                               .root = 0,
                               .peer = sends,
                               .head = sends ? MAILBOX_HEAD / sizeof(float) : 0,
                               .count = count,
                               .stride = count,
                               .window = window / sizeof(float),
                               .config = plan_config_default()};
    if (count > window_longest(&q))
        return fail(ERR_USAGE,
                    "--count: %zu: a process group makes several calls of it: give at most %zu",
                    count, window_longest(&q));
    return plan_build_window(plan, &q);
}

static int planned_plan(struct plan *plan, int index, int n, int rank, size_t count,
                        const struct plan_config *config) {
    enum collective what = planned[index].what;
    if (what == COLLECTIVE_BROADCAST) return plan_build_broadcast(plan, n, rank, count);
    if (what == COLLECTIVE_ALL_REDUCE)
        return plan_build(plan, planned[index].algorithm, n, rank, count, config);
    if (count % (size_t)n)
        return fail(ERR_USAGE, "all-gather: %zu elements over %d ranks: give a multiple of %d",
                    count, n, n);
    return plan_build_all_gather(plan, n, rank, (size_t)n, count / (size_t)n);
}

static int make_plans(struct drawing *c, int index, const struct plan_config *config) {
    for (int r = 0; r < c->n; r++) {
        if (index >= PLANNED)
            CHECK(window_plan(&c->plans[r], window_of(index), c->n, r, c->count));
        else
            CHECK(planned_plan(&c->plans[r], index, c->n, r, c->count, config));
    }
    return OK;
}

/* 0: there is none. */
static int make_formula(const struct drawing *c, int index, int r, struct formula *out) {
    if (index >= PLANNED) return formula_of_group(window_of(index), c->n, r, c->count, out);
    if (planned[index].what == COLLECTIVE_ALL_REDUCE)
        return formula_of(planned[index].algorithm, c->n, r, c->count, c->align, out);
    return formula_of_copy(planned[index].what, c->n, r, c->count, out), 1;
}

static void make_numbers(struct drawing *c, int index) {
    c->has_formula = 1;
    for (int r = 0; r < c->n; r++) {
        plan_traffic(&c->plans[r], c->traffic);
        c->has_formula &= make_formula(c, index, r, &c->formula[r]);
    }
}

static void name_it(struct drawing *c, int index) {
    if (index >= PLANNED)
        snprintf(c->what, sizeof c->what, "%s of a process group", window_name(window_of(index)));
    else
        snprintf(c->what, sizeof c->what, "%s",
                 planned[index].what == COLLECTIVE_ALL_REDUCE ? "allreduce" : planned[index].word);
}

int collective_make(struct drawing *c, const char *word, int n, size_t count) {
    struct plan_config config = plan_config_default();
    int code = OK, index = 0;
    memset(c, 0, sizeof *c);
    CHECK(find_word(word, &index));
    if (n < 1 || n > MAX_DEVICES)
        return fail(ERR_USAGE, "--ranks: %d: give 1 to %d", n, MAX_DEVICES);
    snprintf(c->word, sizeof c->word, "%s", word);
    c->n = n;
    c->count = count;
    c->align = config.align;
    c->traffic = calloc((size_t)n * (size_t)n, sizeof *c->traffic);
    c->formula = calloc((size_t)n, sizeof *c->formula);
    if (!c->traffic || !c->formula)
        CHECK_GOTO(fail(ERR_MEMORY, "collective: out of host memory for %d ranks", n), code,
                   failed);
    CHECK_GOTO(make_plans(c, index, &config), code, failed);
    CHECK_GOTO(hops_of_plans(&c->hops, c->plans, n), code, failed);
    name_it(c, index);
    make_numbers(c, index);
    return OK;

failed:
    collective_free(c);
    return code;
}

void collective_free(struct drawing *c) {
    for (int r = 0; r < c->n; r++)
        plan_free(&c->plans[r]);
    hops_free(&c->hops);
    free(c->traffic);
    free(c->formula);
    memset(c, 0, sizeof *c);
}

uint64_t collective_in(const struct drawing *c, int rank) {
    uint64_t sum = 0;
    for (int from = 0; from < c->n; from++)
        sum += c->traffic[from * c->n + rank];
    return sum;
}

uint64_t collective_out(const struct drawing *c, int rank) {
    uint64_t sum = 0;
    for (int to = 0; to < c->n; to++)
        sum += c->traffic[rank * c->n + to];
    return sum;
}

int collective_is_equal(const struct drawing *c) {
    for (int r = 0; c->has_formula && r < c->n; r++)
        if (collective_in(c, r) != c->formula[r].in || collective_out(c, r) != c->formula[r].out)
            return 0;
    return 1;
}

/* ---- chunks ---- */

/* The chunk that begins at `offset`; chunk_count for the end of the last one. */
static int chunk_at(const struct hops *h, uint64_t offset) {
    int low = 0, high = h->chunk_count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (h->chunks[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int hops_chunks_of(const struct hops *h, const struct hop_move *m, int *first, int *last) {
    if (m->to_buffer != h->result && m->from_buffer != h->result) return 0;
    uint64_t offset = m->to_buffer == h->result ? m->to_offset : m->from_offset;
    *first = chunk_at(h, offset);
    *last = chunk_at(h, offset + m->count) - 1;
    return 1;
}
