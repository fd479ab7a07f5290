/* Reads the files of DUET_TRACE and finds which rank waited for which: see calls.h. */
#include "report/calls/calls.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/limits.h"
#include "report/text.h"

/* The waits for one rank that sum to a smaller share of the time are noise. */
static const double NO_DELAY = 0.01;
enum { REPEATED = 5 }; /* calls in which a rank must have come last to be blamed */

/* A collective on one rank. Times are in ns. */
struct call {
    double start, end, bytes;
    int rank;
    char name[28];
};

struct group {
    char name[64];
    int ranks, files;
    struct call *calls; /* [count], owned; sorted by name, rank and time when it is judged */
    size_t count;
    struct {
        int has_file;
        size_t calls, came_last;
        double bytes, waited;
    } rank[MAX_DEVICES];
    double begun, end;        /* the first call of the last rank to begin; the end of all calls */
    size_t meetings;          /* collectives that all ranks recorded */
    double blame, median;     /* the largest blame, 0: none; and the median wait in it */
    int blamed;               /* the rank */
    size_t last_in, calls_in; /* it came last in last_in of calls_in calls */
    const struct call *in;    /* such a call of rank 0 */
};

/* ---- the file of a rank ---- */

/* Sends and receives are left out: nobody else waits for them. */
static int read_calls(struct group *g, const char *path, int rank, const struct json *events) {
    double begun = 0;
    struct call *more = realloc(g->calls, (g->count + (size_t)events->count + 1) * sizeof *more);
    if (!more) return fail(ERR_MEMORY, "%s: out of host memory", path);
    g->calls = more;
    for (const struct json *event = events->child; event; event = event->next) {
        struct call c = {.bytes = json_value(json_find(event, "args"), "bytes"), .rank = rank};
        const char *name = json_word(event, "name");
        if (strcmp(json_word(event, "ph"), "X") || !strcmp(name, "send") || !strcmp(name, "recv"))
            continue;
        if (!event_times(event, &c.start, &c.end) || !(c.bytes >= 0))
            return calls_refuse(path, "a call is damaged");
        snprintf(c.name, sizeof c.name, "%s", name);
        begun = g->rank[rank].calls++ ? fmin(begun, c.start) : c.start;
        g->end = fmax(g->end, c.end);
        g->rank[rank].bytes += c.bytes;
        g->calls[g->count++] = c;
    }
    g->begun = fmax(g->begun, begun);
    return OK;
}

static int read_rank(struct group *g, const char *path, const struct json *root) {
    const struct json *events = json_find(root, "traceEvents"), *of = json_find(root, "otherData");
    double ranks = json_value(of, "ranks"), rank = json_value(of, "rank");
    if (json_value(of, "duet_calls") != 1 || !events || events->kind != JSON_ARRAY ||
        !(rank >= 0 && rank < ranks && ranks <= MAX_DEVICES))
        return calls_refuse(path, "it holds no calls of a rank");
    if (g->files++ && g->ranks != (int)ranks)
        return calls_refuse(path, "another file of its group has a different number of ranks");
    g->ranks = (int)ranks;
    snprintf(g->name, sizeof g->name, "%s", json_word(of, "group"));
    if (g->rank[(int)rank].has_file++) return calls_refuse(path, "another file has the same rank");
    return read_calls(g, path, (int)rank, events);
}

/* ---- who waited for whom ---- */

/* The calls that belong together: which rank came last, and how long the first one waited. */
struct meeting {
    const struct call *call; /* rank 0's */
    int last;
    double waited;
};

/* first[r] + k is rank r's call. */
static struct meeting meet(struct group *g, const struct call *const *first, size_t k) {
    struct meeting met = {first[0] + k, 0, 0};
    for (int r = 1; r < g->ranks; r++)
        if (first[r][k].start > first[met.last][k].start) met.last = r;
    for (int r = 0; r < g->ranks; r++) {
        const struct call *call = &first[r][k];
        double waited = fmin(first[met.last][k].start, call->end) - fmax(call->start, g->begun);
        g->rank[r].waited += fmax(waited, 0);
        met.waited = fmax(met.waited, waited);
    }
    g->rank[met.last].came_last++;
    return met;
}

static int by_kind(const void *left, const void *right) {
    const struct meeting *a = left, *b = right;
    if (a->call->bytes != b->call->bytes) return a->call->bytes > b->call->bytes ? 1 : -1;
    return a->last != b->last ? a->last - b->last
                              : (a->waited > b->waited) - (a->waited < b->waited);
}

/* The first `count` calls of one name of every rank. */
static int judge_name(struct group *g, const struct call *const *first, size_t count) {
    struct meeting *met = malloc((count + 1) * sizeof *met);
    if (!met) return fail(ERR_MEMORY, "report: out of host memory");
    for (size_t k = 0; k < count; k++)
        met[k] = meet(g, first, k);
    qsort(met, count, sizeof *met, by_kind);
    for (size_t i = 0, n; i < count; i += n) {
        const struct meeting *m = &met[i];
        for (n = 1; i + n < count && m[n].last == m->last && m[n].call->bytes == m->call->bytes;)
            n++;
        double median = m[n / 2].waited, blame = (double)n * median;
        if (n < REPEATED || blame <= g->blame) continue;
        g->blame = blame, g->median = median, g->blamed = m->last;
        g->last_in = n, g->calls_in = 0, g->in = m->call;
        for (size_t k = 0; k < count; k++)
            g->calls_in += met[k].call->bytes == m->call->bytes;
    }
    g->meetings += count;
    free(met);
    return OK;
}

static int in_order(const void *left, const void *right) {
    const struct call *a = left, *b = right;
    int names = strcmp(a->name, b->name);
    if (names || a->rank != b->rank) return names ? names : a->rank - b->rank;
    return (a->start > b->start) - (a->start < b->start);
}

static int judge(struct group *g) {
    if (g->count) qsort(g->calls, g->count, sizeof *g->calls, in_order);
    for (size_t i = 0, n; i < g->count; i += n) {
        const struct call *first[MAX_DEVICES], *call = &g->calls[i];
        size_t here[MAX_DEVICES] = {0}, least = g->count;
        for (n = 0; i + n < g->count && !strcmp(call[n].name, call->name); n++)
            if (!here[call[n].rank]++) first[call[n].rank] = &call[n];
        for (int r = 0; r < g->ranks; r++)
            if (here[r] < least) least = here[r];
        CHECK(judge_name(g, first, least));
    }
    return OK;
}

/* ---- the report ---- */

static void print_answer(FILE *out, int width, const struct group *g) {
    struct text text = {""};
    char time[32], bytes[32];
    text_add(&text, "Group %s: %d rank%s, %zu collectives; %s from the time when all had begun.",
             g->name, g->ranks, g->ranks > 1 ? "s" : "", g->meetings,
             time_words(g->end - g->begun, time));
    if (g->blame > 0 && g->blame < NO_DELAY * (g->end - g->begun))
        text_add(&text, " In the steps no rank delays the others by 1 %% of the time.");
    else if (g->blame > 0)
        text_add(&text,
                 " In the steps the others waited most for rank %d: it came last in %zu of %zu "
                 "calls of %s of %s, a median of %s late.",
                 g->blamed, g->last_in, g->calls_in, g->in->name, bytes_words(g->in->bytes, bytes),
                 time_words(g->median, time));
    if (g->files < g->ranks)
        text_add(&text, " Only %d of %d ranks left a file, so waiting times are unknown.", g->files,
                 g->ranks);
    text_wrap(out, width, 0, 2, text.words);
}

static int print_group(FILE *out, int width, struct group *g) {
    char waited[32], bytes[32];
    CHECK(judge(g));
    print_answer(out, width, g);
    fprintf(out, "\n%4s %11s %10s %10s %9s\n", "rank", "collectives", "bytes", "waited",
            "came last");
    for (int i = 0; i < g->ranks; i++)
        if (g->rank[i].has_file)
            fprintf(out, "%4d %11zu %10s %10s %9zu\n", i, g->rank[i].calls,
                    bytes_words(g->rank[i].bytes, bytes), time_words(g->rank[i].waited, waited),
                    g->rank[i].came_last);
    return OK;
}

/* A file of another group ends the one before. */
static int report_file(FILE *out, int width, struct group *g, const char *path,
                       const struct json *root) {
    const struct json *of = json_find(root, "otherData");
    if (json_find(of, "duet_timeline")) return timeline_print(out, path, root);
    if (g->files && strcmp(json_word(of, "group"), g->name)) {
        CHECK(print_group(out, width, g));
        fputc('\n', out);
        free(g->calls);
        *g = (struct group){.files = 0};
    }
    return read_rank(g, path, root);
}

/* A text file has no zero byte: with one, its JSON is torn. */
static int read_file(FILE *out, int width, struct group *g, const char *path) {
    struct json *root = NULL;
    char *text = NULL;
    size_t room = 0;
    FILE *file = fopen(path, "r");
    ssize_t bytes = file ? getdelim(&text, &room, 0, file) : -1;
    int code = !file || ferror(file)
                   ? fail_errno(ERR_FAILED, errno, "%s: cannot be read", path)
                   : json_parse(path, text ? text : "", bytes > 0 ? (size_t)bytes : 0, &root);
    if (file) fclose(file);
    free(text);
    if (!code) code = report_file(out, width, g, path, root);
    json_free(root);
    return code;
}

static int by_name(const void *left, const void *right) {
    return strcmp(*(char *const *)left, *(char *const *)right);
}

int calls_report(FILE *out, int width, char **files, int count) {
    struct group g = {.files = 0};
    int code = OK;
    qsort(files, (size_t)count, sizeof *files, by_name);
    for (int i = 0; i < count && !code; i++)
        code = read_file(out, width, &g, files[i]);
    if (!code && g.files) code = print_group(out, width, &g);
    free(g.calls);
    return code;
}
