/* Parses the words of a graph: marks, names, numbers and shapes. Errors give line and column. */
#include <ctype.h>
#include <math.h>
#include <search.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "models/graph/graph_reader.h"

/* A name of the text, and its meaning: a value, or ~i for tensor i. */
struct name {
    char *word;
    int what;
};

int graph_wrong(const struct graph_reader *r, const char *format, ...) {
    char why[400];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return fail(ERR_USAGE, "%.200s: line %d, column %d: %s", r->g->path, r->line,
                (int)(r->at - r->begin) + 1, why);
}

/* ---- words ---- */

static void skip(struct graph_reader *r) {
    r->at += strspn(r->at, " \t\r");
}

int graph_at_end(struct graph_reader *r) {
    skip(r);
    return !*r->at || *r->at == '\n' || *r->at == '#';
}

int graph_rest(struct graph_reader *r) {
    graph_at_end(r);
    size_t length = strcspn(r->at, "\r\n");
    return length < 20 ? (int)length : 20;
}

int graph_take(struct graph_reader *r, const char *mark) {
    skip(r);
    size_t length = strlen(mark);
    if (strncmp(r->at, mark, length)) return 0;
    r->at += length;
    return 1;
}

int graph_expect(struct graph_reader *r, const char *mark) {
    if (graph_take(r, mark)) return OK;
    return graph_wrong(r, "'%.*s': must be %s", graph_rest(r), r->at, mark);
}

size_t graph_word_length(const char *at) {
    return strcspn(at, " \t\r\n,:=()[]#");
}

int graph_word(struct graph_reader *r, const char *what, char out[GRAPH_WORD]) {
    skip(r);
    size_t length = graph_word_length(r->at);
    if (!length || length >= GRAPH_WORD)
        return graph_wrong(r, "must be %s of 1 to %d characters", what, GRAPH_WORD - 1);
    memcpy(out, r->at, length);
    out[length] = 0;
    r->at += length;
    return OK;
}

int graph_is_word(struct graph_reader *r, const char *text) {
    skip(r);
    size_t length = strlen(text);
    if (strncmp(r->at, text, length) || graph_word_length(r->at) != length) return 0;
    r->at += length;
    return 1;
}

/* Takes the letter of a size of the samples, or C of the classes. 0: there is none. */
static double size_by_letter(struct graph_reader *r) {
    const char *letter = *r->at && r->sizes ? strchr(GRAPH_LETTERS, *r->at) : NULL;
    if (!letter) return 0;
    r->at++;
    return r->sizes[letter - GRAPH_LETTERS];
}

/* A number, which may be a multiple of N: 8, N, 8N, 1e-05, -inf. */
int graph_number(struct graph_reader *r, double *value, char *batch) {
    char *end;
    skip(r);
    *batch = 0;
    if (*r->at == 'N' && graph_word_length(r->at) == 1) {
        *value = 1;
        *batch = 1;
        r->at++;
        return OK;
    }
    if ((*value = size_by_letter(r))) return OK;
    *value = isdigit((unsigned char)*r->at) || strchr("-+.i", *r->at) ? strtod(r->at, &end) : NAN;
    if (isnan(*value) || end == r->at)
        return graph_wrong(r, "'%.*s': must be a number", graph_rest(r), r->at);
    r->at = end;
    double size = size_by_letter(r);
    if (size) *value *= size;
    if (*r->at == 'N') *batch = 1, r->at++;
    if (!graph_word_length(r->at)) return OK;
    return graph_wrong(r, "'%.*s': must be a number, or a multiple of N such as 8N", graph_rest(r),
                       r->at);
}

/* ---- names ---- */

static int compare_names(const void *a, const void *b) {
    return strcmp(((const struct name *)a)->word, ((const struct name *)b)->word);
}

static void free_name(void *name) {
    free(((struct name *)name)->word);
    free(name);
}

int graph_add_name(struct graph_reader *r, const char *text, int what) {
    struct name *name = malloc(sizeof *name), **found;
    if (name) *name = (struct name){strdup(text), what};
    if (!name || !name->word) {
        free(name);
        return fail(ERR_MEMORY, "%s: out of host memory", r->g->path);
    }
    found = tsearch(name, &r->names, compare_names);
    if (found && *found == name) return OK;
    int before = !found               ? 0
                 : (*found)->what < 0 ? r->g->tensors[~(*found)->what].line
                                      : r->g->values[(*found)->what].line;
    free_name(name);
    if (!found) return fail(ERR_MEMORY, "%s: out of host memory", r->g->path);
    return graph_wrong(r, "%.80s is already defined in line %d: write another name", text, before);
}

int graph_find_name(struct graph_reader *r, const char *text, int *what) {
    struct name key = {(char *)text, 0}, **found = tfind(&key, &r->names, compare_names);
    if (found) {
        *what = (*found)->what;
        return OK;
    }
    r->at -= strlen(text);
    return graph_wrong(r,
                       *text == '%' ? "%.80s: no line above this one defines it"
                                    : "%.80s: no line above this one declares it",
                       text);
}

/* ---- types ---- */

int graph_has_batch(const struct graph_shape *s) {
    int batch = 0;
    for (int i = 0; i < s->rank; i++)
        batch |= s->batch[i];
    return batch;
}

int graph_same_shape(const struct graph_shape *a, const struct graph_shape *b) {
    int same = a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++)
        same = a->size[i] == b->size[i] && a->batch[i] == b->batch[i];
    return same;
}

static int shape(struct graph_reader *r, struct graph_shape *s) {
    *s = (struct graph_shape){0};
    CHECK(graph_expect(r, "["));
    if (graph_take(r, "]")) return OK;
    double numbers = 1;
    do {
        double size;
        if (s->rank == GRAPH_RANK)
            return graph_wrong(r, "a type has at most %d dimensions", GRAPH_RANK);
        if (r->sizes && graph_take(r, "?")) {
            s->size[s->rank++] = GRAPH_ANY;
            continue;
        }
        CHECK(graph_number(r, &size, &s->batch[s->rank]));
        if (!(size >= 1 && size <= INT32_MAX && size == floor(size)))
            return graph_wrong(r, "a dimension of %g: must be an integer of at least 1", size);
        s->size[s->rank++] = (int)size;
        numbers *= size;
        if (numbers > INT32_MAX) return graph_wrong(r, "a type has at most %d numbers", INT32_MAX);
    } while (graph_take(r, ","));
    return graph_expect(r, "]");
}

int graph_type(struct graph_reader *r, struct graph_shape *s, int *is_i64) {
    CHECK(graph_expect(r, ":"));
    *is_i64 = graph_is_word(r, "i64");
    if (!*is_i64 && !graph_is_word(r, "f32"))
        return graph_wrong(r, "'%.*s': must be f32[...] or i64[...]", graph_rest(r), r->at);
    return shape(r, s);
}

void graph_free_names(struct graph_reader *r) {
    tdestroy(r->names, free_name);
    r->names = NULL;
}

int graph_add_value(struct graph_reader *r, const char *name, const struct graph_shape *s, int *y) {
    struct graph *g = r->g;
    if (*name != '%') return graph_wrong(r, "'%.80s': the name of a value begins with %%", name);
    CHECK(list_grow(g->path, &g->values, g->value_count, &g->value_room, sizeof *g->values));
    CHECK(graph_add_name(r, name, g->value_count));
    g->values[g->value_count] = (struct graph_value){*s, r->line, 0};
    *y = g->value_count++;
    return OK;
}
