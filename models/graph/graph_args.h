/* What an op of a graph is given, for those who call functions of duet.h with it. */
#ifndef MODELS_GRAPH_ARGS_H
#define MODELS_GRAPH_ARGS_H

#include <limits.h>

#include "models/graph/graph.h"
#include "nn/tape/tape_internal.h"

static inline duet_var *value(const struct graph_run *r, const struct graph_node *n, int i) {
    int what = i < n->operand_count ? n->operands[i] : GRAPH_NONE;
    if (what >= 0 || what == GRAPH_NONE) return what >= 0 ? r->vars[what] : NULL;
    const struct graph_tensor *from = &r->graph->tensors[~what];
    if (from->kind == GRAPH_PARAMETER) return duet_parameter(r->tape, from->index);
    return duet_constant(r->tape, &(duet_tensor){.device = r->tape->device,
                                                 .t = r->tape->buffers->buffer[from->index].value,
                                                 .borrowed = 1});
}

/* The index of a parameter or buffer; DUET_NO_BIAS, which is DUET_NO_WEIGHT too, of none. */
static inline int tensor(const struct graph_run *r, const struct graph_node *n, int i) {
    return n->operands[i] == GRAPH_NONE ? DUET_NO_BIAS : r->graph->tensors[~n->operands[i]].index;
}

static inline double number(const struct graph_node *n, int i) {
    return n->settings[i].number[0];
}

/* What no op takes stays beyond its limits. */
static inline int as_whole(double x) {
    return x >= -INT_MAX && x <= INT_MAX ? (int)x : INT_MAX;
}

static inline int whole(const struct graph_node *n, int i) {
    return as_whole(n->settings[i].number[0]);
}

/* The setting as a list of `count` numbers; a single number stands for all of them. */
static inline void list(const struct graph_node *n, int i, int count, int *out) {
    const struct graph_setting *s = &n->settings[i];
    for (int k = 0; k < count; k++)
        out[k] = as_whole(s->number[s->count < 0 ? 0 : k < s->count ? k : 0]);
}

/* The shape of the result as its line says. */
static inline int result_shape(const struct graph_run *r, const struct graph_node *n, int *dims) {
    const struct graph_shape *s = &r->graph->values[n->y].shape;
    for (int i = 0; i < s->rank; i++)
        dims[i] = as_whole(graph_size(s, i, r->samples));
    return s->rank;
}

/* Of graph_norms.c. */
duet_var *run_batch_norm(struct graph_run *r, const struct graph_node *n);
duet_var *run_layer_norm(struct graph_run *r, const struct graph_node *n);
duet_var *run_group_norm(struct graph_run *r, const struct graph_node *n);

/* stride and padding. In a text a second padding of 0 is none, and in duet.h it is the first. */
static inline void windows(const struct graph_node *n, int i, int *stride, int *padding) {
    list(n, i, 2, stride);
    list(n, i + 1, 2, padding);
    if (!padding[1]) padding[1] = DUET_NO_PADDING;
}

#endif
