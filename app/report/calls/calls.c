/* The files of DUET_TRACE, read: see calls.h. */
#include "report/calls/calls.h"

#include <errno.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* ---- one file ---- */

/* Names are printed, so only the characters that Duet writes are allowed. */
static int is_name(const char *text) {
    return *text && !text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                       "0123456789_-")];
}

static int is_wrong(const char *path, const char *what) {
    return fail(ERR_FAILED, "%s: %s: give a file that DUET_TRACE named", path, what);
}

/* A text file has no zero byte: with one, its JSON is torn. */
int json_of_file(const char *path, struct json **root) {
    char *text = NULL;
    size_t room = 0;
    FILE *file = fopen(path, "r");
    ssize_t bytes = file ? getdelim(&text, &room, 0, file) : -1;
    int code = !file || ferror(file)
                   ? fail_errno(ERR_FAILED, errno, "%s: cannot be read", path)
                   : json_parse(path, text ? text : "", bytes > 0 ? (size_t)bytes : 0, root);
    if (file) fclose(file);
    free(text);
    return code;
}

const char *json_word(const struct json *object, const char *key) {
    const struct json *item = json_find(object, key);
    return item && item->kind == JSON_STRING ? item->string : "";
}

int64_t json_whole(const struct json *object, const char *key, int64_t otherwise) {
    const struct json *item = json_find(object, key);
    return item && item->is_integer ? item->integer : otherwise;
}

/* ts and dur in microseconds, with all digits of the nanoseconds. */
int event_times(const struct json *event, int64_t *start_ns, int64_t *end_ns) {
    const struct json *start = json_find(event, "ts"), *took = json_find(event, "dur");
    if (!start || start->kind != JSON_NUMBER || !took || took->kind != JSON_NUMBER ||
        !(start->number >= 0 && start->number < 9e15 && took->number >= 0 && took->number < 9e15))
        return ERR_FAILED;
    *start_ns = llround(start->number * 1e3);
    *end_ns = *start_ns + llround(took->number * 1e3);
    return OK;
}

/* An event "X" of the trace. */
static int read_call(const char *path, struct traced_call *c, const struct json *event) {
    const struct json *args = json_find(event, "args"), *number = json_find(args, "number"),
                      *bytes = json_find(args, "bytes");
    const char *name = json_word(event, "name");
    if (!number || !number->natural || !bytes || bytes->kind != JSON_NUMBER || !is_name(name) ||
        event_times(event, &c->start_ns, &c->end_ns))
        return is_wrong(path, "a call is damaged");
    c->number = number->natural;
    c->bytes = bytes->natural;
    snprintf(c->name, sizeof c->name, "%s", name);
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
    const struct json *events = json_find(root, "traceEvents"), *of = json_find(root, "otherData");
    int64_t ranks = json_whole(of, "ranks", 0), rank = json_whole(of, "rank", -1);
    if (json_whole(of, "duet_calls", 0) != 1 || !events || events->kind != JSON_ARRAY ||
        ranks < 1 || ranks > MAX_DEVICES || rank < 0 || rank >= ranks ||
        !is_name(json_word(of, "group")))
        return is_wrong(path, "it holds no calls of a rank");
    struct traced_group *g = find_group(job, json_word(of, "group"));
    if (!g) return fail(ERR_MEMORY, "%s: no host memory", path);
    if (g->files++ && g->ranks != ranks)
        return is_wrong(path, "another file of its group has more or fewer ranks");
    g->ranks = (int)ranks;
    struct traced_rank *r = &g->rank[rank];
    if (r->calls) return is_wrong(path, "its rank has another file");
    r->calls = calloc((size_t)events->count + 1, sizeof *r->calls);
    if (!r->calls) return fail(ERR_MEMORY, "%s: no host memory", path);
    for (const struct json *event = events->child; event; event = event->next)
        if (!strcmp(json_word(event, "ph"), "X"))
            CHECK(read_call(path, &r->calls[r->count++], event));
    return OK;
}

static int read_file(struct traced_job *job, const char *path) {
    struct json *root = NULL;
    int code = json_of_file(path, &root);
    if (!code) code = read_rank(job, path, root);
    json_free(root);
    return code;
}

/* ---- all of them ---- */

static int by_number(const void *left, const void *right) {
    const struct traced_call *a = left, *b = right;
    if (a->message != b->message) return a->message - b->message;
    return a->number < b->number ? -1 : a->number > b->number;
}

static int sum_up(struct traced_group *g) {
    g->first_ns = INT64_MAX;
    for (int i = 0; i < g->ranks; i++) {
        struct traced_rank *r = &g->rank[i];
        if (r->count) qsort(r->calls, r->count, sizeof *r->calls, by_number);
        for (size_t k = 0; k < r->count; k++) {
            const struct traced_call *c = &r->calls[k];
            if (c->start_ns < g->first_ns) g->first_ns = c->start_ns;
            if (c->end_ns > g->last_ns) g->last_ns = c->end_ns;
            r->bytes += c->bytes;
            r->collectives += (size_t)!c->message;
            if (!c->message) r->in_calls_ns += c->end_ns - c->start_ns;
        }
    }
    if (g->first_ns > g->last_ns) g->first_ns = g->last_ns; /* there is no call */
    return calls_judge(g);
}

static int most_calls_first(const void *left, const void *right) {
    const struct traced_group *a = left, *b = right;
    size_t x = a->rank[0].count, y = b->rank[0].count;
    if (x != y) return x > y ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* GROUP.RANK: there may be other files, such as a timeline made from these. */
static int is_group_and_rank(const char *end) {
    const char *rank = end + strcspn(end, ".") + 1;
    return rank > end + 1 && *rank && !rank[strspn(rank, "0123456789")];
}

int calls_read(struct traced_job *job, const char *path) {
    char pattern[4096];
    glob_t found;
    int code = OK;
    *job = (struct traced_job){.groups = 0};
    if (snprintf(pattern, sizeof pattern, "%s.*.*", path) >= (int)sizeof pattern)
        return fail(ERR_USAGE, "report: a path of more than %zu letters", sizeof pattern);
    int none = glob(pattern, GLOB_ERR, NULL, &found);
    for (size_t i = 0; !none && !code && i < found.gl_pathc; i++)
        if (!strncmp(found.gl_pathv[i], path, strlen(path)) && /* no pattern in it counts */
            is_group_and_rank(found.gl_pathv[i] + strlen(path) + 1))
            code = read_file(job, found.gl_pathv[i]);
    globfree(&found);
    if (code) return code;
    if (!job->groups)
        return fail(ERR_FAILED,
                    "report: %s: no files %s.GROUP.RANK: run the job with DUET_TRACE=%s", path,
                    path, path);
    for (int i = 0; i < job->groups; i++)
        CHECK(sum_up(&job->group[i]));
    qsort(job->group, (size_t)job->groups, sizeof *job->group, most_calls_first);
    return OK;
}

void calls_free(struct traced_job *job) {
    for (int i = 0; i < job->groups; i++) {
        for (int r = 0; r < MAX_DEVICES; r++)
            free(job->group[i].rank[r].calls);
        free(job->group[i].met);
    }
    free(job->group);
    *job = (struct traced_job){.groups = 0};
}
