/* The inside of a tape, shared by tape.c (nodes and the backward walk) and by the files of ops
 * (layers.c, loss.c, batch_norm.c and others). A new op is written against this file and tape.h. */
#ifndef NN_TAPE_INTERNAL_H
#define NN_TAPE_INTERNAL_H

#include "nn/step_arena.h"
#include "nn/tape.h"

/* A var and what the backward walk needs to know of it. `var` comes first, so that a struct var *
 * can be cast to one of these. */
struct tape_var {
    struct var var;
    int borrowed;             /* 1: others read the memory of grad too, so it is never written to */
    int reached;              /* 1: the root depends on it */
    struct tensor hits;       /* of a loss: I32 (N), 1 where the largest score was the label's */
    enum reduction reduction; /* of a loss */
    int joins;                /* 1: made by tape_join: it stands for several roots */
    /* value is relu(*relu_of) but has no memory yet: tape_stuck computes it for whoever reads it.
     * NULL: value is there. */
    struct var *relu_of;
};

struct node;
typedef int node_backward(struct tape *tape, struct node *node);

/* One op of the tape: y = op(x, w, b), or op(x, x2). Pointers into the tape and the param_set. */
struct node {
    node_backward *backward;
    struct var *x, *x2, *y;
    struct param *w, *b;
    /* Enqueues the gradients of w and b of segment s alone. NULL: the op given to
     * tape_weight_grads makes them from x->value and y->grad. */
    int (*segment_grads)(struct tape *tape, const struct node *node, int s, const struct tensor *dw,
                         const struct tensor *db);
    int exchanged;               /* of batch_norm.c: the segments of other ranks count too */
    struct tensor moments, sums; /* of batch_norm.c: F64 (S or 1, 3, C) and (S or V, 2, C) */
    struct op_args args; /* as launched forward: its settings (p) serve the backward op too */
};

struct tape {
    struct device *device;
    struct stream *stream; /* the device's compute stream */
    struct tape_step step; /* as given to tape_begin */
    struct segments segments;
    grad_hook *hook;
    void *hook_context;
    struct tape_exchange exchange; /* segments 0: there is none */
    int dropout_layers;            /* in order of call, so far in this step */

    struct node *nodes; /* [node_count], owned */
    int node_count, node_capacity;
    struct tape_var **vars; /* [var_count], each allocated alone so that pointers stay valid; owned,
                             * reused over steps */
    int var_count, var_capacity;
    struct step_arena arena;

    int *uses_left;        /* per parameter, during backward: contributions still to come */
    int *uses_total;       /* per parameter: contributions in all */
    float **segment_grads; /* per parameter used more than once: one gradient for each segment */
    char *used;            /* per parameter: what tape_uses returns */
    char *has_grad; /* per parameter: 1 once this pass or one before it has written a gradient */
    int param_capacity;

    int error;         /* of the first op that failed since tape_begin */
    char message[512]; /* its text */
};

/* Keeps `code` and its text if it is the first failure since tape_begin; returns code. */
int tape_fail(struct tape *t, int code);

/* What each op asks of each of its operands: 1 if it cannot go on, because of an earlier failure or
 * a NULL operand. A relu that was put off is computed here. */
int tape_stuck(struct tape *t, struct var *x);

/* A relu of a picture is put off, for a pool that follows at once can do its work (OP_AVG_POOL,
 * OP_MAX_POOL with p.pool.relu), and that of its gradient unless others use the relu too. Returns
 * the operand of the relu for that pool; NULL where x is no such relu, or not the last var that was
 * made: the order in which gradients are added, and so their bits, could then be another. */
struct var *tape_relu_put_off(const struct tape *t, const struct var *x);

/* Memory of the step arena; NULL after a failure, which the tape then keeps. */
void *tape_alloc(struct tape *t, size_t bytes);

/* A tensor in the arena. In layout N16 dims[0] is the batch's n, and the tensor gets the groups of
 * the segments. data is NULL on failure. */
struct tensor tape_tensor(struct tape *t, enum dtype dtype, enum layout layout, int rank,
                          const int *dims);

/* A new var with value `value`; NULL after a failure. */
struct var *tape_var(struct tape *t, struct tensor value, int needs_grad);

/* Appends a node when training and y needs a gradient. */
int tape_node(struct tape *t, const struct node *node);

/* The gradient of x. grad_target is the tensor to write it to, shaped like x->value; grad_done then
 * makes that x->grad, or the sum of both where x has a gradient already. grad_share does the same
 * with the gradient of y, which others read too: no memory is written that they see. grad_set makes
 * grad that of x, whatever it had.
 * grad_may_reuse: 1 if an elementwise backward op may write the gradient of x in place of that of
 * y, which is read for the last time. */
struct tensor grad_target(struct tape *t, const struct var *x);
int grad_done(struct tape *t, struct var *x, const struct tensor *grad);
void grad_set(struct var *x, const struct tensor *grad, int borrowed);
int grad_share(struct tape *t, struct var *x, const struct tensor *grad);
int grad_may_reuse(const struct var *y);

/* *to += *from. */
int tape_add(struct tape *t, const struct tensor *from, const struct tensor *to);

/* The gradients of the node's w and b, by OP_CONV2D_BACKWARD_WEIGHT or OP_LINEAR_BACKWARD_WEIGHT
 * from x->value and y->grad: computed segment by segment and folded; then their hooks fire. */
int tape_weight_grads(struct tape *t, enum op op, struct node *node);

/* 1 if gradients are accumulated over several passes. */
static inline int tape_accumulates(const struct tape *t) {
    return t->step.add_grads || t->step.more_passes;
}

/* At the end of the last pass: completes the gradients of parameters that only earlier passes used,
 * and fires their hooks. */
int tape_complete_kept(struct tape *t);

/* One launch of an op that treats each sample alike, over the whole batch; where the bits of this
 * device's kernel depend on the size of the batch, one for each segment. */
int tape_launch_batch(struct tape *t, enum op op, const struct op_args *args);

/* Launches node->args so and appends the node; returns y, the var of out[0]. */
struct var *tape_append_op(struct tape *t, enum op op, struct node *node, int needs_grad);

/* Launches the op that computes dx from the operands in `args`. in_place 1: dx may take dy's
 * memory. */
int tape_backward_to_x(struct tape *t, enum op op, struct node *n, struct op_args *args,
                       int in_place);

/* Are w and b (NULL: there is none) parameters of the set given to tape_begin? Backward counts
 * their uses by place. */
int tape_check_params(struct tape *t, const char *layer, const struct param *w,
                      const struct param *b);

/* x with other dimensions, which make as many elements. */
static inline struct tensor tensor_seen_as(const struct tensor *x, int rank, int d0, int d1,
                                           int d2) {
    return tensor_plain(x->data, x->dtype, rank, (int[3]){d0, d1, d2});
}

/* The var x with other dimensions, dims[rank], which make as many elements: the same memory. In
 * layout N16 dims[0] stays. */
struct var *tape_view(struct tape *t, struct var *x, int rank, const int *dims);

/* The shape dims[rank] that a and b have together: counted from the last dimension, a size of 1, or
 * none, counts as the other's. ERR_USAGE: two sizes differ. The last `own` dimensions are not
 * compared. dims: room for MAX_RANK. */
int tape_broadcast_shape(const char *op, const struct tensor *a, const struct tensor *b, int own,
                         int *rank, int *dims);

/* x, which is PLAIN, spread to that shape; where it has this shape already, x itself. Over
 * dimension 0, which is that of samples, the batch must be one segment. */
struct var *tape_broadcast(struct tape *t, const char *op, struct var *x, int rank,
                           const int *dims);

/* Bit d of *chosen: dimension d is one of `dims`, which count from 0, or from -1 backwards. None
 * are all. ERR_USAGE: there is no such dimension, or it is named twice. */
int tape_find_dims(const char *op, const struct tensor *x, const int *dims, int count,
                   unsigned *chosen);

/* ERR_USAGE where the batch has several segments, so that `op` would mix their samples. */
int tape_one_segment(const struct tape *t, const char *op);

/* ERR_USAGE: the operands of `op` ("add") differ in shape. */
int tape_check_terms(const char *op, const struct tensor *a, const struct tensor *b);

/* Segment s of a batch that is seen as rows (R,..), PLAIN, the same number of rows for each
 * sample. */
struct tensor tape_segment_rows(const struct tape *t, const struct tensor *rows, int s);

/* What a layer adds to its outputs: the value of its bias, or zeros where it has none. */
struct tensor tape_bias(struct tape *t, const struct param *b, int outputs);

/* linear and matmul_add of x (N,..,K) with rank 3 or more. */
struct var *tape_linear_rows(struct tape *t, struct var *x, struct param *w, struct param *b,
                             int weight_is_in_out);

/* ERR_USAGE: the rows of x are not the samples of the batch, so a layer that works by segments
 * cannot take it. */
int tape_check_samples(const struct tape *t, const struct tensor *x);

/* x in the device's own activation layout, converted if it is PLAIN there. */
struct var *to_device_layout(struct tape *t, struct var *x);

#endif
