/* The files of remote calls, read, and both ends of each call joined: see remote.h. */
#include "report/calls/remote.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
static const char of_functions[] = LETTERS ".", of_workers[] = LETTERS ":-";

static int is_wrong(const char *path, const char *what) {
    return fail(ERR_FAILED, "%s: %s: give a file that DUET_TRACE named", path, what);
}

static int is_of_another_run(const char *path) {
    return fail(ERR_FAILED, "%s: another file has other workers: remove those of earlier runs",
                path);
}

/* Names are printed: no letters but those that Duet lets them have. */
static int is_name(const struct json *item, const char *letters) {
    return item->kind == JSON_STRING && *item->string && strlen(item->string) < REMOTE_NAME &&
           !item->string[strspn(item->string, letters)];
}

static int find_function(struct remote_job *job, const char *name) {
    for (int i = 0; i < job->functions; i++)
        if (!strcmp(job->function[i], name)) return i;
    void *grown = realloc(job->function, ((size_t)job->functions + 1) * sizeof *job->function);
    if (!grown) return -1;
    job->function = grown;
    snprintf(job->function[job->functions], REMOTE_NAME, "%s", name);
    return job->functions++;
}

/* ---- one file ---- */

static int read_workers(struct remote_job *job, const char *path, const struct json *root) {
    const struct json *names = json_find(root, "workers");
    int i = 0;
    if (!names || names->kind != JSON_ARRAY || names->count < 1 || names->count > MAX_DEVICES)
        return is_wrong(path, "it names no workers");
    if (job->workers && job->workers != names->count) return is_of_another_run(path);
    for (const struct json *n = names->child; n; n = n->next, i++) {
        if (!is_name(n, of_workers)) return is_wrong(path, "a worker's name is none");
        if (job->workers && strcmp(job->worker[i], n->string)) return is_of_another_run(path);
        snprintf(job->worker[i], REMOTE_NAME, "%s", n->string);
    }
    job->workers = names->count;
    return OK;
}

/* The whole numbers of a call behind its function. */
static int read_numbers(const struct json *item, int parts, uint64_t *n) {
    const struct json *p = item->child->next;
    for (int i = 0; i < parts; i++, p = p->next) {
        if (p->kind != JSON_NUMBER || !p->is_integer || p->integer < 0) return 0;
        n[i] = p->natural;
    }
    return 1;
}

static int read_call(struct remote_job *job, const char *path, int rank, int served,
                     const struct json *item) {
    uint64_t n[9];
    const int parts = served ? 9 : 8, end = parts - 1;
    if (item->kind != JSON_ARRAY || item->count != parts + 1 ||
        !is_name(item->child, of_functions) || !read_numbers(item, parts, n))
        return is_wrong(path, "a call is torn");
    for (int i = 7; i <= end; i++)
        if (n[i] < n[i - 1]) return is_wrong(path, "a call ends before it begins");
    if (n[0] >= (uint64_t)job->workers) return is_wrong(path, "a call is of no worker");
    if (job->count == job->room) {
        size_t room = job->room ? 2 * job->room : 1024;
        struct remote_call *grown = realloc(job->call, room * sizeof *grown);
        if (!grown) return fail(ERR_MEMORY, "%s: no host memory", path);
        job->call = grown;
        job->room = room;
    }
    struct remote_call *c = &job->call[job->count++];
    *c = (struct remote_call){.id = n[1],
                              .within = served ? 0 : n[2],
                              .failed = n[3] != 0,
                              .bytes = n[4] + n[5],
                              .from = served ? (int)n[0] : rank,
                              .to = served ? rank : (int)n[0],
                              .has_caller = !served,
                              .has_callee = served};
    if (served)
        c->came = (int64_t)n[6], c->began = (int64_t)n[7], c->done = (int64_t)n[8];
    else
        c->begun = (int64_t)n[6], c->ended = (int64_t)n[7];
    c->function = find_function(job, item->child->string);
    return c->function < 0 ? fail(ERR_MEMORY, "%s: no host memory", path) : OK;
}

int remote_read(struct remote_job *job, const char *path, const struct json *root) {
    const struct json *rank = json_find(root, "rank"), *lost = json_find(root, "lost");
    CHECK(read_workers(job, path, root));
    if (!rank || !rank->is_integer || rank->integer < 0 || rank->integer >= job->workers)
        return is_wrong(path, "its rank is none");
    if (job->has_file[rank->integer]++) return is_wrong(path, "its rank has another file");
    job->files++;
    job->lost += lost && lost->is_integer ? lost->integer : 0;
    for (int served = 0; served < 2; served++) {
        const struct json *calls = json_find(root, served ? "served" : "called");
        if (!calls || calls->kind != JSON_ARRAY) return is_wrong(path, "it holds no calls");
        for (const struct json *c = calls->child; c; c = c->next)
            CHECK(read_call(job, path, (int)rank->integer, served, c));
    }
    return OK;
}

/* ---- all files ---- */

int64_t remote_start(const struct remote_call *c) {
    return c->has_caller ? c->begun : c->came;
}

int64_t remote_end(const struct remote_call *c) {
    return c->has_caller ? c->ended : c->done;
}

static int by_id(const void *left, const void *right) {
    const struct remote_call *a = left, *b = right;
    if (a->id != b->id) return a->id < b->id ? -1 : 1;
    return b->has_caller - a->has_caller;
}

static void join_ends(struct remote_job *job) {
    size_t kept = 0;
    for (size_t i = 0; i < job->count; i++) {
        struct remote_call *c = &job->call[i], *before = kept ? &job->call[kept - 1] : NULL;
        if (!before || before->id != c->id || before->has_callee || !c->has_callee) {
            job->call[kept++] = *c;
            continue;
        }
        before->has_callee = 1;
        before->came = c->came, before->began = c->began, before->done = c->done;
    }
    job->count = kept;
}

static int by_within(const void *left, const void *right) {
    const struct remote_call *a = *(const struct remote_call *const *)left,
                             *b = *(const struct remote_call *const *)right;
    if (a->within != b->within) return a->within < b->within ? -1 : 1;
    return a->begun < b->begun ? -1 : a->begun > b->begun;
}

/* Adds to each call how long it waited for calls of its own; several at once count once. */
static void find_nested(struct remote_job *job, const struct remote_call **nested, size_t count) {
    struct remote_call *of = NULL;
    int64_t until = 0;
    for (size_t i = 0; i < count; i++) {
        const struct remote_call *c = nested[i], key = {.id = c->within, .has_caller = 1};
        if (!i || c->within != nested[i - 1]->within) {
            size_t low = 0, high = job->count;
            while (low < high) {
                size_t middle = low + (high - low) / 2;
                if (job->call[middle].id < key.id)
                    low = middle + 1;
                else
                    high = middle;
            }
            of = low < job->count && job->call[low].id == key.id ? &job->call[low] : NULL;
            until = of ? of->began : 0;
        }
        if (!of || !of->has_callee) continue;
        int64_t from = c->begun > until ? c->begun : until;
        int64_t to = c->ended < of->done ? c->ended : of->done;
        if (to <= from) continue;
        of->nested_ns += to - from;
        until = to;
    }
}

int remote_join(struct remote_job *job) {
    const struct remote_call **nested = malloc((job->count + 1) * sizeof *nested);
    size_t count = 0;
    if (!nested) return fail(ERR_MEMORY, "report: no host memory for %zu calls", job->count);
    if (job->count) qsort(job->call, job->count, sizeof *job->call, by_id);
    join_ends(job);
    job->first_ns = job->count ? INT64_MAX : 0;
    for (size_t i = 0; i < job->count; i++) {
        const struct remote_call *c = &job->call[i];
        if (c->has_caller && c->within) nested[count++] = c;
        if (remote_start(c) < job->first_ns) job->first_ns = remote_start(c);
        if (remote_end(c) > job->last_ns) job->last_ns = remote_end(c);
    }
    if (count) qsort(nested, count, sizeof *nested, by_within);
    find_nested(job, nested, count);
    free(nested);
    return OK;
}

void remote_free(struct remote_job *job) {
    free(job->function);
    free(job->call);
    *job = (struct remote_job){.workers = 0};
}
