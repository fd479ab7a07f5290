/* Reading print(model): see sequential.h. Each line opens a Sequential, closes one, or is a layer:
 *
 *     Sequential(    (name): Sequential(    )    (name): Kind(arguments)
 *
 * How far a line is indented does not matter. */
#include "models/sequential/sequential.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/error.h"
#include "models/model_file.h"

/* ---- lines ---- */

struct reader {
    struct sequential *s;
    int line;  /* that is being read */
    int depth; /* Sequentials that are open; 0: not yet, or the last one is closed */
    int closed;
    char path[SEQUENTIAL_NAME];    /* of the innermost one, with a dot behind it */
    size_t ends[SEQUENTIAL_DEPTH]; /* the length of `path` in each that is open */
};

static int open_block(struct reader *r, const char *name, size_t length) {
    size_t used = r->depth ? r->ends[r->depth - 1] : 0;
    if (r->depth == SEQUENTIAL_DEPTH)
        return sequential_fail(r->s, r->line, "more than %d Sequentials in each other",
                               SEQUENTIAL_DEPTH);
    if (used + length + 2 > sizeof r->path)
        return sequential_fail(r->s, r->line, "its name is too long: give at most %d characters",
                               SEQUENTIAL_NAME - 2);
    if (r->depth) used += (size_t)sprintf(r->path + used, "%.*s.", (int)length, name);
    r->ends[r->depth++] = used;
    return OK;
}

static int add_item(struct reader *r, const char *name, size_t name_length, const char *text,
                    size_t length) {
    struct sequential *s = r->s;
    struct sequential_item item = {.line = r->line, .layer = -1};
    size_t used = r->ends[r->depth - 1];
    if (used + name_length + 1 > sizeof item.name)
        return sequential_fail(s, r->line, "its name is too long: give at most %d characters",
                               SEQUENTIAL_NAME - 1);
    snprintf(item.name, sizeof item.name, "%.*s%.*s", (int)used, r->path, (int)name_length, name);
    CHECK(sequential_read_layer(s, text, length, &item));
    if (s->count == s->room) {
        int room = s->room ? 2 * s->room : 16;
        struct sequential_item *items = realloc(s->items, (size_t)room * sizeof *items);
        if (!items) return fail(ERR_MEMORY, "%s: no host memory", s->path);
        s->items = items;
        s->room = room;
    }
    s->items[s->count++] = item;
    return OK;
}

static int is_word(const char *text, size_t length, const char *word) {
    return strlen(word) == length && !memcmp(text, word, length);
}

/* "(name): rest" */
static int read_child(struct reader *r, const char *text, size_t length) {
    const char *end = memchr(text, ')', length);
    if (*text != '(' || !end || end == text + 1 || (size_t)(end - text) + 3 > length ||
        memcmp(end, "): ", 3))
        return sequential_fail(r->s, r->line, "must be (name): Layer(...), or )");
    const char *name = text + 1, *rest = end + 3;
    size_t name_length = (size_t)(end - name), left = length - (size_t)(rest - text);
    if (memchr(name, '.', name_length)) return sequential_fail(r->s, r->line, "a name has no dot");
    if (is_word(rest, left, "Sequential(")) return open_block(r, name, name_length);
    if (is_word(rest, left, "Sequential()")) return OK;
    return add_item(r, name, name_length, rest, left);
}

static int read_line(struct reader *r, const char *text, size_t length) {
    if (!length) return OK;
    if (r->closed) return sequential_fail(r->s, r->line, "the model has ended in the line before");
    if (is_word(text, length, ")") && r->depth) {
        r->closed = !--r->depth;
        return OK;
    }
    if (r->depth) return read_child(r, text, length);
    if (is_word(text, length, "Sequential(")) return open_block(r, "", 0);
    return sequential_fail(r->s, r->line,
                           "only nn.Sequential can be read, since no other prints its "
                           "forward: it begins with Sequential(; duet.export writes any model");
}

static int read_text(struct sequential *s) {
    struct reader r = {.s = s};
    if (strlen(s->text) != s->bytes)
        return fail(ERR_USAGE, "%.200s: it has a zero byte: give the text of print(model)",
                    s->path);
    for (const char *at = s->text; *at;) {
        int length;
        const char *text = sequential_line(&(struct sequential){.text = (char *)at}, 1, &length);
        r.line++;
        CHECK(read_line(&r, text, (size_t)length));
        at += strcspn(at, "\n");
        at += *at == '\n';
    }
    if (!r.line) return fail(ERR_USAGE, "%.200s: it is empty: give print(model)", s->path);
    if (!r.closed)
        return sequential_fail(s, r.line, "the text ends before the model does: a ) is missing");
    if (!s->count) return sequential_fail(s, 1, "the model has no layers");
    return OK;
}

/* ---- the whole ---- */

static int start(struct sequential **out, const char *path) {
    struct sequential *s = calloc(1, sizeof *s);
    *out = NULL;
    if (s) s->path = strdup(path);
    if (!s || !s->path) {
        sequential_free(s);
        return fail(ERR_MEMORY, "%s: no host memory", path);
    }
    model_file_name(path, "sequential", s->name);
    *out = s;
    return OK;
}

static int finish(struct sequential **out, int code) {
    if (!code) code = read_text(*out);
    if (!code) {
        sequential_make_model(*out);
        return OK;
    }
    sequential_free(*out);
    *out = NULL;
    return code;
}

int sequential_parse(struct sequential **out, const char *path, const char *text, size_t bytes) {
    CHECK(start(out, path));
    struct sequential *s = *out;
    s->text = malloc(bytes + 1);
    if (!s->text) return finish(out, fail(ERR_MEMORY, "%s: no host memory", path));
    memcpy(s->text, text, bytes);
    s->text[bytes] = 0;
    s->bytes = bytes;
    return finish(out, OK);
}

void sequential_free(struct sequential *s) {
    if (!s) return;
    free(s->path);
    free(s->text);
    free(s->items);
    free(s);
}
