/* The inside of a tape, shared by tape.c (vars and nodes), backward.c (the walk back over them)
 * and the files of ops (layers.c, loss.c, batch_norm.c and others). A new op is written against
 * this file and tape.h. */
#ifndef NN_TAPE_INTERNAL_H
#define NN_TAPE_INTERNAL_H

#include "device/scheduled.h"
#include "nn/params/params.h"
#include "nn/tape/rows.h"
#include "nn/tape/step_arena.h"
#include "nn/tape/tape.h"

struct model;

/* Leaves in a pass and roots of a backward, at most. */
enum { MOST_LEAVES = 16, MOST_ROOTS = 16 };

/* The vars of a node whose values its backward does not read. */
enum { SPARES_X = 1, SPARES_X2 = 2, SPARES_X3 = 4, SPARES_Y = 8, SPARES_ALL = 15 };

struct node;
typedef int node_backward(duet_tape *tape, struct node *node);

/* One op of the tape: y = op(x, w, b), op(x, x2) or op(x, x2, x3). Pointers into the tape and the
 * param_set. */
struct node {
    node_backward *backward;
    enum op op; /* forward: its key in nn/autograd_saves.c; 0: not an op of PyTorch */
    duet_var *x, *x2, *x3, *y;
    int spares;
    struct param *w, *b;
    /* Enqueues the gradients of w and b of segment s only. NULL: the op given to tape_weight_grads
     * computes them from x->value and y->grad. */
    int (*segment_grads)(duet_tape *tape, const struct node *node, int s, const struct tensor *dw,
                         const struct tensor *db);
    int exchanged;                 /* of batch_norm.c: the segments of other ranks count, too */
    int eval;                      /* of batch_norm.c: running statistics normalise */
    struct tensor moments, sums;   /* of batch_norm.c: F64 (S or 1, 3, C) and (S or V, 2, C) */
    struct tensor before, dhidden; /* of recurrent.c: h before each step, the gradient after it */
    struct op_args args; /* as launched forward: its settings (p) serve the backward op too */
    void *context;       /* of a node whose op is not one of device/op.h, and of recurrent.c its
                          * second result; borrowed */
    size_t first;        /* of strided.c, cat.c and elementwise.c */
    int64_t clock;       /* of linked.c: when it was appended */
    int of_rows;         /* of rows.c: its dimension 0 are the segments */
    int pieces_end;      /* numbers in the arena: pieces made for this node are below it */
};

struct duet_tape {
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
    duet_var **vars; /* [var_count], each allocated alone so that pointers stay valid; owned,
                             * reused over steps */
    int var_count, var_capacity;
    struct step_arena arena;

    struct param_use *use; /* per parameter, then per value of parameters */
    char *used;            /* the same: what tape_uses returns */
    char *has_grad;        /* 1 once this pass or one before it has written a gradient */
    int param_capacity;
    struct tape_rows rows;
    /* Tapes of other devices between which values of this pass have moved (linked.c). */
    duet_tape *next;     /* the next one of the ring; itself if it is alone */
    int64_t clock;       /* that of the last node, or of one that this tape has seen */
    int torn;            /* 1: a tape with which it was linked has begun another pass */
    int walked;          /* nodes that a walk has still to come to */
    struct event *moved; /* a tape that copies from this one waits for it; NULL: none did */

    int error;         /* of the first op that failed since tape_begin */
    char message[512]; /* its text */

    /* A pass (pass.c). Programs use the counts of passes, `block` and the log of one row. */
    struct duet_params *owner;     /* the parameters of this pass; NULL: none */
    int passes_of_update;          /* training passes whose gradients are added up; 1: none */
    int pass_of_update;            /* number of this one among them, from 0 */
    int64_t update;                /* when the first of them began, ns: tells updates apart */
    int passes_of_next;            /* the next pass's passes_of_update; 0: unchanged */
    int went_back;                 /* 1: this pass has had its backward */
    struct step_block *block;      /* in device memory; NULL: a replica's tape uses the replica's */
    struct tensor losses, hits;    /* the log of duet_loss_read, (1,1) each, in device memory */
    uint64_t seed;                 /* of dropout */
    uint64_t passes;               /* training passes begun so far */
    char *fired;                   /* [parameter]: 1 if this backward has written its gradient */
    int fired_capacity;            /* room in `fired` */
    duet_var *leaves[MOST_LEAVES]; /* the vars of this pass that duet_leaf made */
    int leaf_count;

    /* The layers, which layer functions find by number. */
    const struct layer *layers; /* [layer_count] */
    int layer_count;
    struct buffer_set *buffers; /* NULL: none */
    double dropout;             /* the probability of all dropout layers; < 0: their own */
    int sync_bn;                /* 1: every batch_norm is synchronised */
    const struct model *model;  /* the model whose forward runs; NULL: none. For models/ only */
    int inside_model;           /* 1: the same: a replica begins and ends the pass */
    int inside_forward;         /* 1: a function of a duet_data_parallel runs */
    struct autograd *remote;    /* the pass of rpc/ that owns this tape; NULL: none */
};

/* ERR_USAGE: values came from a tape whose pass is over. */
int tape_check_links(const duet_tape *t);

/* Keeps `code` and its text if it is the first failure since tape_begin; returns code. */
int tape_fail(duet_tape *t, int code);
/* Keeps an ERR_USAGE with this text; returns NULL, for an op to return as its result. */
void *tape_refuse(duet_tape *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* 1 if an op must return NULL: there is no tape, or it has a failure (it gets one if x is NULL). */
int tape_failed(duet_tape *t, const duet_var *x);

/* An op calls this for an operand whose elements it reads: 1 if it cannot continue, because of an
 * earlier failure or a NULL operand. A deferred relu is computed here, and a view becomes a copy.
 * tape_blocked is for ops that take strided operands: views stay as they are. */
int tape_stuck(duet_tape *t, duet_var *x);
int tape_blocked(duet_tape *t, duet_var *x);

/* A relu of an image is deferred, since a pool right after it can do its work (OP_AVG_POOL,
 * OP_MAX_POOL with p.pool.relu), and also its gradient's, unless others use the relu, too. Returns
 * the operand of the relu for that pool; NULL if x is not such a relu, or not the last var made:
 * the order in which gradients are added, and so their bits, could then differ. */
duet_var *tape_relu_put_off(const duet_tape *t, const duet_var *x);

/* Memory from the step arena; NULL after a failure, which the tape then keeps. */
void *tape_alloc(duet_tape *t, size_t bytes);

/* A tensor in the arena. In layout N16 dims[0] is the batch's n, and the tensor gets the groups of
 * the segments. data is NULL on failure. */
struct tensor tape_tensor(duet_tape *t, enum dtype dtype, enum layout layout, int rank,
                          const int *dims);

/* A new var with value `value`; NULL after a failure. */
duet_var *tape_var(duet_tape *t, struct tensor value, int needs_grad);

/* The same for a view of x in PyTorch, whether it is a view or a copy here. */
duet_var *tape_view_var(duet_tape *t, struct tensor value, const duet_var *x);

/* Appends a node when training and y needs a gradient. */
int tape_node(duet_tape *t, const struct node *node);

/* After the backward of the node with this index: frees its y->grad, unless y keeps it, and the
 * pieces that this backward took from the arena from number `first` on and no var has. With `once`
 * it also frees the value of y and what the node has saved besides vars. */
int tape_node_done(duet_tape *t, int place, int first);

int tape_relu_done(duet_tape *t, duet_var *x); /* one deferred relu of x fewer */

/* The gradient of x. grad_target is the tensor to write it to, shaped like x->value; grad_done then
 * makes that x->grad, or the sum of both if x has a gradient already. grad_share does the same with
 * the gradient of y, which others read, too: it writes no memory that they see. grad_set makes grad
 * that of x, whatever it had, and grad_drop leaves it none. grad_may_reuse: 1 if an elementwise
 * backward op may write the gradient of x in place of y's, which is read for the last time: no
 * other var has it, and it is memory of this tape. */
struct tensor grad_target(duet_tape *t, const duet_var *x);
int grad_done(duet_tape *t, duet_var *x, const struct tensor *grad);
int grad_set(duet_tape *t, duet_var *x, const struct tensor *grad);
int grad_share(duet_tape *t, duet_var *x, const struct tensor *grad);
int grad_drop(duet_tape *t, duet_var *x);
int grad_may_reuse(const duet_tape *t, const duet_var *y);

/* The operand that a product's backward does not read: a factor whose partner needs no gradient. */
static inline int tape_product_spares(const duet_var *a, const duet_var *b) {
    return SPARES_Y | (b->needs_grad ? 0 : SPARES_X) | (a->needs_grad ? 0 : SPARES_X2);
}

/* *to += *from. */
int tape_add(duet_tape *t, const struct tensor *from, const struct tensor *to);

/* 1 if a layer's result needs a gradient: for x, for w or for b (NULL: there is none). After frozen
 * layers at the input none does, so nothing is kept of them, and backward ends there. */
static inline int tape_needs_grad(const duet_var *x, const struct param *w, const struct param *b) {
    return x->needs_grad || param_trains(w) || param_trains(b);
}

/* The gradients of the node's w and b, by OP_CONV2D_BACKWARD_WEIGHT or OP_LINEAR_BACKWARD_WEIGHT
 * from x->value and y->grad: computed segment by segment and folded; then their hooks fire. Frozen
 * ones have none. */
int tape_weight_grads(duet_tape *t, enum op op, struct node *node);

/* duet_backward_all, also for a tape of rpc/; and its checks before anything is walked. */
int pass_backward(duet_tape *t, duet_var *const *roots, const duet_tensor *const *grads, int count);
int pass_check_roots(const duet_tape *t, duet_var *const *roots, const duet_tensor *const *grads,
                     int count);

/* At the end of the last pass: completes the gradients of parameters that only earlier passes used,
 * and fires their hooks. */
int tape_complete_kept(duet_tape *t);

/* One launch for each segment. in[0] and out[0] are the batch; other operands are common to all. */
int tape_launch_segments(duet_tape *t, enum op op, const struct op_args *whole);

/* One launch of an op that treats each sample alike, over the whole batch; if the bits of this
 * device's kernel depend on the size of the batch, one for each segment. */
int tape_launch_batch(duet_tape *t, enum op op, const struct op_args *args);

/* Launches node->args like that and appends the node; returns y, the var of out[0]. */
duet_var *tape_append_op(duet_tape *t, enum op op, struct node *node, int needs_grad);
/* The second half: for a node that keeps more in its args than was launched. */
duet_var *tape_append_launched(duet_tape *t, enum op op, struct node *node, int needs_grad);
/* Only its last step: y becomes the value of the node's var, which is returned. */
duet_var *tape_append(duet_tape *t, struct node *node, struct tensor y, int needs_grad);

/* Launches the op that computes dx from the operands in `args`. in_place 1: dx may take dy's
 * memory. */
int tape_backward_to_x(duet_tape *t, enum op op, struct node *n, struct op_args *args,
                       int in_place);

/* Are w and b (NULL: there is none) parameters of the set given to tape_begin? Backward counts
 * their uses by index. */
int tape_check_params(duet_tape *t, const char *layer, const struct param *w,
                      const struct param *b);

/* x with other dimensions and the same number of elements. */
static inline struct tensor tensor_seen_as(const struct tensor *x, int rank, int d0, int d1,
                                           int d2) {
    return tensor_plain(x->data, x->dtype, rank, (int[3]){d0, d1, d2});
}

/* The var x with other dimensions, dims[rank], and the same number of elements: the same memory. In
 * layout N16 dims[0] stays. */
duet_var *tape_view(duet_tape *t, duet_var *x, int rank, const int *dims);

/* ---- strided views: strided.c ---- */

/* The layout of x, PLAIN, always with strides. */
struct tensor tape_lies(const duet_var *x);

/* A view of x, PLAIN: `lies` is its layout in x's memory, with strides. `in_x` is the same for a
 * row-major x, from its element `first` on; not strided: all of x in its order. */
duet_var *tape_part(duet_tape *t, duet_var *x, const struct tensor *lies, const struct tensor *in_x,
                    size_t first);

/* x, whose value is strided, with other dimensions: a view if possible, else of a copy. */
duet_var *tape_reshape_view(duet_tape *t, duet_var *x, int rank, const int *dims);

/* x, in N16, as a PLAIN tensor of the same memory: a group is one index of dimension 0, and its 16
 * samples are one more dimension. */
struct tensor tape_in_groups(const struct tensor *x);

/* A copy of the indices start .. start + length - 1 of dimension `dim` of x, in N16. Its gradient
 * goes where a view's would: seen[4] is x with the dimensions before and after merged. */
duet_var *tape_part_in_groups(duet_tape *t, duet_var *x, const struct tensor *seen, int dim,
                              int start, int length);

/* to = from, each of which may be strided; does nothing without samples. */
int tape_copy_strided(duet_tape *t, const struct tensor *from, const struct tensor *to);

/* Makes the strided value of x a row-major copy. */
int tape_copy_view(duet_tape *t, duet_var *x);

/* In a walk: y, a view, is read by an op on the way to the root. */
void tape_count_part(duet_var *y);

/* 1: *place is where the only op that reads the view y writes its gradient, with y's layout; then
 * no grad_done is needed. 0: y->grad gets it, as usual. */
int tape_grad_place(duet_tape *t, duet_var *y, struct tensor *place);

/* The same for a view that is one piece of memory, also in N16; it needs grad_done. */
int tape_piece_place(duet_tape *t, const duet_var *y, struct tensor *place);

/* The gradient of x is that of y with the dimensions of x. */
int tape_view_backward(duet_tape *t, struct node *n);

/* The common shape dims[rank] of a and b: counted from the last dimension, a size of 1, or a
 * missing one, becomes the other's. ERR_USAGE: two sizes differ. The last `own` dimensions are not
 * compared. dims: MAX_RANK entries. */
int tape_broadcast_shape(const char *op, const struct tensor *a, const struct tensor *b, int own,
                         int *rank, int *dims);

/* x spread to that shape; if it has this shape already, x itself. Over dimension 0, that of
 * samples, x must be PLAIN and the batch one segment. */
duet_var *tape_broadcast(duet_tape *t, const char *op, duet_var *x, int rank, const int *dims);
/* The same for a value, in a backward. */
int tape_broadcast_value(duet_tape *t, const struct tensor *x, int rank, const int *dims,
                         struct tensor *y);

/* `value`, of the parameter w or, if w is NULL, of a constant, as a var of dims[rank]: the same
 * numbers for each row of the samples (layers/expand.c). PLAIN; dims[0] are the rows. */
duet_var *tape_expand(duet_tape *t, const struct tensor *value, struct param *w, int rank,
                      const int *dims);

/* x with a copy for each of so many rows, if it is common to all: (rows, 1.., own dimensions), of
 * this rank. Others come back unchanged. NULL: its rank is too large, or it has its own samples. */
duet_var *tape_for_samples(duet_tape *t, const char *op, duet_var *x, int rank, int rows);

/* The sum over the first dimension of `parts`, which is 1 in `to`; 0 if it is empty. */
int tape_sum_first(duet_tape *t, const struct tensor *parts, const struct tensor *to);

/* In a model's forward function the batch may belong to several devices, so nothing may mix its
 * samples: the bits would depend on how many devices there are. 1: refused. */
int tape_mixes_samples(duet_tape *t, const char *op);

/* ERR_USAGE if the batch has several segments, so that `op` would mix their samples. */
int tape_one_segment(const duet_tape *t, const char *op);

/* Dimension `dim` of x, where negative ones count from the last one, -1; *at counts from 0.
 * ERR_USAGE: there is none, or it is dimension 0, that of samples. */
int tape_find_inner_dim(const char *op, const struct tensor *x, int dim, int *at);

/* duet_where, in which NULL as a or b is `value` everywhere. */
duet_var *tape_where(duet_tape *t, duet_var *condition, duet_var *a, duet_var *b, double value);

/* Cross entropy, or nll_loss, of scores (N,C) or (N,P,C) against labels (N) or (N,P), as one device
 * computes it for the step of a global batch: a sample's loss is the mean over its P positions, and
 * backward starts from the sample's weight in the step block. */
struct duet_loss_options;
duet_var *tape_loss_of_step(duet_tape *t, duet_var *scores, const duet_tensor *labels,
                            const struct duet_loss_options *options, int log_probabilities);

/* The mean by the weights of the labels that a loss of these arguments was launched with: *divisor,
 * F32 (1), is the sum of those that count, and *dloss, F32 (rows), its reciprocal for each row.
 * Without rows both are unchanged. nn/layers/class_weights.c */
int tape_mean_by_weights(duet_tape *t, const struct op_args *loss, struct tensor *divisor,
                         struct tensor *dloss);
/* *sum, the log's sum of such a loss, becomes the mean times the samples. NULL, and other losses,
 * are fine. Waits for the device. */
int tape_scale_to_mean(duet_tape *t, const duet_var *loss, double *sum);

/* The bias that a layer adds to its outputs; zeros if it has none. */
struct tensor tape_bias(duet_tape *t, const struct param *b, int outputs);

/* linear and matmul_add of x (N,..,K) with rank 3 or more. */
duet_var *tape_linear_rows(duet_tape *t, duet_var *x, struct param *w, struct param *b,
                           int weight_is_in_out);

/* 1: the rows are the samples of the batch, or the same number of rows for each sample, such as the
 * images of videos. Layers treat such rows like samples. */
int tape_rows_fit(const duet_tape *t, int rows);
/* ERR_USAGE: they are not, so a layer that works by segments cannot take x. */
int tape_check_samples(const duet_tape *t, const struct tensor *x);

/* x in the device's own activation layout, converted if it is PLAIN there. */
duet_var *to_device_layout(duet_tape *t, duet_var *x);
/* x, which is not PLAIN, in plain layout with its dimensions in another order: dimension i is
 * order[i] of x. */
duet_var *tape_plain_in_order(duet_tape *t, duet_var *x, const int *order);

/* ERR_USAGE: `x` is not a tensor of type `dtype` on the tape's device. The error text names it by
 * `op` and `what`. */
int tape_operand(const duet_tape *t, const char *op, const char *what, const duet_tensor *x,
                 enum dtype dtype);

/* Parameter i of this pass. If there is none, or its rank is not the one that the layer needs (0:
 * any will do), the tape keeps the error and the result is NULL. tape_bias_at: DUET_NO_BIAS means
 * none; *wrong: the tape has an error. */
struct param *tape_param_at(duet_tape *t, const char *layer, int i, int rank);
struct param *tape_bias_at(duet_tape *t, const char *layer, int i, int *wrong);

/* 1 if a size, stride or padding is invalid for a layer; the tape then has the error. */
int tape_beyond(duet_tape *t, const char *layer, const char *what, int value, int least);

/* Setting i of a pair (duet/functions.h): a second of 0 means the first; `none` if both are 0. */
static inline int tape_setting(const int pair[2], int i, int none) {
    return pair[i] ? pair[i] : pair[0] ? pair[0] : none;
}
static inline int tape_padding(const int pair[2], int i) {
    return i == 1 && pair[1] == DUET_NO_PADDING ? 0 : tape_setting(pair, i, 0);
}

/* A sequence (N,C,H) as images (N,C,H,1), and filters of volumes (O,C,T,K,L) as of images
 * (O,CT,K,L): the same memory. */
struct tensor conv_as_pictures(const struct tensor *x);

/* For duet_conv2d and tape_conv_transpose: the settings with PyTorch's defaults for zeros, and
 * those of a sequence; 1 if one is invalid for a layer, and the tape has the error; the op's
 * settings. */
struct duet_conv conv_settings(const struct duet_conv *given, int sequence);
int conv_beyond(duet_tape *t, const char *layer, const struct duet_conv *how);
struct conv_args conv_args_of(const struct param *w, const struct duet_conv *how);

/* 1 if a result of rows x columns for each of `outputs` would be too large for a tensor. */
int tape_too_large(duet_tape *t, const char *layer, const duet_var *x, int64_t outputs,
                   int64_t rows, int64_t columns);

#endif
