/* Reads the files of DUET_TRACE: see calls.h. */
#include "report/calls/calls.h"

#include <errno.h>
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
static int is_name(const char *text) {
    return *text &&
           !text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")];
}

static int is_wrong(const char *path, const char *what) {
    return fail(ERR_FAILED,
                "%s: %s: give files of DUET_TRACE, or one file of duet_devices_timeline", path,
                what);
}

static int read_call(const char *path, struct traced_rank *r, const struct json *event) {
    struct traced_call c = {.bytes = json_value(json_find(event, "args"), "bytes")};
    const char *name = json_word(event, "name");
    if (!event_times(event, &c.start, &c.end) || !(c.bytes >= 0) || !is_name(name))
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
        !is_name(json_word(of, "group")) || !(rank >= 0 && rank < ranks && ranks <= MAX_DEVICES) ||
        rank != floor(rank) || ranks != floor(ranks))
        return is_wrong(path, "it holds no calls of a rank");
    if (g->files++ && g->ranks != (int)ranks)
        return is_wrong(path, "another file of its group has a different number of ranks");
    g->ranks = (int)ranks;
    snprintf(g->name, sizeof g->name, "%s", json_word(of, "group"));
    struct traced_rank *r = &g->rank[(int)rank];
    if (r->calls) return is_wrong(path, "another file has the same rank");
    r->calls = calloc((size_t)events->count + 1, sizeof *r->calls);
    if (!r->calls) return fail(ERR_MEMORY, "%s: out of host memory", path);
    for (const struct json *event = events->child; event; event = event->next)
        if (!strcmp(json_word(event, "ph"), "X")) CHECK(read_call(path, r, event));
    return OK;
}

/* ---- all of them ---- */

static void free_calls(struct traced_group *g) {
    for (int r = 0; r < MAX_DEVICES; r++)
        free(g->rank[r].calls);
    *g = (struct traced_group){.files = 0};
}

/* A file of another group ends the one before. */
static int read_file(FILE *out, int width, struct traced_group *g, const char *path) {
    struct json *root = NULL;
    int code = json_of_file(path, &root);
    if (!code && g->files && strcmp(json_word(json_find(root, "otherData"), "group"), g->name)) {
        code = calls_judge(out, width, g);
        fputc('\n', out);
        free_calls(g);
    }
    if (!code) code = read_rank(g, path, root);
    json_free(root);
    return code;
}

static int by_name(const void *left, const void *right) {
    return strcmp(*(char *const *)left, *(char *const *)right);
}

int calls_report(FILE *out, int width, char **files, int count) {
    struct traced_group g = {.files = 0};
    int code = OK;
    qsort(files, (size_t)count, sizeof *files, by_name);
    for (int i = 0; i < count && !code; i++)
        code = read_file(out, width, &g, files[i]);
    if (!code) code = calls_judge(out, width, &g);
    free_calls(&g);
    return code;
}
