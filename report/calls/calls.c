/* The files of DUET_TRACE, read; and who waited for whom: see calls.h. */
#include "report/calls/calls.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/json.h"
#include "report/results.h"

/* ---- one file ---- */

#define SMALL "abcdefghijklmnopqrstuvwxyz"
static const char of_calls[] = SMALL "_",
                  of_groups[] = SMALL "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";

/* Names are printed: no letters but those that Duet writes. */
static int is_name(const char *text, const char *letters) {
    return *text && !text[strspn(text, letters)];
}

static int is_wrong(const char *path, const char *what) {
    return fail(ERR_FAILED, "%s: %s: give a file that DUET_TRACE named", path, what);
}

static int64_t whole(const struct json *object, const char *key, int64_t otherwise) {
    const struct json *item = json_find(object, key);
    return item && item->is_integer ? item->integer : otherwise;
}

static int read_call(const char *path, struct traced_call *c, const struct json *item) {
    enum { PARTS = 5 };
    const struct json *part[PARTS], *p = item->child;
    if (item->kind != JSON_ARRAY || item->count != PARTS) return is_wrong(path, "a call is torn");
    for (int i = 0; i < PARTS; i++, p = p->next)
        part[i] = p;
    if (part[1]->kind != JSON_STRING || !part[0]->is_integer || !part[3]->is_integer ||
        !part[4]->is_integer || part[4]->integer < part[3]->integer || part[3]->integer < 0)
        return is_wrong(path, "a call has no name or no times");
    if (!is_name(part[1]->string, of_calls)) return is_wrong(path, "a call's name is none");
    *c = (struct traced_call){.number = part[0]->natural,
                              .bytes = part[2]->natural,
                              .start_ns = part[3]->integer,
                              .end_ns = part[4]->integer,
                              .last = -1};
    snprintf(c->name, sizeof c->name, "%s", part[1]->string);
    c->message = !strcmp(c->name, "send") || !strcmp(c->name, "recv");
    return OK;
}

static struct traced_group *find_group(struct traced_job *job, const char *name) {
    for (int i = 0; i < job->groups; i++)
        if (!strcmp(job->group[i].name, name)) return &job->group[i];
    struct traced_group *grown = realloc(job->group, ((size_t)job->groups + 1) * sizeof *grown);
    if (!grown) return NULL;
    job->group = grown;
    struct traced_group *g = &job->group[job->groups++];
    memset(g, 0, sizeof *g);
    snprintf(g->name, sizeof g->name, "%s", name);
    return g;
}

static int read_rank(struct traced_job *job, const char *path, const struct json *root) {
    const struct json *calls = json_find(root, "calls");
    int64_t ranks = whole(root, "ranks", 0), rank = whole(root, "rank", -1);
    if (whole(root, "duet_calls", 0) != 1 || !calls || calls->kind != JSON_ARRAY)
        return is_wrong(path, "it holds no calls");
    if (ranks < 1 || ranks > MAX_DEVICES || rank < 0 || rank >= ranks)
        return is_wrong(path, "its rank is none");
    if (!is_name(results_text(root, "group"), of_groups))
        return is_wrong(path, "its group's name is none");
    struct traced_group *g = find_group(job, results_text(root, "group"));
    if (!g) return fail(ERR_MEMORY, "%s: no host memory", path);
    if (g->files++ && g->ranks != ranks)
        return is_wrong(path, "another file of its group has more or fewer ranks");
    g->ranks = (int)ranks;
    struct traced_rank *r = &g->rank[rank];
    if (r->calls) return is_wrong(path, "its rank has another file");
    r->calls = calloc((size_t)calls->count + 1, sizeof *r->calls);
    if (!r->calls) return fail(ERR_MEMORY, "%s: no host memory", path);
    r->lost = whole(root, "lost", 0);
    for (const struct json *item = calls->child; item; item = item->next)
        CHECK(read_call(path, &r->calls[r->count++], item));
    return OK;
}

static int read_file(struct traced_job *job, const char *path) {
    char *text = NULL;
    size_t bytes = 0;
    struct json *root = NULL;
    int code = read_whole_file(path, &text, &bytes);
    if (!code) code = json_parse(path, text, bytes, &root);
    if (!code)
        code = json_find(root, "duet_rpc") ? remote_read(&job->remote, path, root)
                                           : read_rank(job, path, root);
    json_free(root);
    free(text);
    return code;
}

/* ---- who waited ---- */

static int by_number(const void *left, const void *right) {
    const struct traced_call *a = left, *b = right;
    if (a->message != b->message) return a->message - b->message;
    return a->number < b->number ? -1 : a->number > b->number;
}

/* The calls of one number: at[r] is rank r's. */
static void judge(struct traced_group *g, struct traced_call *const *at) {
    int last = 0;
    for (int r = 1; r < g->ranks; r++)
        if (at[r]->start_ns > at[last]->start_ns) last = r;
    g->rank[last].came_last++;
    for (int r = 0; r < g->ranks; r++) {
        int64_t until = at[last]->start_ns < at[r]->end_ns ? at[last]->start_ns : at[r]->end_ns;
        at[r]->last = last;
        at[r]->waited_ns = until - at[r]->start_ns;
        g->rank[r].waited_ns += at[r]->waited_ns;
        g->rank[last].others_waited_ns += at[r]->waited_ns;
    }
}

/* Walks the collectives of all ranks, which are sorted by number. */
static void find_waits(struct traced_group *g) {
    size_t next[MAX_DEVICES] = {0};
    for (;;) {
        struct traced_call *at[MAX_DEVICES];
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
        g->together += (size_t)all;
        if (all && g->ranks > 1) judge(g, at);
    }
}

static void sum_up(struct traced_group *g) {
    g->first_ns = INT64_MAX;
    for (int i = 0; i < g->ranks; i++) {
        struct traced_rank *r = &g->rank[i];
        if (r->count) qsort(r->calls, r->count, sizeof *r->calls, by_number);
        for (size_t k = 0; k < r->count; k++) {
            const struct traced_call *c = &r->calls[k];
            if (c->start_ns < g->first_ns) g->first_ns = c->start_ns;
            if (c->end_ns > g->last_ns) g->last_ns = c->end_ns;
            r->bytes += c->bytes;
            r->messages += (size_t)c->message;
            if (!c->message) r->in_calls_ns += c->end_ns - c->start_ns;
        }
        r->collectives = r->count - r->messages;
    }
    if (g->first_ns > g->last_ns) g->first_ns = g->last_ns; /* there is no call */
    find_waits(g);
}

static int most_calls_first(const void *left, const void *right) {
    const struct traced_group *a = left, *b = right;
    size_t x = a->rank[0].count, y = b->rank[0].count;
    if (x != y) return x > y ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* PATH.*.* as a pattern for glob, in which the letters of `path` stand for themselves. */
static int make_pattern(const char *path, char *pattern, size_t size) {
    size_t used = 0;
    for (; *path && used + 2 < size; path++) {
        if (strchr("*?[]\\", *path)) pattern[used++] = '\\';
        pattern[used++] = *path;
    }
    return *path || snprintf(pattern + used, size - used, ".*.*") >= (int)(size - used);
}

/* GROUP.RANK: other files may lie beside, such as a timeline that was made of these. */
static int is_group_and_rank(const char *end) {
    const char *rank = end + strcspn(end, ".") + 1;
    return rank > end + 1 && *rank && !rank[strspn(rank, "0123456789")];
}

int calls_read(struct traced_job *job, const char *path) {
    char pattern[4096];
    glob_t found;
    int code = OK;
    *job = (struct traced_job){.groups = 0};
    if (make_pattern(path, pattern, sizeof pattern))
        return fail(ERR_USAGE, "report: a path of more than %zu letters", sizeof pattern);
    int none = glob(pattern, GLOB_ERR, NULL, &found);
    for (size_t i = 0; !none && !code && i < found.gl_pathc; i++)
        if (is_group_and_rank(found.gl_pathv[i] + strlen(path) + 1))
            code = read_file(job, found.gl_pathv[i]);
    globfree(&found);
    if (code) return code;
    if (job->remote.workers) CHECK(remote_join(&job->remote));
    if (!job->groups && !job->remote.workers)
        return fail(ERR_FAILED,
                    "report: %s: no files %s.GROUP.RANK: run the job with DUET_TRACE=%s", path,
                    path, path);
    for (int i = 0; i < job->groups; i++)
        sum_up(&job->group[i]);
    if (job->groups) qsort(job->group, (size_t)job->groups, sizeof *job->group, most_calls_first);
    return OK;
}

void calls_free(struct traced_job *job) {
    for (int i = 0; i < job->groups; i++)
        for (int r = 0; r < MAX_DEVICES; r++)
            free(job->group[i].rank[r].calls);
    free(job->group);
    remote_free(&job->remote);
    *job = (struct traced_job){.groups = 0};
}

const char *calls_seconds(int64_t ns, char text[24]) {
    double s = (double)ns * 1e-9;
    if (s < 0.9995e-3) /* what rounds to 1000 us is 1 ms */
        snprintf(text, 24, "%.3g us", s * 1e6);
    else if (s < 0.9995)
        snprintf(text, 24, "%.3g ms", s * 1e3);
    else
        snprintf(text, 24, "%.2f s", s);
    return text;
}
