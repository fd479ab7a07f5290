/* Finds and reports which rank waited for which: see calls.h. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "report/calls/calls.h"
#include "report/text.h"

/* The waits for one rank that sum to a smaller share of the time are noise. */
static const double NO_DELAY = 0.01;

/* A collective that all ranks have. */
struct meeting {
    const struct traced_call *call; /* rank 0's call, for name and bytes */
    size_t number;
    int last;
    double waited; /* how long the first rank waited */
};

static struct meeting meet(struct traced_group *g, size_t number) {
    struct meeting met = {.call = &g->rank[0].calls[number], .number = number};
    for (int r = 1; r < g->ranks; r++)
        if (g->rank[r].calls[number].start > g->rank[met.last].calls[number].start) met.last = r;
    double begin = g->rank[met.last].calls[number].start;
    for (int r = 0; r < g->ranks; r++) {
        const struct traced_call *call = &g->rank[r].calls[number];
        double waited = (begin < call->end ? begin : call->end) - call->start;
        if (number) g->rank[r].waited += waited;
        if (waited > met.waited) met.waited = waited;
    }
    return met;
}

/* ---- blame ---- */

static int compare_kinds(const struct traced_call *a, const struct traced_call *b) {
    int names = strcmp(a->name, b->name);
    return names ? names : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* By kind, the rank that came last, and the wait. */
static int by_kind(const void *left, const void *right) {
    const struct meeting *a = left, *b = right;
    int kinds = compare_kinds(a->call, b->call);
    if (kinds) return kinds;
    return a->last != b->last ? a->last - b->last
                              : (a->waited > b->waited) - (a->waited < b->waited);
}

/* The collectives of one kind, sorted. */
static void judge_kind(struct traced_group *g, const struct meeting *of, size_t count,
                       double blame[MAX_DEVICES]) {
    int early = 0, late = 0;
    for (size_t i = 0; i < count; i++)
        of[i].number < g->meetings / 2 ? (early = 1) : (late = 1);
    if (count < 5 || !early || !late) return; /* calls outside steps */
    for (size_t i = 0, n; i < count; i += n) {
        int last = of[i].last;
        for (n = 1; i + n < count && of[i + n].last == last;)
            n++;
        double median = of[i + n / 2].waited;
        g->rank[last].came_last += n;
        if (n < 3 || 4 * n < count || (double)n * median <= blame[last]) continue;
        blame[last] = (double)n * median;
        g->rank[last].median = median;
        if (g->blamed >= 0 && blame[last] < blame[g->blamed]) continue;
        g->blamed = last;
        g->blamed_in = of[i].call;
        g->last_in = n;
        g->calls_in = count;
    }
}

static int judge(struct traced_group *g) {
    double blame[MAX_DEVICES] = {0};
    g->blamed = -1;
    g->meetings = g->rank[0].count;
    for (int r = 1; r < g->ranks; r++)
        if (g->rank[r].count < g->meetings) g->meetings = g->rank[r].count;
    struct meeting *met = malloc((g->meetings + 1) * sizeof *met);
    if (!met) return fail(ERR_MEMORY, "report: out of host memory");
    for (size_t i = 0; i < g->meetings; i++)
        met[i] = meet(g, i);
    qsort(met, g->meetings, sizeof *met, by_kind);
    for (size_t i = 0, n; i < g->meetings; i += n) {
        for (n = 1; i + n < g->meetings && !compare_kinds(met[i].call, met[i + n].call);)
            n++;
        judge_kind(g, met + i, n, blame);
    }
    free(met);
    return OK;
}

/* ---- the report ---- */

/* From the beginning of collective number `from` to the end of the last. */
static double time_since(const struct traced_group *g, size_t from) {
    double first = 1e18, last = 0;
    for (int i = 0; i < g->ranks; i++) {
        const struct traced_rank *r = &g->rank[i];
        if (r->count > from && r->calls[from].start < first) first = r->calls[from].start;
        if (r->count && r->calls[r->count - 1].end > last) last = r->calls[r->count - 1].end;
    }
    return last > first ? last - first : 0;
}

static void print_answer(FILE *out, int width, const struct traced_group *g) {
    struct text text = {.used = 0};
    char time[32], bytes[32];
    double took = time_since(g, 1), waited = 0;
    for (int r = 0; r < g->ranks; r++)
        waited += g->rank[r].waited / g->ranks;
    text_add(&text, "Group %s: %d rank%s, %zu collectives in %s.", g->name, g->ranks,
             g->ranks > 1 ? "s" : "", g->meetings, time_words(time_since(g, 0), time));
    if (g->blamed >= 0 && (double)g->last_in * g->rank[g->blamed].median < NO_DELAY * took)
        text_add(&text, " In the steps no rank delays the others by 1 %% of the time.");
    else if (g->blamed >= 0)
        text_add(&text,
                 " In the steps the others waited most for rank %d: it came last in %zu of %zu "
                 "calls of %s of %s, a median of %s late.",
                 g->blamed, g->last_in, g->calls_in, g->blamed_in->name,
                 bytes_words(g->blamed_in->bytes, bytes),
                 time_words(g->rank[g->blamed].median, time));
    if (waited > 0)
        text_add(&text, " After the first call, a rank waited %.0f %% of the time on average.",
                 100 * waited / took);
    text_wrap(out, width, 0, 2, text.words);
    if (g->files < g->ranks)
        fprintf(out, "  Only %d of %d ranks left a file, so waiting times are unknown.\n", g->files,
                g->ranks);
}

int calls_judge(FILE *out, int width, struct traced_group *g) {
    char in[32], waited[32], median[32], bytes[32];
    CHECK(judge(g));
    print_answer(out, width, g);
    fprintf(out, "\n%4s %11s %8s %10s %10s %10s %9s %11s\n", "rank", "collectives", "messages",
            "bytes", "in calls", "waited", "came last", "median wait");
    for (int i = 0; i < g->ranks; i++) {
        const struct traced_rank *r = &g->rank[i];
        if (!r->calls) continue;
        fprintf(out, "%4d %11zu %8zu %10s %10s %10s %9zu %11s\n", i, r->count, r->messages,
                bytes_words(r->bytes, bytes), time_words(r->in_calls, in),
                time_words(r->waited, waited), r->came_last, time_words(r->median, median));
    }
    return OK;
}
