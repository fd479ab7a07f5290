/* The files of DUET_TRACE, read: see calls.h. */
#include "report/calls/calls.h"

#include <errno.h>
#include <glob.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* ---- a trace ---- */

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

double json_value(const struct json *object, const char *key) {
    const struct json *item = json_find(object, key);
    return item && item->kind == JSON_NUMBER ? item->number : NAN;
}

/* ts and dur are microseconds. */
int event_times(const struct json *event, double *start, double *end) {
    double took = json_value(event, "dur") * 1e3;
    *start = json_value(event, "ts") * 1e3;
    *end = *start + took;
    return *start >= 0 && took >= 0 && *end < 1e18;
}

/* ---- one file ---- */

/* Names are printed, so only the characters that Duet writes are allowed. */
static size_t name_length(const char *text) {
    return strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
}

static int is_wrong(const char *path, const char *what) {
    return fail(ERR_FAILED, "%s: %s: give a file that DUET_TRACE named", path, what);
}

static int read_call(const char *path, struct traced_rank *r, const struct json *event) {
    struct traced_call c = {.bytes = json_value(json_find(event, "args"), "bytes")};
    const char *name = json_word(event, "name");
    if (!event_times(event, &c.start, &c.end) || !(c.bytes >= 0) || !*name ||
        name[name_length(name)])
        return is_wrong(path, "a call is damaged");
    r->bytes += c.bytes;
    if (!strcmp(name, "send") || !strcmp(name, "recv")) {
        r->messages++;
        return OK;
    }
    r->in_calls += c.end - c.start;
    snprintf(c.name, sizeof c.name, "%s", name);
    r->calls[r->count++] = c;
    return OK;
}

static int read_rank(struct traced_group *g, const char *path, const struct json *root) {
    const struct json *events = json_find(root, "traceEvents"), *of = json_find(root, "otherData");
    double ranks = json_value(of, "ranks"), rank = json_value(of, "rank");
    if (json_value(of, "duet_calls") != 1 || !events || events->kind != JSON_ARRAY ||
        !(rank >= 0 && rank < ranks && ranks <= MAX_DEVICES) || rank != floor(rank) ||
        ranks != floor(ranks))
        return is_wrong(path, "it holds no calls of a rank");
    if (g->files++ && g->ranks != (int)ranks)
        return is_wrong(path, "another file of its group has more or fewer ranks");
    g->ranks = (int)ranks;
    struct traced_rank *r = &g->rank[(int)rank];
    if (r->calls) return is_wrong(path, "its rank has another file");
    r->calls = calloc((size_t)events->count + 1, sizeof *r->calls);
    if (!r->calls) return fail(ERR_MEMORY, "%s: out of host memory", path);
    for (const struct json *event = events->child; event; event = event->next)
        if (!strcmp(json_word(event, "ph"), "X")) CHECK(read_call(path, r, event));
    return OK;
}

static int read_file(struct traced_group *g, const char *path) {
    struct json *root = NULL;
    int code = json_of_file(path, &root);
    if (!code) code = read_rank(g, path, root);
    json_free(root);
    return code;
}

/* ---- all of them ---- */

/* Files that begin with these `prefix` characters belong to one group. 0: the file's name does not
 * end with GROUP.RANK after PATH; there may be such files beside the others. */
static size_t prefix_of(const char *path, const char *file) {
    if (strncmp(file, path, strlen(path)) != 0) return 0; /* no pattern in PATH counts */
    const char *group = file + strlen(path) + 1, *dot = group + name_length(group);
    if (dot == group || *dot != '.' || !dot[1] || dot[1 + strspn(dot + 1, "0123456789")]) return 0;
    return (size_t)(dot + 1 - file);
}

/* Reads and judges the first of the sorted files and all that follow of its group. *taken: how
 * many. */
static int report_group(FILE *out, int width, const char *path, char *const *files, size_t count,
                        size_t *taken) {
    size_t prefix = prefix_of(path, files[0]), start = strlen(path) + 1;
    struct traced_group g = {.name = files[0] + start, .name_length = (int)(prefix - start) - 1};
    int code = OK;
    for (*taken = 0; *taken < count && !strncmp(files[*taken], files[0], prefix); ++*taken)
        if (!code && prefix_of(path, files[*taken])) code = read_file(&g, files[*taken]);
    if (!code) code = calls_judge(out, width, &g);
    for (int r = 0; r < MAX_DEVICES; r++)
        free(g.rank[r].calls);
    return code;
}

int calls_report(FILE *out, int width, const char *path, int otherwise) {
    char pattern[4096];
    glob_t found;
    int groups = 0, code = OK;
    if (snprintf(pattern, sizeof pattern, "%s.*.*", path) >= (int)sizeof pattern)
        return fail(ERR_USAGE, "report: the path has more than %zu characters", sizeof pattern);
    size_t files = glob(pattern, GLOB_ERR, NULL, &found) ? 0 : found.gl_pathc;
    for (size_t i = 0, taken = 1; i < files && !code; i += taken) {
        taken = 1;
        if (!prefix_of(path, found.gl_pathv[i])) continue;
        if (groups++) fputc('\n', out);
        code = report_group(out, width, path, found.gl_pathv + i, files - i, &taken);
    }
    globfree(&found);
    if (code || groups) return code;
    if (otherwise) return otherwise;
    return fail(ERR_FAILED, "report: %s: no files %s.GROUP.RANK: run the job with DUET_TRACE=%s",
                path, path, path);
}
