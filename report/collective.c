/* Makes what is drawn of a collective: see collective.h. */
#include "report/collective.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/nearest.h"

/* By enum dp_collective. */
static const struct {
    const char *word, *what;
} dp_words[DP_KINDS] = {{"dp-scatter", "scatter of DataParallel"},
                        {"dp-gather", "gather of DataParallel"},
                        {"dp-broadcast", "broadcast of DataParallel"},
                        {"dp-reduce", "reduce of DataParallel"},
                        {"dp-reduce-sharded", "sharded reduce of DataParallel"}};

#define WORD(NAME, word, in_fold_order, uses_scratch) {#word, ALLREDUCE_##NAME},
static const struct {
    const char *word;
    enum allreduce_algorithm algorithm;
} planned[] = {ALLREDUCE_PLANS(WORD){"all-gather", COLLECTIVE_ALL_GATHER},
               {"broadcast", COLLECTIVE_BROADCAST}};
#undef WORD
enum { PLANNED = sizeof planned / sizeof *planned };

const char *collective_word(int i) {
    if (i < 0 || i >= PLANNED + DP_KINDS) return NULL;
    return i < PLANNED ? planned[i].word : dp_words[i - PLANNED].word;
}

static int find_word(const char *word, int *index) {
    const char *known[PLANNED + DP_KINDS];
    for (int i = 0; i < PLANNED + DP_KINDS; i++) {
        known[i] = collective_word(i);
        if (!strcmp(word, known[i])) return *index = i, OK;
    }
    return unknown_value("--algorithm", word, known, PLANNED + DP_KINDS);
}

static int make_plans(struct collective *c, int index, const struct plan_config *config) {
    for (int r = 0; r < c->n; r++) {
        if (index >= PLANNED)
            CHECK(dp_plan(&c->plans[r], (enum dp_collective)(index - PLANNED), c->n, r, c->count));
        else
            CHECK(hops_plan(&c->plans[r], planned[index].algorithm, c->n, r, c->count, config));
    }
    return OK;
}

static void make_numbers(struct collective *c, int index) {
    c->has_formula = 1;
    for (int r = 0; r < c->n; r++) {
        plan_traffic(&c->plans[r], c->traffic);
        if (index >= PLANNED)
            dp_formula((enum dp_collective)(index - PLANNED), c->n, r, c->count, &c->formula[r]);
        else if (!formula_of(planned[index].algorithm, c->n, r, c->count, c->align, &c->formula[r]))
            c->has_formula = 0;
    }
}

int collective_make(struct collective *c, const char *word, int n, size_t count) {
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
        CHECK_GOTO(fail(ERR_MEMORY, "collective: no host memory for %d ranks", n), code, failed);
    CHECK_GOTO(make_plans(c, index, &config), code, failed);
    CHECK_GOTO(hops_of_plans(&c->hops, c->plans, n), code, failed);
    c->what = index >= PLANNED ? dp_words[index - PLANNED].what : plan_collective(&c->plans[0]);
    make_numbers(c, index);
    return OK;

failed:
    collective_free(c);
    return code;
}

void collective_free(struct collective *c) {
    for (int r = 0; r < c->n; r++)
        plan_free(&c->plans[r]);
    hops_free(&c->hops);
    free(c->traffic);
    free(c->formula);
    memset(c, 0, sizeof *c);
}

uint64_t collective_in(const struct collective *c, int rank) {
    uint64_t sum = 0;
    for (int from = 0; from < c->n; from++)
        sum += c->traffic[from * c->n + rank];
    return sum;
}

uint64_t collective_out(const struct collective *c, int rank) {
    uint64_t sum = 0;
    for (int to = 0; to < c->n; to++)
        sum += c->traffic[rank * c->n + to];
    return sum;
}

int collective_is_equal(const struct collective *c) {
    for (int r = 0; c->has_formula && r < c->n; r++)
        if (collective_in(c, r) != c->formula[r].in || collective_out(c, r) != c->formula[r].out)
            return 0;
    return 1;
}
