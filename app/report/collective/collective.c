/* Computes the data for the drawing of a collective: see collective.h. */
#include "report/collective/collective.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/nearest.h"

#define WORD(NAME, word, in_fold_order, uses_scratch) {#word, 0, ALLREDUCE_##NAME},
static const struct {
    const char *word;
    enum collective what; /* all-reduce in place */
    enum allreduce_algorithm algorithm;
} planned[] = {ALLREDUCE_PLANS(WORD){"all-gather", COLLECTIVE_ALL_GATHER, 0},
               {"reduce-scatter", COLLECTIVE_REDUCE_SCATTER, 0},
               {"broadcast", COLLECTIVE_BROADCAST, 0}};
#undef WORD
enum { PLANNED = sizeof planned / sizeof *planned };

const char *collective_word(int i) {
    return i >= 0 && i < PLANNED ? planned[i].word : NULL;
}

static int find_word(const char *word, int *index) {
    const char *known[PLANNED + 1];
    for (int i = 0; i < PLANNED; i++) {
        known[i] = planned[i].word;
        if (!strcmp(word, known[i])) return *index = i, OK;
    }
    known[PLANNED] = "auto"; /* the command replaces it by its choice before it calls this */
    return unknown_value("--algorithm", word, known, PLANNED + 1);
}

static int make_plan(struct plan *plan, int index, int n, int rank, size_t count,
                     const struct plan_config *config) {
    enum collective what = planned[index].what;
    if (what == COLLECTIVE_BROADCAST) return plan_build_broadcast(plan, n, rank, count);
    if (what == COLLECTIVE_ALL_REDUCE)
        return plan_build(plan, planned[index].algorithm, n, rank, count, config);
    if (count % (size_t)n)
        return fail(ERR_USAGE, "%s: %zu elements over %d ranks: give a multiple of %d",
                    planned[index].word, count, n, n);
    if (what == COLLECTIVE_REDUCE_SCATTER)
        return plan_build_reduce_scatter(plan, n, rank, count / (size_t)n);
    return plan_build_all_gather(plan, n, rank, (size_t)n, count / (size_t)n);
}

static int make_plans(struct drawing *c, int index, const struct plan_config *config) {
    for (int r = 0; r < c->n; r++)
        CHECK(make_plan(&c->plans[r], index, c->n, r, c->count, config));
    return OK;
}

static void make_numbers(struct drawing *c, int index) {
    for (int r = 0; r < c->n; r++) {
        plan_traffic(&c->plans[r], c->traffic);
        if (planned[index].what == COLLECTIVE_ALL_REDUCE)
            formula_of(planned[index].algorithm, c->n, r, c->count, c->align, &c->formula[r]);
        else
            formula_of_other(planned[index].what, c->n, r, c->count, &c->formula[r]);
    }
}

int collective_make(struct drawing *c, const char *word, int n, size_t count) {
    struct plan_config config = plan_config_default();
    int code = OK, index = 0;
    memset(c, 0, sizeof *c);
    CHECK(find_word(word, &index));
    if (n < 1 || n > MAX_DEVICES)
        return fail(ERR_USAGE, "--ranks: %d: give 1 to %d", n, MAX_DEVICES);
    c->word = planned[index].word;
    c->what = planned[index].what == COLLECTIVE_ALL_REDUCE ? "allreduce" : c->word;
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
    for (int r = 0; r < c->n; r++)
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
    if (m->to_buffer != PLAN_DATA && m->from_buffer != PLAN_DATA) return 0;
    uint64_t offset = m->to_buffer == PLAN_DATA ? m->to_offset : m->from_offset;
    *first = chunk_at(h, offset);
    *last = chunk_at(h, offset + m->count) - 1;
    return 1;
}
