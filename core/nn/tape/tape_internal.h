/* The inside of a tape, which tape.c (vars and nodes), backward.c (the walk back over them) and the
 * files of ops (layers.c, loss.c, batch_norm.c and others) share. A new op needs only this file and
 * tape.h. */
#ifndef NN_TAPE_INTERNAL_H
#define NN_TAPE_INTERNAL_H

#include "device/scheduled.h"
#include "nn/params/params.h"
#include "nn/tape/grads.h"
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

/* One op of the tape: y = op(x, w, b), op(x, x2) or op(x, x2, x3). It points into the tape and the
 * param_set. */
struct node {
    node_backward *backward;
    enum op op; /* in forward: its key in nn/autograd_saves.c; 0: not an op of PyTorch */
    duet_var *x, *x2, *x3, *y;
    int spares;
    struct param *w, *b;
    /* Enqueues the gradients of w and b for segment s only. If it is NULL, the op passed to
     * tape_weight_grads computes them from x->value and y->grad. */
    int (*segment_grads)(duet_tape *tape, const struct node *node, int s, const struct tensor *dw,
                         const struct tensor *db);
    int exchanged;                 /* batch_norm.c: the segments of other ranks also count */
    int eval;                      /* batch_norm.c: it uses running statistics */
    struct tensor moments, sums;   /* batch_norm.c: F64 (S or 1, 3, C) and (S or V, 2, C) */
    struct tensor before, dhidden; /* recurrent.c: h before each step, the gradient after it */
    struct op_args args; /* as launched in forward; the backward op also uses its settings (p) */
    void *context;       /* for a node whose op is not in device/op.h; in recurrent.c its second
                          * result; borrowed */
    size_t first;        /* strided.c, cat.c and elementwise.c */
    int64_t clock;       /* linked.c: when it was appended */
    int of_rows;         /* rows.c: 1: its dimension 0 counts the segments */
    int pieces_end;      /* pieces made for this node have lower numbers in the arena */
};

struct duet_tape {
    struct device *device;
    struct stream *stream; /* the device's compute stream */
    struct tape_step step; /* as given to tape_begin */
    struct segments segments;
    grad_hook *hook;
    void *hook_context;
    struct tape_exchange exchange; /* segments 0: none */
    int dropout_layers;            /* in order of call, so far in this step */

    struct node *nodes; /* [node_count], owned */
    int node_count, node_capacity;
    duet_var **vars; /* [var_count], allocated one by one so that pointers stay valid; owned, reused
                      * over steps */
    int var_count, var_capacity;
    struct step_arena arena;

    struct param_use *use; /* per parameter, then per value of parameters */
    char *has_grad;        /* 1 once this or an earlier pass of the update has written a gradient */
    int param_capacity;
    struct tape_rows rows;
    /* Tapes of other devices between which values of this pass have moved (linked.c). */
    duet_tape *next;     /* the next tape in the ring; itself if it is alone */
    int64_t clock;       /* the clock of the last node here or on a tape that this one has seen */
    int torn;            /* 1: a linked tape has begun another pass */
    int walked;          /* nodes that a walk has not reached yet */
    struct event *moved; /* a tape that copies from this one waits for it; NULL: none has */

    int error;         /* code of the first op that failed since tape_begin */
    char message[512]; /* its error message */

    /* A pass (pass.c). Programs use the counts of passes, `block` and the log of one row. */
    struct duet_params *owner;     /* the parameters of this pass; NULL: none */
    int passes_of_update;          /* training passes whose gradients add up to one update */
    int pass_of_update;            /* number of this pass among them, from 0 */
    int64_t update;                /* when the first of them began, ns; identifies the update */
    int passes_of_next;            /* passes_of_update of the next pass; 0: unchanged */
    int went_back;                 /* 1: this pass has had its backward */
    struct step_block *block;      /* in device memory; NULL: a replica's tape uses the replica's */
    struct tensor losses, hits;    /* the log of duet_loss_read, (1,1) each, in device memory */
    uint64_t seed;                 /* for dropout */
    uint64_t passes;               /* training passes begun so far */
    duet_var *leaves[MOST_LEAVES]; /* the vars of this pass that duet_leaf made */
    int leaf_count;

    /* The layers, which layer functions find by number. */
    const struct layer *layers; /* [layer_count] */
    int layer_count;
    struct buffer_set *buffers; /* NULL: none */
    double dropout;             /* the probability of all dropout layers; < 0: their own */
    int sync_bn;                /* 1: every batch_norm is synchronised */
    const struct model *model;  /* the model whose forward runs; NULL: none. For models/ only */
    int inside_model;           /* for models/: 1: a replica begins and ends the pass */
    int inside_forward;         /* 1: a function of a duet_data_parallel runs */
    struct autograd *remote;    /* the pass of rpc/ that owns this tape; NULL: none */
};

/* ERR_USAGE: values came from a tape whose pass is over. */
int tape_check_links(const duet_tape *t);

/* Keeps `code` and its message if it is the first failure since tape_begin; returns code. */
int tape_fail(duet_tape *t, int code);
/* Keeps an ERR_USAGE with this message, and returns NULL for an op to return as its result. */
void *tape_refuse(duet_tape *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* 1 if an op must return NULL: the tape is NULL or has failed. A NULL x makes the tape fail. */
int tape_failed(duet_tape *t, const duet_var *x);

/* An op calls this for an operand whose elements it reads: 1 if it cannot continue, because of an
 * earlier failure or a NULL operand. A deferred relu is computed here, and a view becomes a copy.
 * tape_blocked is for ops that take strided operands: views stay unchanged. */
int tape_stuck(duet_tape *t, duet_var *x);
int tape_blocked(duet_tape *t, duet_var *x);

/* A relu of an image is deferred, since a pool right after it can compute the relu (OP_AVG_POOL,
 * OP_MAX_POOL with p.pool.relu), and its gradient too unless other ops use the relu. Returns the
 * operand of the relu for that pool. NULL if x is not such a relu, or not the last var: the order
 * in which gradients are added, and so their bits, could then differ. */
duet_var *tape_relu_put_off(const duet_tape *t, const duet_var *x);

/* Memory from the step arena; NULL after a failure, which the tape then keeps. */
void *tape_alloc(duet_tape *t, size_t bytes);

/* Makes a tensor in the arena. In layout N16 dims[0] is the batch's n, and the tensor gets the
 * groups of the segments. data is NULL on failure. */
struct tensor tape_tensor(duet_tape *t, enum dtype dtype, enum layout layout, int rank,
                          const int *dims);

/* A new var with value `value`; NULL after a failure. */
duet_var *tape_var(duet_tape *t, struct tensor value, int needs_grad);

/* The same for a view of x in PyTorch, whether it is a view or a copy here. */
duet_var *tape_view_var(duet_tape *t, struct tensor value, const duet_var *x);

/* Appends a node when training and y needs a gradient. */
int tape_node(duet_tape *t, const struct node *node);

/* Called after the backward of the node with this index. It frees y->grad, unless y keeps it, and
 * the pieces from number `first` on that this backward took from the arena and no var holds. With
 * `once` it also frees the value of y and what the node saved besides vars. */
int tape_node_done(duet_tape *t, int index, int first);

int tape_relu_done(duet_tape *t, duet_var *x); /* x has one deferred relu fewer */

/* The operand that a product's backward need not read, since the other one needs no gradient. */
static inline int tape_product_spares(const duet_var *a, const duet_var *b) {
    return SPARES_Y | (b->needs_grad ? 0 : SPARES_X) | (a->needs_grad ? 0 : SPARES_X2);
}

/* The gradient of a var of one number, shaped like its value. */
int tape_ones(duet_tape *t, const struct tensor *like, struct tensor *ones);

/* 1 if a layer's result needs a gradient for x, w or b, which may be NULL. The results of frozen
 * layers at the input need none, so nothing of them is kept, and backward ends there. */
static inline int tape_needs_grad(const duet_var *x, const struct param *w, const struct param *b) {
    return x->needs_grad || param_trains(w) || param_trains(b);
}

/* Computes the gradients of the node's w and b from x->value and y->grad with
 * OP_CONV2D_BACKWARD_WEIGHT or OP_LINEAR_BACKWARD_WEIGHT, segment by segment, and folds them; then
 * their hooks fire. Frozen parameters are skipped. */
int tape_weight_grads(duet_tape *t, enum op op, struct node *node);

/* duet_backward_all, also for a tape of rpc/, and the checks that precede its walk. */
int pass_backward(duet_tape *t, duet_var *const *roots, const duet_tensor *const *grads, int count);
int pass_check_roots(const duet_tape *t, duet_var *const *roots, const duet_tensor *const *grads,
                     int count);

/* At the end of the last pass, completes the gradients of parameters that only earlier passes used,
 * and fires their hooks. */
int tape_complete_kept(duet_tape *t);

/* Launches the op once per segment. in[0] and out[0] are the batch; all segments share the rest. */
int tape_launch_segments(duet_tape *t, enum op op, const struct op_args *whole);

/* Launches an op that treats each sample alike once over the whole batch, or once per segment if
 * the bits of this device's kernel depend on the size of the batch. */
int tape_launch_batch(duet_tape *t, enum op op, const struct op_args *args);

/* Launches node->args the same way and appends the node; returns y, the var of out[0]. */
duet_var *tape_append_op(duet_tape *t, enum op op, struct node *node, int needs_grad);
/* The second half of tape_append_op, for a node that keeps more in its args than was launched. */
duet_var *tape_append_launched(duet_tape *t, enum op op, struct node *node, int needs_grad);
/* The last step of tape_append_op: makes y the value of the node's var, and returns the var. */
duet_var *tape_append(duet_tape *t, struct node *node, struct tensor y, int needs_grad);

/* Launches the op that computes dx from the operands in `args`; out[0] may have the shape in which
 * the op sees x. With in_place 1, dx may take dy's memory. */
int tape_backward_to_x(duet_tape *t, enum op op, struct node *n, struct op_args *args,
                       int in_place);

/* Checks that w and b, which may be NULL, are parameters of tape_begin's set, since backward counts
 * their uses by index. */
int tape_check_params(duet_tape *t, const char *layer, const struct param *w,
                      const struct param *b);

/* x with different dimensions and the same number of elements. */
static inline struct tensor tensor_seen_as(const struct tensor *x, int rank, int d0, int d1,
                                           int d2) {
    return tensor_plain(x->data, x->dtype, rank, (int[3]){d0, d1, d2});
}

/* The same layout in other memory, from element `first` of `to` on. */
static inline struct tensor tensor_moved(struct tensor view, const struct tensor *to,
                                         size_t first) {
    view.data = to->data ? (char *)to->data + first * sizeof(float) : NULL;
    return view;
}

/* x as rows of its last dimension. */
static inline struct tensor tensor_rows(const struct tensor *x) {
    const int width = x->dims[x->rank - 1];
    return tensor_seen_as(x, 2, (int)(tensor_count(x) / (size_t)width), width, 0);
}

/* Launches an op on PLAIN operands; if they have no elements, its result is filled with `empty`. */
int tape_launch_some(duet_tape *t, enum op op, const struct op_args *args, float empty);

/* Computes the gradient of x, if it needs one, by such an op, which sees x as args->out[0]. */
int tape_give(duet_tape *t, duet_var *x, enum op op, struct op_args *args);

/* The var x with different dimensions, dims[rank], and the same number of elements, in the same
 * memory. In layout N16 dims[0] stays. */
duet_var *tape_view(duet_tape *t, duet_var *x, int rank, const int *dims);

/* ---- strided views: strided.c ---- */

/* The layout of a PLAIN x, always with strides. */
struct tensor tape_lies(const duet_var *x);

/* A view of a PLAIN x. `lies` is its layout in x's memory, with strides. `in_x` is its layout in a
 * row-major x, from element `first` on; if it is not strided, the view is all of x in order. */
duet_var *tape_part(duet_tape *t, duet_var *x, const struct tensor *lies, const struct tensor *in_x,
                    size_t first);

/* An x in N16 as a PLAIN tensor in the same memory. Dimension 0 counts the groups, and an extra
 * dimension counts the 16 samples of a group. */
struct tensor tape_in_groups(const struct tensor *x);

/* A copy of indices start .. start + length - 1 in dimension `dim` of an x in N16. Its gradient
 * goes where a view's would. seen[4] is x with the dimensions before and after `dim` merged. */
duet_var *tape_part_in_groups(duet_tape *t, duet_var *x, const struct tensor *seen, int dim,
                              int start, int length);

/* Copies `from` to `to`; either may be strided. It does nothing without samples. */
int tape_copy_strided(duet_tape *t, const struct tensor *from, const struct tensor *to);

/* Finds the common shape dims[rank] of a and b. Counted from the last dimension, a size that is 1
 * or missing becomes the other's. The last `own` dimensions are not compared. dims has MAX_RANK
 * entries. ERR_USAGE: two sizes differ. */
int tape_broadcast_shape(const char *op, const struct tensor *a, const struct tensor *b, int own,
                         int *rank, int *dims);

/* x broadcast to that shape, or x itself if it has this shape. If dimension 0, the batch, is
 * broadcast, x must be PLAIN and the batch one segment. */
duet_var *tape_broadcast(duet_tape *t, const char *op, duet_var *x, int rank, const int *dims);
/* n vars broadcast to the shape that they have in common; each keeps its last `own` dimensions. One
 * may be NULL. 0: a failure. */
int tape_broadcast_all(duet_tape *t, const char *op, duet_var **x, int n, int own);
/* tape_broadcast for a value in a backward. */
int tape_broadcast_value(duet_tape *t, const struct tensor *x, int rank, const int *dims,
                         struct tensor *y);

/* A var of dims[rank], PLAIN, that repeats `value` for each row of the samples (layers/expand.c).
 * `value` is that of the parameter w, or of a constant if w is NULL. dims[0] counts the rows. */
duet_var *tape_expand(duet_tape *t, const struct tensor *value, struct param *w, int rank,
                      const int *dims);

/* Repeats an x that is common to all samples for each of `rows` rows: (rows, 1.., own dimensions),
 * of this rank. Returns any other x unchanged. NULL: its rank is too large, or it has samples. */
duet_var *tape_for_samples(duet_tape *t, const char *op, duet_var *x, int rank, int rows);

/* Makes each of n operands that is common to all samples such copies for the samples of the others,
 * whose largest rank it returns; 0: none has samples, -1: a failure. An operand may be NULL. */
int tape_for_all_samples(duet_tape *t, const char *op, duet_var **x, int n);

/* Sums `parts` over the first dimension, which is 1 in `to`; 0 if it is empty. */
int tape_sum_first(duet_tape *t, const struct tensor *parts, const struct tensor *to);

/* In a model's forward function the batch may be split over several devices. Mixing its samples
 * would make the bits depend on the number of devices. 1: refused. */
int tape_mixes_samples(duet_tape *t, const char *op);

/* ERR_USAGE if the batch has several segments, so that `op` would mix their samples. */
int tape_one_segment(const duet_tape *t, const char *op);

/* Converts dimension `dim` of x, which may be negative, from -1 for the last one, to *at, which
 * counts from 0. ERR_USAGE: it does not exist, or it is dimension 0, the batch. */
int tape_find_inner_dim(const char *op, const struct tensor *x, int dim, int *at);

/* duet_where, with a NULL a or b meaning `value` everywhere. */
duet_var *tape_where(duet_tape *t, duet_var *condition, duet_var *a, duet_var *b, double value);

/* Cross entropy, or nll_loss, of scores (N,C) or (N,P,C) against labels (N) or (N,P), on one device
 * of a global batch's step. A sample's loss is the mean over its P positions, and backward starts
 * from the sample's weight in the step block. */
struct duet_loss_options;
duet_var *tape_loss_of_step(duet_tape *t, duet_var *scores, const duet_tensor *labels,
                            const struct duet_loss_options *options, int log_probabilities);

/* For a mean weighted by labels (nn/layers/class_weights.c). *divisor, F32 (1), is the sum of the
 * weights that count in a loss launched with these arguments; *dloss, F32 (rows), has its
 * reciprocal for each row. Without rows both are unchanged. */
int tape_mean_by_weights(duet_tape *t, const struct op_args *loss, struct tensor *divisor,
                         struct tensor *dloss);
/* Scales *sum, the log's sum of such a loss, to the mean times the samples. It waits for the
 * device. NULL and other losses are fine. */
int tape_scale_to_mean(duet_tape *t, const duet_var *loss, double *sum);

/* The bias that a layer adds to its outputs, or zeros if it has none. */
struct tensor tape_bias(duet_tape *t, const struct param *b, int outputs);

/* 1: the rows are the samples of the batch, or the same number of rows for each sample, such as the
 * images of videos. Layers treat such rows like samples. */
int tape_rows_fit(const duet_tape *t, int rows);
/* ERR_USAGE: the rows do not fit, so a layer that works by segments cannot take x. */
int tape_check_samples(const duet_tape *t, const struct tensor *x);

/* x in the device's own activation layout, converted if it is PLAIN there. */
duet_var *to_device_layout(duet_tape *t, duet_var *x);
/* A PLAIN copy of x, which is not PLAIN, with its dimensions reordered: dimension i is order[i] of
 * x. */
duet_var *tape_plain_in_order(duet_tape *t, duet_var *x, const int *order);

/* ERR_USAGE: `x` is not a tensor of type `dtype` on the tape's device. The message names it with
 * `op` and `what`. */
int tape_operand(const duet_tape *t, const char *op, const char *what, const duet_tensor *x,
                 enum dtype dtype);

/* Parameter i of this pass. If it does not exist, or its rank differs from the layer's (0 allows
 * any), the result is NULL and the tape keeps the error. For tape_bias_at DUET_NO_BIAS means none,
 * and *wrong is 1 after an error. */
struct param *tape_param_at(duet_tape *t, const char *layer, int i, int rank);
struct param *tape_bias_at(duet_tape *t, const char *layer, int i, int *wrong);

/* 1 if a size, stride or padding is invalid for a layer; the tape then has the error. */
int tape_beyond(duet_tape *t, const char *layer, const char *what, int value, int least);

/* Setting i of a pair (duet/functions.h): a second 0 means the first; `none` if both are 0. */
static inline int tape_setting(const int pair[2], int i, int none) {
    return pair[i] ? pair[i] : pair[0] ? pair[0] : none;
}
static inline int tape_padding(const int pair[2], int i) {
    return i == 1 && pair[1] == DUET_NO_PADDING ? 0 : tape_setting(pair, i, 0);
}

/* Views of the same memory: a sequence (N,C,H) as images (N,C,H,1), and filters for volumes
 * (O,C,T,K,L) as filters for images (O,CT,K,L). */
struct tensor conv_as_pictures(const struct tensor *x);

/* For duet_conv2d and tape_conv_transpose: the settings with PyTorch's defaults in place of zeros,
 * also for a sequence; 1 if a setting is invalid, with the error in the tape; the op's settings. */
struct duet_conv conv_settings(const struct duet_conv *given, int sequence);
int conv_beyond(duet_tape *t, const char *layer, const struct duet_conv *how);
struct conv_args conv_args_of(const struct param *w, const struct duet_conv *how);

/* 1 if a result of rows x columns for each of `outputs` outputs would be too large for a tensor. */
int tape_too_large(duet_tape *t, const char *layer, const duet_var *x, int64_t outputs,
                   int64_t rows, int64_t columns);

#endif
