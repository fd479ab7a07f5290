/* Parses a graph (graph.h). A line is a declaration, an op, or the return; # begins a comment.
 *
 *     duet 1
 *     input %x: TYPE [below NUMBER [to NUMBER]]
 *     parameter NAME: TYPE [frozen]       buffer NAME: TYPE      constant NAME: TYPE
 *     saves NUMBER NUMBER
 *     %y: TYPE = OP(OPERAND, ..., SETTING=VALUE, ...)
 *     update NAME = %y
 *     return %y
 *
 * TYPE is f32[N, 3, 8N] or, for inputs and buffers, i64[...]. OPERAND is a %value, a NAME or none.
 * VALUE is a number or a list of numbers. The first error ends the parse. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "models/graph/graph_reader.h"

/* ---- declarations ---- */

static int input(struct graph_reader *r) {
    char name[GRAPH_WORD], batch;
    struct graph *g = r->g;
    struct graph_shape s;
    int is_i64;
    double below = 0, most = 0;
    CHECK(graph_word(r, "a %name", name));
    CHECK(graph_type(r, &s, &is_i64));
    if (s.rank < 1 || !s.batch[0] || s.size[0] != 1)
        return graph_wrong(r, "the first dimension of an input must be N, the number of samples");
    if (graph_is_word(r, "below")) {
        CHECK(graph_number(r, &below, &batch));
        if (graph_is_word(r, "to")) CHECK(graph_number(r, &most, &batch));
    }
    if (is_i64 && !(below >= 1 && below <= 1 << 24 && below == floor(below)))
        return graph_wrong(
            r, "an i64 input needs a bound: write below 1 to below %d after its type", 1 << 24);
    if (most && !(most > below && most <= 1 << 24 && most == floor(most)))
        return graph_wrong(r, "below A to B: B must be an integer above A, at most %d", 1 << 24);
    double numbers = 1;
    for (int i = 1; i < s.rank; i++)
        numbers *= s.size[i];
    if ((r->numbers += numbers) > INT32_MAX)
        return graph_wrong(r, "a sample has more than %d numbers: write smaller inputs", INT32_MAX);
    CHECK(list_grow(g->path, &g->inputs, g->input_count, &g->input_room, sizeof *g->inputs));
    CHECK(list_grow(g->path, &g->parts, g->input_count, &g->part_room, sizeof *g->parts));
    CHECK(graph_add_value(r, name, &s, &g->inputs[g->input_count]));
    g->parts[g->input_count++] =
        (struct sample_part){(int)numbers, is_i64 ? (int)below : 0, is_i64 ? (int)most : 0};
    return OK;
}

static int declare(struct graph_reader *r, enum graph_kind kind) {
    struct graph *g = r->g;
    struct graph_tensor t = {.kind = kind, .line = r->line};
    char name[GRAPH_WORD];
    CHECK(graph_word(r, "a name", name));
    if (*name == '%' || !strcmp(name, "none"))
        return graph_wrong(r, "'%.80s': the name of a tensor has no %%, and is not none", name);
    CHECK(graph_type(r, &t.shape, &t.is_i64));
    if (graph_has_batch(&t.shape))
        return graph_wrong(r,
                           "a parameter, buffer or constant has no N: write a number in its place");
    if (t.is_i64 && (kind != GRAPH_BUFFER || t.shape.rank))
        return graph_wrong(r, "only a buffer of one number can be i64, written i64[]: write f32");
    if (t.shape.rank > DUET_MAX_RANK || (!t.shape.rank && !t.is_i64))
        return graph_wrong(r, "a tensor has 1 to %d dimensions: a single number is f32[1]",
                           DUET_MAX_RANK);
    CHECK(list_grow(g->path, &g->tensors, g->tensor_count, &g->tensor_room, sizeof *g->tensors));
    CHECK(graph_add_name(r, name, ~g->tensor_count));
    t.frozen = kind == GRAPH_PARAMETER && graph_is_word(r, "frozen");
    t.index = kind == GRAPH_PARAMETER ? g->parameters++ : g->buffers++;
    t.name = strdup(name);
    if (!t.name) return fail(ERR_MEMORY, "%s: out of host memory", g->path);
    g->tensors[g->tensor_count++] = t;
    return OK;
}

/* ---- lines ---- */

static int pytorch_saves(struct graph_reader *r) {
    double each, all;
    char batch;
    CHECK(graph_number(r, &each, &batch));
    CHECK(graph_number(r, &all, &batch));
    if (!(each >= 0 && each <= 1e15 && all >= 0 && all <= 1e15))
        return graph_wrong(r, "saves: write two numbers of bytes, up to 1e15");
    r->g->pytorch_sample = (int64_t)each;
    r->g->pytorch_shared = (int64_t)all;
    return OK;
}

/* "update NAME = %y": after a training pass. */
static int update(struct graph_reader *r) {
    struct graph *g = r->g;
    struct graph_update u;
    char name[GRAPH_WORD];
    CHECK(graph_word(r, "a buffer", name));
    CHECK(graph_find_name(r, name, &u.tensor));
    if (u.tensor >= 0 || g->tensors[~u.tensor].kind != GRAPH_BUFFER || g->tensors[~u.tensor].is_i64)
        return graph_wrong(r, "update %.80s: give the name of a buffer, f32", name);
    CHECK(graph_expect(r, "="));
    CHECK(graph_word(r, "a %value", name));
    CHECK(graph_find_name(r, name, &u.value));
    u.tensor = ~u.tensor;
    const struct graph_shape *to = &g->tensors[u.tensor].shape;
    if (u.value < 0 || !graph_same_shape(to, &g->values[u.value].shape))
        return graph_wrong(r, "update: %.80s must be a value of the buffer's shape, without N",
                           name);
    CHECK(list_grow(g->path, &g->updates, g->update_count, &g->update_room, sizeof *g->updates));
    g->values[u.value].uses++;
    g->tensors[u.tensor].updated = 1;
    g->updates[g->update_count++] = u;
    return OK;
}

static int read_return(struct graph_reader *r) {
    char name[GRAPH_WORD];
    CHECK(graph_word(r, "a %value", name));
    CHECK(graph_find_name(r, name, &r->g->result));
    if (r->g->result < 0) return graph_wrong(r, "%.80s is not a value: return a %%value", name);
    r->returned = 1;
    r->g->values[r->g->result].uses++;
    return OK;
}

static int read_line(struct graph_reader *r) {
    if (r->returned)
        return graph_wrong(r, "the file ends with the return above: leave out what follows");
    if (graph_is_word(r, "input")) return input(r);
    if (graph_is_word(r, "parameter")) return declare(r, GRAPH_PARAMETER);
    if (graph_is_word(r, "buffer")) return declare(r, GRAPH_BUFFER);
    if (graph_is_word(r, "constant")) return declare(r, GRAPH_CONSTANT);
    if (graph_is_word(r, "saves")) return pytorch_saves(r);
    if (graph_is_word(r, "update")) return update(r);
    if (graph_is_word(r, "return")) return read_return(r);
    if (*r->at == '%') return graph_statement(r);
    return graph_wrong(
        r,
        "'%.*s': a line begins with input, parameter, buffer, constant, saves, update, "
        "return, or the name of a value",
        graph_rest(r), r->at);
}

static int read_version(struct graph_reader *r) {
    double version;
    char batch;
    if (!graph_is_word(r, "duet"))
        return graph_wrong(r, "a model file begins with: duet 1: write it with duet.export");
    CHECK(graph_number(r, &version, &batch));
    if (version == 1 && !batch) return OK;
    return graph_wrong(r, "version %g: this Duet reads version 1: export the model again", version);
}

static int check_whole(struct graph_reader *r) {
    struct graph *g = r->g;
    if (!r->returned) return graph_wrong(r, "the file has no return: end it with return %%value");
    for (int i = 0; i < g->input_count; i++)
        if (!g->values[g->inputs[i]].uses)
            return fail(ERR_USAGE, "%.200s: line %d: no op uses this input: leave it out", g->path,
                        g->values[g->inputs[i]].line);
    if (!g->input_count)
        return fail(ERR_USAGE, "%.200s: the file has no input: write input %%x: TYPE", g->path);
    for (int i = 0; i < g->tensor_count; i++)
        if (g->tensors[i].updated && g->tensors[i].beside_samples)
            return fail(
                ERR_USAGE,
                "%.200s: line %d: a buffer with an update: no op whose result has N may read it",
                g->path, g->tensors[i].line);
    const struct graph_shape *s = &g->values[g->result].shape;
    int good = s->batch[0] && s->size[0] == 1;
    for (int i = 1; i < s->rank; i++)
        good = good && !s->batch[i];
    if (good) return OK;
    return fail(ERR_USAGE,
                "%.200s: line %d: a model returns numbers for each sample: write f32[N, classes]",
                g->path, g->values[g->result].line);
}

static int read_text(struct graph_reader *r, const char *text, size_t bytes) {
    r->at = r->begin = text;
    r->line = 1;
    if (strlen(text) != bytes) return graph_wrong(r, "the file has a zero byte: write plain text");
    for (int first = 1; *r->at; r->line++) {
        r->begin = r->at;
        if (r->line > GRAPH_LINES)
            return graph_wrong(r, "more than %d lines: write a smaller model", GRAPH_LINES);
        if (!graph_at_end(r)) {
            CHECK(first ? read_version(r) : read_line(r));
            first = 0;
        }
        if (!graph_at_end(r))
            return graph_wrong(r, "'%.*s': the line must end here, or a comment begin with #",
                               graph_rest(r), r->at);
        r->at += strcspn(r->at, "\n");
        r->at += *r->at == '\n';
    }
    r->begin = r->at;
    return check_whole(r);
}

int graph_parse_sized(struct graph **out, const char *path, const char *text, size_t bytes,
                      const int *sizes) {
    struct graph *g = calloc(1, sizeof *g);
    struct graph_reader r = {.g = g, .sizes = sizes};
    *out = NULL;
    if (g) g->path = strdup(path);
    if (!g || !g->path) {
        graph_free(g);
        return fail(ERR_MEMORY, "%s: out of host memory", path);
    }
    g->pytorch_sample = g->pytorch_shared = -1;
    int code = read_text(&r, text, bytes);
    graph_free_names(&r);
    if (code) {
        graph_free(g);
        return code;
    }
    graph_make_model(g);
    *out = g;
    return OK;
}

int graph_parse(struct graph **out, const char *path, const char *text, size_t bytes) {
    return graph_parse_sized(out, path, text, bytes, NULL);
}

void graph_free(struct graph *g) {
    if (!g) return;
    for (int i = 0; i < g->tensor_count; i++)
        free(g->tensors[i].name);
    for (int i = 0; i < g->node_count; i++) {
        free(g->nodes[i].operands);
        free(g->nodes[i].settings);
    }
    free(g->path);
    free(g->values);
    free(g->tensors);
    free(g->nodes);
    free(g->inputs);
    free(g->parts);
    free(g->updates);
    free(g);
}
