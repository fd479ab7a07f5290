/* The inside of a tape, shared by tape.c (nodes, backward walk), tape_arena.c (memory),
 * layers.c, loss.c and weight_grads.c. A new op is written against this file and tape.h alone. */
#ifndef NN_TAPE_INTERNAL_H
#define NN_TAPE_INTERNAL_H

#include "nn/tape.h"

/* A var and what the backward walk needs to know of it. `var` comes first: a struct var * is one
 * of these. */
struct tape_var {
    struct var var;
    int borrowed;       /* grad lies in memory that is not the tape's: never written in place */
    int reached;        /* the root depends on it */
    struct tensor hits; /* of a loss: I32 (N), 1 where the largest score was the label's */
};

struct node;
typedef int node_backward(struct tape *tape, struct node *node);

/* One recorded op: y = op(x, w, b). Pointers into the tape and the param_set. */
struct node {
    node_backward *backward;
    struct var *x, *y;
    struct param *w, *b;
    struct op_args args; /* as launched forward: its settings (p) serve the backward op too */
};

/* Device memory of a step: see tape_arena.c. */
struct tape_block {
    char *memory;
    size_t bytes;
};
struct tape_mark {
    int block;     /* the block in use */
    size_t offset; /* bytes used in it */
    size_t in_use; /* bytes used in all blocks */
};

struct tape {
    struct device *device;
    struct stream *stream;
    enum mem_cause cause; /* what the arena is charged to */
    struct tape_step step;
    struct segments segments;
    grad_hook *hook;
    void *hook_context;
    int accumulate;
    int dropout_layers; /* counted in order of call */

    struct node *nodes; /* owned */
    int node_count, node_capacity;
    /* owned, each on its own so that pointers stay valid; reused over steps */
    struct tape_var **vars;
    int var_count, var_capacity;

    struct tape_block *blocks; /* owned */
    int block_count;
    struct tape_mark mark;
    size_t high_water;
    uint64_t arena_version; /* changes of blocks so far */

    int *uses_left; /* per parameter, during backward: contributions still to come */
    int *uses_total;
    float **segment_grads; /* per parameter used more than once: one gradient a segment */
    int param_capacity;

    int error;
    char message[512];
};

/* Records the first failure; returns code. */
int tape_fail(struct tape *t, int code);

/* 1 if an op cannot go on: an earlier failure or a NULL operand. */
static inline int tape_stuck(const struct tape *t, const struct var *x) {
    return t->error || !x;
}

/* Memory of the step arena, 256-byte aligned; taken back to a mark by tape_release (work already
 * enqueued may still use it: the stream's order protects it). NULL after a failure, which is
 * then recorded. */
void *tape_alloc(struct tape *t, size_t bytes);
static inline struct tape_mark tape_here(const struct tape *t) {
    return t->mark;
}
static inline void tape_release(struct tape *t, struct tape_mark mark) {
    t->mark = mark;
}
int tape_restart_arena(struct tape *t, int ran_out); /* all of it is free again, in one block */
void tape_free_blocks(struct tape *t);               /* the stream must be done with them */

/* A tensor in the arena; activations get dims[0] = n and, in N16, the segments' groups. data
 * NULL on failure. */
struct tensor tape_tensor(struct tape *t, enum dtype dtype, enum layout layout, int rank,
                          const int *dims);

/* A new var with value `value`; NULL after a failure. */
struct var *tape_var(struct tape *t, struct tensor value, int needs_grad);

/* Appends a node when training and y needs a gradient. */
int tape_node(struct tape *t, const struct node *node);

/* Where the gradient of x is to be written: a fresh tensor shaped like x->value. grad_done then
 * makes it x->grad, or adds it if x already has one. grad_may_reuse: y's own gradient, read for
 * the last time, may serve as x's (elementwise backward ops). */
struct tensor grad_target(struct tape *t, const struct var *x);
int grad_done(struct tape *t, struct var *x, const struct tensor *grad);
int grad_may_reuse(const struct var *y);

/* Gradients of the node's w and b by op (CONV2D_ or LINEAR_BACKWARD_WEIGHT) from x->value and
 * y->grad: made segment by segment, folded, hooks fired. */
int tape_weight_grads(struct tape *t, enum op op, struct node *node);

/* x in the device's own activation layout, converted if it is PLAIN there. */
struct var *to_device_layout(struct tape *t, struct var *x);

#endif
