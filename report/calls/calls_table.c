/* What is said of a job's calls: see calls.h. */
#include <stdlib.h>
#include <string.h>

#include "report/calls/calls.h"
#include "report/text.h"

enum { MOST_KINDS = 10 };

/* Calls of one name and size: in DDP, a bucket. */
struct kind {
    const char *name;
    uint64_t bytes;
    size_t calls; /* of all ranks */
    int64_t ns, waited_ns;
};

static double share(int64_t part, int64_t of) {
    return of > 0 ? 100 * (double)part / (double)of : 0;
}

/* ---- the answer ---- */

static void print_answer(FILE *file, int width, const struct traced_group *g) {
    struct text text = {.used = 0};
    char a[24], b[24];
    int64_t took = g->last_ns - g->first_ns, waited = 0;
    int worst = 0;
    for (int r = 0; r < g->ranks; r++) {
        waited += g->rank[r].waited_ns;
        if (g->rank[r].others_waited_ns > g->rank[worst].others_waited_ns) worst = r;
    }
    const struct traced_rank *w = &g->rank[worst];
    text_add(&text, "Group %s: %d rank%s, %zu collectives in %s.", g->name, g->ranks,
             g->ranks > 1 ? "s" : "", g->together, calls_seconds(took, a));
    if (g->together && waited)
        text_add(&text,
                 " The others waited most for rank %d, which came last in %zu of them: %s of the "
                 "%s that ranks waited in all.",
                 worst, w->came_last, calls_seconds(w->others_waited_ns, a),
                 calls_seconds(waited, b));
    if (g->together && g->ranks > 1)
        text_add(&text, " A rank waited %.0f %% of the time on average.",
                 share(waited / g->ranks, took));
    text_wrap(file, width, 0, 2, text.words);
    if (g->files < g->ranks)
        fprintf(file, "  Only %d of %d ranks left a file, so nobody's waits are known.\n", g->files,
                g->ranks);
}

/* ---- tables ---- */

static void print_ranks(FILE *file, const struct traced_group *g) {
    char in[24], waited[24], others[24], bytes[32];
    fprintf(file, "\n%4s %11s %8s %10s %10s %10s %9s %11s\n", "rank", "collectives", "messages",
            "bytes", "in calls", "waited", "came last", "others wait");
    for (int i = 0; i < g->ranks; i++) {
        const struct traced_rank *r = &g->rank[i];
        if (!r->calls) continue;
        fprintf(file, "%4d %11zu %8zu %10s %10s %10s %9zu %11s\n", i, r->collectives, r->messages,
                bytes_words((double)r->bytes, bytes), calls_seconds(r->in_calls_ns, in),
                calls_seconds(r->waited_ns, waited), r->came_last,
                calls_seconds(r->others_waited_ns, others));
        if (r->lost) fprintf(file, "     %lld further calls were not kept\n", (long long)r->lost);
    }
}

static int dearest_first(const void *left, const void *right) {
    const struct kind *a = left, *b = right;
    if (a->ns != b->ns) return a->ns > b->ns ? -1 : 1;
    return strcmp(a->name, b->name);
}

static void count_call(struct kind **kinds, size_t *count, const struct traced_call *c) {
    struct kind *k = *kinds;
    size_t i = 0;
    while (i < *count && (strcmp(k[i].name, c->name) || k[i].bytes != c->bytes))
        i++;
    if (i == *count) {
        struct kind *grown = realloc(k, (i + 1) * sizeof *grown);
        if (!grown) return; /* the row is missing */
        *kinds = k = grown;
        k[(*count)++] = (struct kind){.name = c->name, .bytes = c->bytes};
    }
    k[i].calls++;
    k[i].ns += c->end_ns - c->start_ns;
    k[i].waited_ns += c->waited_ns;
}

static void print_kinds(FILE *file, const struct traced_group *g) {
    struct kind *kinds = NULL;
    size_t count = 0;
    char bytes[32], mean[24], waited[24];
    for (int r = 0; r < g->ranks; r++)
        for (size_t i = 0; i < g->rank[r].count; i++)
            count_call(&kinds, &count, &g->rank[r].calls[i]);
    if (!count) return;
    qsort(kinds, count, sizeof *kinds, dearest_first);
    fprintf(file, "\n%-16s %12s %14s %14s %14s\n", "call", "of", "calls, a rank", "mean",
            "of it, waited");
    for (size_t i = 0; i < count && i < MOST_KINDS; i++) {
        const struct kind *k = &kinds[i];
        fprintf(file, "%-16s %12s %14.*f %14s %14s\n", k->name,
                bytes_words((double)k->bytes, bytes), k->calls % (size_t)g->files ? 3 : 0,
                (double)k->calls / g->files, calls_seconds(k->ns / (int64_t)k->calls, mean),
                calls_seconds(k->waited_ns / (int64_t)k->calls, waited));
    }
    if (count > MOST_KINDS) fprintf(file, "and %zu more\n", count - MOST_KINDS);
    free(kinds);
}

void calls_print(FILE *file, int width, const struct traced_job *job) {
    for (int i = 0; i < job->groups; i++) {
        if (i) fputc('\n', file);
        print_answer(file, width, &job->group[i]);
        print_ranks(file, &job->group[i]);
        print_kinds(file, &job->group[i]);
    }
    if (job->groups && job->remote.workers) fputc('\n', file);
    if (job->remote.workers) remote_print(file, width, &job->remote);
}
