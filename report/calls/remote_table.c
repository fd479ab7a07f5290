/* What is said of remote calls: see remote.h. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "report/calls/calls.h"
#include "report/text.h"

enum { MOST_FUNCTIONS = 20, MOST_ROWS = 40, NAME_COLUMNS = 28 };

/* Calls that are alike: of one function, or of one between two workers. */
struct kind {
    int function, from, to;
    size_t calls, failed, whole; /* whole: both ends are known, and it did not fail */
    uint64_t bytes;
    int64_t ns, p99_ns, there, queue, work, nested, back; /* sums, of the whole ones */
};

static int64_t not_below_zero(int64_t ns) {
    return ns > 0 ? ns : 0;
}

static int64_t taken(const struct remote_call *c) {
    return remote_end(c) - remote_start(c);
}

static void count_call(struct kind *k, const struct remote_call *c) {
    k->calls++;
    k->failed += (size_t)c->failed;
    k->bytes += c->bytes;
    k->ns += taken(c);
    if (!c->has_caller || !c->has_callee || c->failed) return;
    k->whole++;
    k->there += not_below_zero(c->came - c->begun);
    k->queue += c->began - c->came;
    k->work += not_below_zero(c->done - c->began - c->nested_ns);
    k->nested += c->nested_ns;
    k->back += not_below_zero(c->ended - c->done);
}

static int by_function(const void *left, const void *right) {
    const struct remote_call *a = *(const struct remote_call *const *)left,
                             *b = *(const struct remote_call *const *)right;
    if (a->function != b->function) return a->function - b->function;
    int64_t x = taken(a), y = taken(b);
    return x < y ? -1 : x > y;
}

static int by_pair(const void *left, const void *right) {
    const struct remote_call *a = *(const struct remote_call *const *)left,
                             *b = *(const struct remote_call *const *)right;
    if (a->from != b->from) return a->from - b->from;
    if (a->to != b->to) return a->to - b->to;
    return a->function - b->function;
}

static int dearest_first(const void *left, const void *right) {
    const struct kind *a = left, *b = right;
    return a->ns > b->ns ? -1 : a->ns < b->ns;
}

static int pairs_first(const void *left, const void *right) {
    const struct kind *a = left, *b = right;
    if (a->from != b->from) return a->from - b->from;
    if (a->to != b->to) return a->to - b->to;
    return dearest_first(a, b);
}

/* The kinds of the calls, which are sorted so that those of a kind lie together. */
static size_t make_kinds(struct kind *kinds, const struct remote_call *const *calls, size_t count,
                         int of_pairs) {
    size_t made = 0;
    for (size_t i = 0, n; i < count; i += n) {
        struct kind *k = &kinds[made++];
        *k = (struct kind){calls[i]->function, calls[i]->from, calls[i]->to, .calls = 0};
        for (n = 0; i + n < count && calls[i + n]->function == k->function &&
                    (!of_pairs || (calls[i + n]->from == k->from && calls[i + n]->to == k->to));
             n++)
            count_call(k, calls[i + n]);
        k->p99_ns = taken(calls[i + (n * 99 + 99) / 100 - 1]);
    }
    return made;
}

/* ---- what is printed ---- */

static void print_answer(FILE *file, int width, const struct remote_job *job,
                         const struct kind *pairs, size_t count) {
    struct text text = {.used = 0};
    char a[24], b[24];
    struct kind all = {.function = 0};
    const struct kind *most = pairs;
    for (size_t i = 0; i < count; i++) {
        const struct kind *k = &pairs[i];
        all.there += k->there, all.queue += k->queue, all.work += k->work, all.back += k->back;
        if (k->work > most->work) most = k;
    }
    text_add(&text, "Remote calls of %d worker%s: %zu in %s.", job->workers,
             job->workers > 1 ? "s" : "", job->count,
             calls_seconds(job->last_ns - job->first_ns, a));
    if (all.work)
        text_add(&text, " Functions worked for %s, most of it %s at %s for %s: %s.",
                 calls_seconds(all.work, a), job->function[most->function], job->worker[most->to],
                 job->worker[most->from], calls_seconds(most->work, b));
    if (all.work)
        text_add(&text,
                 " Calls were on their way for %s and waited for a thread or a device for "
                 "%s.",
                 calls_seconds(all.there + all.back, a), calls_seconds(all.queue, b));
    text_wrap(file, width, 0, 2, text.words);
    if (job->files < job->workers)
        fprintf(file, "  Only %d of %d workers left a file.\n", job->files, job->workers);
    if (job->lost) fprintf(file, "  %lld further calls were not kept.\n", (long long)job->lost);
}

static void print_functions(FILE *file, const struct remote_job *job, const struct kind *kinds,
                            size_t count) {
    char mean[24], p99[24], bytes[32];
    fprintf(file, "\n%-*s %10s %7s %10s %10s %11s\n", NAME_COLUMNS, "function", "calls", "failed",
            "mean", "p99", "bytes");
    for (size_t i = 0; i < count && i < MOST_FUNCTIONS; i++) {
        const struct kind *k = &kinds[i];
        fprintf(file, "%-*s %10zu %7zu %10s %10s %11s\n", NAME_COLUMNS, job->function[k->function],
                k->calls, k->failed, calls_seconds(k->ns / (int64_t)k->calls, mean),
                calls_seconds(k->p99_ns, p99), bytes_words((double)k->bytes, bytes));
    }
    if (count > MOST_FUNCTIONS) fprintf(file, "and %zu more\n", count - MOST_FUNCTIONS);
}

static void print_pairs(FILE *file, const struct remote_job *job, const struct kind *kinds,
                        size_t count) {
    char t[5][24];
    fprintf(file, "\n%-*s %9s %8s %8s %8s %8s %8s\n", NAME_COLUMNS - 4, "who calls whom", "calls",
            "there", "queue", "work", "in calls", "back");
    for (size_t i = 0; i < count && i < MOST_ROWS; i++) {
        const struct kind *k = &kinds[i];
        int64_t n = (int64_t)(k->whole ? k->whole : 1);
        if (!i || k->from != k[-1].from || k->to != k[-1].to)
            fprintf(file, "%s -> %s\n", job->worker[k->from], job->worker[k->to]);
        fprintf(file, "  %-*s %9zu", NAME_COLUMNS - 6, job->function[k->function], k->calls);
        if (k->whole)
            fprintf(file, " %8s %8s %8s %8s %8s", calls_seconds(k->there / n, t[0]),
                    calls_seconds(k->queue / n, t[1]), calls_seconds(k->work / n, t[2]),
                    calls_seconds(k->nested / n, t[3]), calls_seconds(k->back / n, t[4]));
        fputc('\n', file);
    }
    if (count > MOST_ROWS) fprintf(file, "and %zu more\n", count - MOST_ROWS);
}

void remote_print(FILE *file, int width, const struct remote_job *job) {
    const struct remote_call **calls = malloc((job->count + 1) * sizeof *calls);
    struct kind *kinds = malloc((job->count + 1) * sizeof *kinds);
    for (size_t i = 0; calls && i < job->count; i++)
        calls[i] = &job->call[i];
    if (calls && kinds) {
        qsort(calls, job->count, sizeof *calls, by_pair);
        size_t count = make_kinds(kinds, calls, job->count, 1);
        print_answer(file, width, job, kinds, count);
        qsort(calls, job->count, sizeof *calls, by_function);
        count = make_kinds(kinds, calls, job->count, 0);
        qsort(kinds, count, sizeof *kinds, dearest_first);
        print_functions(file, job, kinds, count);
        qsort(calls, job->count, sizeof *calls, by_pair);
        count = make_kinds(kinds, calls, job->count, 1);
        qsort(kinds, count, sizeof *kinds, pairs_first);
        print_pairs(file, job, kinds, count);
    }
    free(kinds);
    free(calls);
}
