/* Parses an op's line, and checks its operands and settings against its row in graph_ops.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "models/graph/graph_reader.h"

/* Letter number i of the operands, and whether it may be none. 0: there is no such one. */
static char letter_of(const char *operands, int i, int *optional) {
    char letter = 0;
    *optional = 0;
    for (const char *c = operands; *c; c++) {
        if (*c == '*') return letter;
        if (*c == '?') continue;
        letter = *c;
        *optional = c[1] == '?';
        if (!i--) return letter;
    }
    return 0;
}

/* The fault of operand i; NULL: none. */
static const char *misfit(const struct graph *g, char letter, int what, int in_rows) {
    const struct graph_tensor *t = what < 0 ? &g->tensors[~what] : NULL;
    const int has_n = !t && graph_has_batch(&g->values[what].shape);
    if (has_n && in_rows) return "must have no N, as the result has none";
    if (in_rows && letter == 's') return "works on samples: give its result an N";
    if (!has_n && !in_rows && (letter == 'v' || letter == 's'))
        return "must be a value with N: expand it first";
    if (letter == 'b') return t && t->kind == GRAPH_BUFFER ? NULL : "must be a buffer";
    if (t && t->is_i64) return "must be f32";
    return letter == 'p' && (has_n || (t && t->kind != GRAPH_PARAMETER))
               ? "must be a parameter, or a value without N"
               : NULL;
}

static int check_operand(struct graph_reader *r, const struct graph_node *n, const char *name,
                         int what) {
    int optional, i = n->operand_count;
    char letter = letter_of(n->op->operands, i, &optional);
    struct graph *g = r->g;
    if (!letter)
        return graph_wrong(r, "%s takes %d operands: leave out the others", n->op->name, i);
    if (what == GRAPH_NONE)
        return optional ? OK
                        : graph_wrong(r, "operand %d of %s cannot be none: write a name", i + 1,
                                      n->op->name);
    const char *why = misfit(g, letter, what, n->in_rows);
    if (why) return graph_wrong(r, "%.80s: operand %d of %s %s", name, i + 1, n->op->name, why);
    if (what < 0)
        g->tensors[~what].beside_samples |= !n->in_rows;
    else
        g->values[what].uses++;
    return OK;
}

static int operand(struct graph_reader *r, struct graph_node *n, int operands[GRAPH_OPERANDS]) {
    char name[GRAPH_WORD];
    int what = GRAPH_NONE;
    if (n->operand_count == GRAPH_OPERANDS)
        return graph_wrong(r, "%s has more than %d operands: join them in several lines",
                           n->op->name, GRAPH_OPERANDS);
    CHECK(graph_word(r, "an operand", name));
    if (strcmp(name, "none")) CHECK(graph_find_name(r, name, &what));
    CHECK(check_operand(r, n, name, what));
    operands[n->operand_count++] = what;
    return OK;
}

/* Setting number `i` of the list "stride=1 padding=0": its name is `key`, or key is NULL. Returns
 * its place; NULL: there is none. */
static const char *setting_at(const char *settings, const char *key, int i, int *found) {
    int at = 0;
    for (const char *c = settings; *c; c += strcspn(c, " "), c += *c == ' ', at++) {
        size_t length = strcspn(c, " =");
        *found = at;
        if (key ? strlen(key) == length && !memcmp(c, key, length) : at == i) return c;
    }
    return NULL;
}

static int read_setting(struct graph_reader *r, struct graph_setting *s) {
    s->count = -1;
    if (!graph_take(r, "[")) return graph_number(r, &s->number[0], &s->batch[0]);
    s->count = 0;
    if (graph_take(r, "]")) return OK;
    do {
        if (s->count == GRAPH_RANK)
            return graph_wrong(r, "a list has at most %d numbers", GRAPH_RANK);
        CHECK(graph_number(r, &s->number[s->count], &s->batch[s->count]));
        s->count++;
    } while (graph_take(r, ","));
    return graph_expect(r, "]");
}

/* A graph must give the fields whose 0 in duet/functions.h means a default. */
static int check_window(struct graph_reader *r, const struct graph_node *n, const char *key,
                        const struct graph_setting *s) {
    if (strcmp(key, "stride") && strcmp(key, "dilation") && strcmp(key, "groups") &&
        strcmp(key, "size"))
        return OK;
    for (int i = 0; i < (s->count > 1 ? s->count : 1); i++)
        if (!(s->number[i] >= 1))
            return graph_wrong(r, "%s: %s %g: give at least 1", n->op->name, key, s->number[i]);
    return OK;
}

static int setting(struct graph_reader *r, struct graph_node *n, unsigned *given) {
    char key[GRAPH_WORD];
    int i = 0;
    CHECK(graph_word(r, "a setting", key));
    if (!setting_at(n->op->settings, key, 0, &i) || *given & 1u << i)
        return graph_wrong(r, "%s has no %ssetting %.60s%s%s", n->op->name,
                           setting_at(n->op->settings, key, 0, &i) ? "second " : "", key,
                           *n->op->settings ? ": it has " : "", n->op->settings);
    *given |= 1u << i;
    CHECK(graph_expect(r, "="));
    CHECK(read_setting(r, &n->settings[i]));
    return check_window(r, n, key, &n->settings[i]);
}

/* Missing settings get their defaults. */
static int fill_settings(struct graph_reader *r, struct graph_node *n, unsigned given) {
    const char *at;
    for (int i = 0, found; (at = setting_at(n->op->settings, NULL, i, &found)); i++) {
        size_t name = strcspn(at, " =");
        if (given & 1u << i) continue;
        if (at[name] != '=')
            return graph_wrong(r, "%s has no %.*s: give one", n->op->name, (int)name, at);
        n->settings[i] =
            (struct graph_setting){.count = -1, .number = {strtod(at + name + 1, NULL)}};
    }
    return OK;
}

static int operands_left(struct graph_reader *r, const struct graph_node *n) {
    int optional;
    char letter = letter_of(n->op->operands, n->operand_count, &optional);
    int repeats = strchr(n->op->operands, '*') && n->operand_count;
    return letter && !repeats
               ? graph_wrong(r, "%s has %d operands: one is missing: write none for one left out",
                             n->op->name, n->operand_count)
               : OK;
}

static int arguments(struct graph_reader *r, struct graph_node *n) {
    int operands[GRAPH_OPERANDS];
    unsigned given = 0;
    CHECK(graph_expect(r, "("));
    while (!graph_take(r, ")")) {
        graph_at_end(r); /* skips spaces */
        const char *behind = r->at + graph_word_length(r->at);
        behind += strspn(behind, " \t");
        if (*behind == '=')
            CHECK(setting(r, n, &given));
        else if (given)
            return graph_wrong(r, "operands come before settings: write NAME=VALUE last");
        else
            CHECK(operand(r, n, operands));
        graph_at_end(r);
        if (*r->at != ')') CHECK(graph_expect(r, ","));
    }
    CHECK(operands_left(r, n));
    CHECK(fill_settings(r, n, given));
    n->operands = malloc((size_t)n->operand_count * sizeof *n->operands + 1);
    if (!n->operands) return fail(ERR_MEMORY, "%s: out of host memory", r->g->path);
    memcpy(n->operands, operands, (size_t)n->operand_count * sizeof *operands);
    return OK;
}

/* "%y: TYPE = op(...)" */
int graph_statement(struct graph_reader *r) {
    struct graph *g = r->g;
    struct graph_shape s;
    char name[GRAPH_WORD], op[GRAPH_WORD], where[256];
    int is_i64;
    CHECK(graph_word(r, "a %name", name));
    CHECK(graph_type(r, &s, &is_i64));
    CHECK(graph_expect(r, "="));
    CHECK(graph_word(r, "an op", op));
    const struct graph_op *known = graph_find_op(op);
    snprintf(where, sizeof where, "%.200s: line %d: op", g->path, r->line);
    if (!known) return graph_unknown_op(where, op);
    if (!graph_has_batch(&s) && !*known->operands)
        return graph_wrong(r, "%s draws for each sample: give its result an N", op);
    CHECK(list_grow(g->path, &g->nodes, g->node_count, &g->node_room, sizeof *g->nodes));
    struct graph_node *n = &g->nodes[g->node_count];
    *n = (struct graph_node){.op = known, .in_rows = !graph_has_batch(&s)};
    int settings = 0;
    for (int found; setting_at(n->op->settings, NULL, settings, &found);)
        settings++;
    n->settings = calloc((size_t)settings + 1, sizeof *n->settings);
    if (!n->settings) return fail(ERR_MEMORY, "%s: out of host memory", g->path);
    g->node_count++; /* graph_free then frees the node */
    CHECK(arguments(r, n));
    return graph_add_value(r, name, &s, &n->y);
}
