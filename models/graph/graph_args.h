/* The arguments of a graph's op, for the functions of duet.h. */
#ifndef MODELS_GRAPH_ARGS_H
#define MODELS_GRAPH_ARGS_H

#include <limits.h>

#include "models/graph/graph.h"
#include "nn/layers/text_functions.h"
#include "nn/tape/tape_internal.h"

/* Operand i, or NULL for `none`. */
duet_var *value(struct graph_run *r, const struct graph_node *n, int i);
/* The index of a parameter; for none DUET_NO_BIAS, which equals DUET_NO_WEIGHT. */
int tensor(struct graph_run *r, const struct graph_node *n, int i);
/* Operand i. If the result has no N, it is expanded to the result's number of dimensions. */
duet_var *beside_result(struct graph_run *r, const struct graph_node *n, int i);
/* Makes a value without N a parameter of the pass; NULL: the tape has the error. */
struct param *graph_computed(struct graph_run *r, int what);
duet_var *run_matmul(struct graph_run *r, const struct graph_node *n);
duet_var *run_batch_norm(struct graph_run *r, const struct graph_node *n);

static inline double number(const struct graph_node *n, int i) {
    return n->settings[i].number[0];
}

/* Out-of-range values stay out of range, so that the op refuses them. */
static inline int as_whole(double x) {
    return x >= -INT_MAX && x <= INT_MAX ? (int)x : INT_MAX;
}

static inline int whole(const struct graph_node *n, int i) {
    return as_whole(n->settings[i].number[0]);
}

/* The setting as a list of `count` numbers; a single number is repeated. */
static inline void list(const struct graph_node *n, int i, int count, int *out) {
    const struct graph_setting *s = &n->settings[i];
    for (int k = 0; k < count; k++)
        out[k] = as_whole(s->number[s->count < 0 ? 0 : k < s->count ? k : 0]);
}

/* A dimension's index in the var, which may have an extra dimension of rows in front. */
static inline int whole_dim(const struct graph_run *r, const struct graph_node *n, int i) {
    return whole(n, i) + r->in_rows;
}

/* The same for a list or a single number; returns their count. */
static inline int list_dims(const struct graph_run *r, const struct graph_node *n, int i,
                            int *out) {
    int count = n->settings[i].count < 0 ? 1 : n->settings[i].count;
    list(n, i, count, out);
    for (int k = 0; k < count; k++)
        out[k] += r->in_rows;
    return count;
}

/* The result's shape as its line declares it, after the dimension of rows if the value has no N. */
static inline int result_shape(const struct graph_run *r, const struct graph_node *n, int *dims) {
    const struct graph_shape *s = &r->graph->values[n->y].shape;
    dims[0] = r->tape->segments.count;
    for (int i = 0; i < s->rank; i++)
        dims[i + r->in_rows] = as_whole((double)s->size[i] * (s->batch[i] ? r->samples : 1));
    return s->rank + r->in_rows;
}

/* stride and padding. A second padding of 0 is none in a graph, and is the first in duet.h. */
static inline void windows(const struct graph_node *n, int i, int *stride, int *padding) {
    list(n, i, 2, stride);
    list(n, i + 1, 2, padding);
    if (!padding[1]) padding[1] = DUET_NO_PADDING;
}

#endif
