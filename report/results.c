/* The files of --json, read back: see results.h. */
#include "report/results.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "report/origin.h"

static const struct json *member(const struct json *object, const char *path) {
    char key[64];
    while (object && *path) {
        size_t length = strcspn(path, "/");
        snprintf(key, sizeof key, "%.*s", (int)length, path);
        object = json_find(object, key);
        path += length + (path[length] == '/');
    }
    return object;
}

const char *results_text(const struct json *object, const char *path) {
    const struct json *item = member(object, path);
    return item && item->kind == JSON_STRING ? item->string : "";
}

const struct results_run *results_find(const struct results *r, const char *name) {
    for (int i = 0; i < r->count; i++)
        if (!strcmp(r->run[i].name, name)) return &r->run[i];
    return NULL;
}

/* A pipe has no size, so the text grows as it comes. */
int read_whole_file(const char *path, char **text, size_t *bytes) {
    FILE *file = fopen(path, "r");
    size_t capacity = 0, n = 0;
    int code = OK;
    if (!file) return fail_errno(ERR_FAILED, errno, "%s: cannot be read", path);
    do {
        *bytes += n;
        if (*bytes == capacity) {
            char *grown = realloc(*text, capacity = 2 * capacity + 65536);
            if (!grown) code = fail(ERR_MEMORY, "%s: no host memory", path);
            if (grown) *text = grown;
        }
    } while (!code && (n = fread(*text + *bytes, 1, capacity - *bytes, file)) > 0);
    if (!code && ferror(file)) code = fail_errno(ERR_FAILED, errno, "%s: cannot be read", path);
    fclose(file);
    return code;
}

static int read_root(struct results *r) {
    char *text = NULL;
    size_t bytes = 0;
    int code = read_whole_file(r->path, &text, &bytes);
    if (!code) code = json_parse(r->path, text, bytes, &r->root);
    free(text);
    return code;
}

/* What is wrong with the file as a whole. */
static int check_root(const struct results *r) {
    const struct json *schema = json_find(r->root, "schema"), *runs = json_find(r->root, "runs");
    if (!schema || !schema->is_integer)
        return fail(ERR_FAILED, "%s: no \"schema\": give a file that duet wrote with --json",
                    r->path);
    if (schema->integer != JSON_SCHEMA)
        return fail(ERR_FAILED,
                    "%s: schema %lld: this duet reads schema %d: use the duet that wrote it",
                    r->path, (long long)schema->integer, JSON_SCHEMA);
    if (!runs || runs->kind != JSON_ARRAY || !runs->count)
        return fail(ERR_FAILED,
                    "%s: no runs: duet %s has none: give a file of train, compare, "
                    "demo, profile, estimate or scale",
                    r->path, *r->command ? r->command : "there");
    return OK;
}

static int read_run(const struct results *r, struct results_run *run, const struct json *item) {
    const struct json *full = json_find(item, "does_not_fit");
    run->item = item;
    run->name = results_text(item, "name");
    run->title = results_text(item, "title");
    run->fits = !full || full->kind == JSON_NULL;
    if (!*run->name || !*run->title)
        return fail(ERR_FAILED, "%s: a run has no name: give a file that duet wrote", r->path);
    if (!run->fits) return OK;
    int code = record_read(&run->record, item);
    return code ? fail(code, "%s: %s: %s", r->path, run->name, error_message()) : OK;
}

int results_read(struct results *r, const char *path) {
    *r = (struct results){.path = path};
    CHECK(read_root(r));
    r->command = results_text(r->root, "command");
    r->date = results_text(r->root, "date");
    r->host = results_text(r->root, "host/name");
    r->version = results_text(r->root, "versions/duet");
    CHECK(check_root(r));
    const struct json *runs = json_find(r->root, "runs");
    r->run = calloc((size_t)runs->count, sizeof *r->run);
    if (!r->run) return fail(ERR_MEMORY, "%s: no host memory", path);
    for (const struct json *item = runs->child; item; item = item->next)
        CHECK(read_run(r, &r->run[r->count++], item));
    return OK;
}

void results_free(struct results *r) {
    for (int i = 0; i < r->count; i++)
        record_free(&r->run[i].record);
    free(r->run);
    json_free(r->root);
    *r = (struct results){.path = NULL};
}
