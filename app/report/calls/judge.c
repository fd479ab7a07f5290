/* Finds and reports who waited for whom: see calls.h. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "report/calls/calls.h"
#include "report/text.h"

/* The calls of one number: at[r] is rank r's. */
static void meet(struct traced_group *g, const struct traced_call *const *at) {
    struct traced_meeting *met = &g->met[g->meetings++];
    *met = (struct traced_meeting){.call = at[0]};
    for (int r = 1; r < g->ranks; r++)
        if (at[r]->start_ns > at[met->last]->start_ns) met->last = r;
    int64_t begin = at[met->last]->start_ns;
    for (int r = 0; r < g->ranks; r++) {
        int64_t until = begin < at[r]->end_ns ? begin : at[r]->end_ns,
                waited = until - at[r]->start_ns;
        g->rank[r].waited_ns += waited;
        if (waited > met->waited_ns) met->waited_ns = waited;
    }
}

/* Walks the collectives of all ranks, which are sorted by number. */
static void find_meetings(struct traced_group *g) {
    size_t next[MAX_DEVICES] = {0};
    for (;;) {
        const struct traced_call *at[MAX_DEVICES];
        uint64_t least = UINT64_MAX;
        int all = 1;
        for (int r = 0; r < g->ranks; r++) {
            at[r] = next[r] < g->rank[r].collectives ? &g->rank[r].calls[next[r]] : NULL;
            if (at[r] && at[r]->number < least) least = at[r]->number;
        }
        if (least == UINT64_MAX) return;
        for (int r = 0; r < g->ranks; r++) {
            int here = at[r] && at[r]->number == least;
            next[r] += (size_t)here;
            all &= here;
        }
        if (all) meet(g, at);
    }
}

/* ---- blame ---- */

static int compare_kinds(const struct traced_call *a, const struct traced_call *b) {
    int names = strcmp(a->name, b->name);
    if (names) return names;
    return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

/* By kind, the rank that came last, and the wait. */
static int by_kind(const void *left, const void *right) {
    const struct traced_meeting *a = *(const struct traced_meeting *const *)left,
                                *b = *(const struct traced_meeting *const *)right;
    int kinds = compare_kinds(a->call, b->call);
    if (kinds) return kinds;
    if (a->last != b->last) return a->last - b->last;
    return a->waited_ns < b->waited_ns ? -1 : a->waited_ns > b->waited_ns;
}

/* The collectives of one kind, sorted. */
static void judge_kind(struct traced_group *g, const struct traced_meeting *const *of, size_t count,
                       double blame[MAX_DEVICES]) {
    const struct traced_meeting *half = g->met + g->meetings / 2;
    int early = 0, late = 0;
    for (size_t i = 0; i < count; i++)
        of[i] < half ? (early = 1) : (late = 1);
    if (count < 5 || !early || !late) return; /* of no step */
    for (size_t i = 0, n; i < count; i += n) {
        int last = of[i]->last;
        for (n = 1; i + n < count && of[i + n]->last == last;)
            n++;
        int64_t median = of[i + n / 2]->waited_ns;
        g->rank[last].came_last += n;
        if (n < 3 || 4 * n < count || (double)n * (double)median <= blame[last]) continue;
        blame[last] = (double)n * (double)median;
        g->rank[last].median_ns = median;
        if (g->blamed >= 0 && blame[last] < blame[g->blamed]) continue;
        g->blamed = last;
        g->blamed_in = of[i]->call;
        g->last_in = n;
        g->calls_in = count;
    }
}

int calls_judge(struct traced_group *g) {
    double blame[MAX_DEVICES] = {0};
    g->blamed = -1;
    g->met = malloc((g->rank[0].collectives + 1) * sizeof *g->met);
    const struct traced_meeting **sorted = malloc((g->rank[0].collectives + 1) * sizeof *sorted);
    if (!g->met || !sorted) {
        free(sorted);
        return fail(ERR_MEMORY, "report: no host memory");
    }
    find_meetings(g);
    for (size_t i = 0; i < g->meetings; i++)
        sorted[i] = &g->met[i];
    qsort(sorted, g->meetings, sizeof *sorted, by_kind);
    for (size_t i = 0, n; i < g->meetings; i += n) {
        for (n = 1; i + n < g->meetings && !compare_kinds(sorted[i]->call, sorted[i + n]->call);)
            n++;
        judge_kind(g, sorted + i, n, blame);
    }
    free(sorted);
    return OK;
}

/* ---- what is said ---- */

static void print_answer(FILE *file, int width, const struct traced_group *g) {
    struct text text = {.used = 0};
    char time[32], bytes[32];
    int64_t took = g->last_ns - g->first_ns, waited = 0;
    for (int r = 0; r < g->ranks; r++)
        waited += g->rank[r].waited_ns / g->ranks;
    text_add(&text, "Group %s: %d rank%s, %zu collectives in %s.", g->name, g->ranks,
             g->ranks > 1 ? "s" : "", g->meetings, time_words((double)took, time));
    if (g->blamed >= 0)
        text_add(&text,
                 " In the steps the others waited most for rank %d: it came last in %zu of %zu "
                 "calls of %s of %s, by %s in the median.",
                 g->blamed, g->last_in, g->calls_in, g->blamed_in->name,
                 bytes_words((double)g->blamed_in->bytes, bytes),
                 time_words((double)g->rank[g->blamed].median_ns, time));
    if (waited > 0)
        text_add(&text, " A rank waited %.0f %% of the time on average.",
                 100 * (double)waited / (double)took);
    text_wrap(file, width, 0, 2, text.words);
    if (g->files < g->ranks)
        fprintf(file, "  Only %d of %d ranks left a file, so nobody's waits are known.\n", g->files,
                g->ranks);
}

static void print_ranks(FILE *file, const struct traced_group *g) {
    char in[32], waited[32], median[32], bytes[32];
    fprintf(file, "\n%4s %11s %8s %10s %10s %10s %9s %11s\n", "rank", "collectives", "messages",
            "bytes", "in calls", "waited", "came last", "median wait");
    for (int i = 0; i < g->ranks; i++) {
        const struct traced_rank *r = &g->rank[i];
        if (!r->calls) continue;
        fprintf(file, "%4d %11zu %8zu %10s %10s %10s %9zu %11s\n", i, r->collectives,
                r->count - r->collectives, bytes_words((double)r->bytes, bytes),
                time_words((double)r->in_calls_ns, in), time_words((double)r->waited_ns, waited),
                r->came_last, time_words((double)r->median_ns, median));
    }
}

void calls_print(FILE *file, int width, const struct traced_job *job) {
    for (int i = 0; i < job->groups; i++) {
        if (i) fputc('\n', file);
        print_answer(file, width, &job->group[i]);
        print_ranks(file, &job->group[i]);
    }
}
