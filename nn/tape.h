/* The tape: define by run. A forward function calls the ops below as it would write the formula,
 *
 *     h = relu(t, conv2d(t, x, W1, b1, 1, 0));
 *
 * Each call enqueues its kernel and appends a node. tape_backward walks the nodes from the last to
 * the first, enqueues the gradients, and fires a hook as soon as the gradient of a parameter is
 * complete.
 *
 * Segments. The batch of a step is made of segments (base/segment.h), one for each virtual device.
 * What treats each sample alike runs once over the whole batch. What sums over samples (weight
 * gradients, the loss) runs once for each segment, and the gradient of a parameter is folded over
 * the segments in the fold order (docs/design.md section 2 rule 1) before its hook fires. So the
 * bits of a gradient do not depend on how many real devices share the work.
 *
 * Passes. A gradient may be accumulated over several passes, each a tape_begin, a forward and a
 * backward with a batch of its own: `more_passes` in all but the last, `add_grads` in all but the
 * first. Each segment keeps a sum of its own over the passes. The last pass folds these sums over
 * the segments and fires the hooks; the earlier ones fire none. So here, too, the bits do not
 * depend on how many devices share the segments. With one pass neither is set.
 *
 * Memory. Tensors live in the tape's step arena (nn/step_arena.h, charged to MEM_ACTIVATIONS).
 * After two steps it is one block of what the largest step needed, so a steady step allocates
 * nothing. tape_begin gives all of it out again from the start: vars are invalid from then on, and
 * what another stream still reads of the last step must be ordered before it.
 *
 * Errors. The first op that fails is noted in the tape and returns NULL; every later op that is
 * given NULL returns NULL; tape_backward and tape_error return the code. So forward functions need
 * no checks. The next tape_begin starts without error; an asynchronous failure stays in the stream
 * (device/device.h).
 *
 * A tape belongs to one thread. Everything is enqueued on the device's compute stream. */
#ifndef NN_TAPE_H
#define NN_TAPE_H

#include "base/segment.h"
#include "nn/buffer.h"
#include "nn/param.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tape;

/* A value on the tape. Backward leaves the gradient of a leaf that asked for one; the gradients of
 * other vars are used up on the way. */
struct var {
    struct tensor value; /* in the device's own layout, unless the op says PLAIN */
    struct tensor grad;  /* of a leaf: PLAIN; data is NULL where the root does not depend on it */
    int needs_grad;      /* 1: it depends on a parameter, or on a leaf that asked for a gradient */
};

/* Fires on the compute thread, once a backward for each parameter, in the order in which their
 * gradients complete (of one layer the bias first), after the last kernel of the gradient was
 * enqueued. Of several passes the last one fires; parameters that only earlier passes used come at
 * its end. It may only enqueue. `index` counts in the param_set given to tape_begin. It does not
 * fire for a parameter that took no part in the loss, whose gradient keeps its old contents. A code
 * other than OK ends the backward and is returned by it. */
typedef int grad_hook(void *context, int index);

int tape_init(struct tape **out, struct device *device);
/* What the step arena is charged to, in place of MEM_ACTIVATIONS. Before the first step. */
void tape_set_cause(struct tape *tape, enum mem_cause cause);
/* Waits for the compute stream. NULL is fine. */
void tape_free(struct tape *tape);

/* What a step works on. */
struct tape_step {
    const struct segments *segments; /* how the batch is cut; copied by tape_begin */
    struct param_set *params;        /* borrowed; NULL: no parameters (DP's loss on device 0) */
    const struct step_block *step;   /* device memory, read by the kernels */
    int training;                    /* 0: no nodes are kept, and dropout returns its input */
    int add_grads;                   /* 1: gradients are added to those of the passes before */
    int more_passes;                 /* 1: passes follow before the gradients are complete */
    int global_n;                    /* samples of the batch on all ranks; 0: those of `segments` */
    int64_t number; /* of the batch, for a forward function that is not the same every time */
};
int64_t tape_number(const struct tape *tape); /* of the step under way */
int tape_training(const struct tape *tape);   /* 1: it is a training step */

/* Starts a step: forgets all nodes, keeps the memory. A segment and the whole batch may be empty.
 * Waits for the stream only where the step before needed new memory. */
int tape_begin(struct tape *tape, const struct tape_step *step);

/* A number that grows whenever the memory of the step arena changes. While it stays, a step with
 * the same segments puts everything where it was before; recorded launches (models/recorded.h) rely
 * on that. */
uint64_t tape_arena_version(const struct tape *tape);

/* The hook of all later backwards; NULL: none. */
void tape_set_hook(struct tape *tape, grad_hook *hook, void *context);

/* How a synchronised batch_norm reaches the segments of other ranks. nn knows no ranks: syncbn/ is
 * behind these functions. Without an exchange the tape's own segments are all there are. */
struct tape_exchange {
    int segments; /* V: those of all ranks together */
    int place;    /* of the one segment of a tape among the V; -1: a segment's number v says it */
    /* *parts becomes F64 (V, rows, channels), valid until the next call. Every rank writes the
     * matrices of its own segments there, each at its segment's number v, on the compute stream. */
    int (*parts)(void *context, int rows, int channels, struct tensor *parts);
    /* Collective: enqueues that every rank gets the matrices of all. */
    int (*gather)(void *context, const struct tensor *parts);
    void *context;
};
/* The exchange of all later steps, copied; NULL: none. */
void tape_set_exchange(struct tape *tape, const struct tape_exchange *exchange);

/* The code of the first op that failed since tape_begin, with its message; OK if none did. */
int tape_error(const struct tape *tape);

/* Backward from `root`. root_grad is its gradient: PLAIN, as the root must then be, and of the same
 * shape; it is never written to, and must stay until the stream is done with it. NULL where root is
 * a loss with MEAN or SUM. Gradients of parameters are written, not added to, unless the step has
 * several passes. A second backward on one tape starts anew. */
int tape_backward(struct tape *tape, struct var *root, const struct tensor *root_grad);

/* One var that stands for several roots, so that one backward starts from all of them:
 * tape_backward(tape, join, NULL). grads[i] is as root_grad above; of rank 0: roots[i] is a loss
 * with MEAN or SUM. The roots are different vars; one may depend on another. Call it behind the
 * forward pass. NULL after a failure. */
struct var *tape_join(struct tape *tape, struct var *const *roots, const struct tensor *grads,
                      int count);

/* Which parameters have a part in `root`, without going back: [parameters] 1: a backward from root,
 * or a pass before it, gives the parameter a gradient. Owned by the tape, until the next call. */
const char *tape_uses(struct tape *tape, struct var *root);

/* A leaf: PLAIN data (n, ...) that lives outside the arena. needs_grad 1: backward leaves its
 * gradient in leaf->grad, PLAIN. */
struct var *tape_leaf(struct tape *tape, const struct tensor *value, int needs_grad);

/* ---- layers ----
 *
 * x is (N,C,H,W) or (N,K); parameters are those of the param_set given to tape_begin. */

/* y (N,O,P,Q) = x * w + b with w (O,C,k,k) and b (O), as F.conv2d of PyTorch. b NULL: there is no
 * bias. */
struct var *conv2d(struct tape *t, struct var *x, struct param *w, struct param *b, int stride,
                   int padding);

/* y (N,..,M) from x (N,..,K) and b (M), which may be NULL. linear: x wT + b with w (M,K), as
 * PyTorch's Linear. matmul_add: x @ w + b with w (K,M), as d2l writes it. */
struct var *linear(struct tape *t, struct var *x, struct param *w, struct param *b);
struct var *matmul_add(struct tape *t, struct var *x, struct param *w, struct param *b);

/* What a batch_norm layer is told. running and batches are its buffers, in device memory: the
 * caller's. data NULL: nothing is tracked. */
struct norm_config {
    double epsilon;        /* PyTorch's default: 1e-5 */
    double momentum;       /* PyTorch's default: 0.1; below 0: its None, the mean of all batches */
    int synchronised;      /* 1: SyncBatchNorm, the statistics of all segments */
    struct tensor running; /* F32 (2, C): running_mean, running_var */
    struct tensor batches; /* I64 (1): num_batches_tracked */
};
/* PyTorch's defaults, with the buffers b[0] running_mean, b[1] running_var and b[2]
 * num_batches_tracked, registered in this order. */
struct norm_config norm_config_default(const struct buffer *b);

/* y = (x - mean) / sqrt(var + epsilon) * w + b for each channel of x (N,C,H,W) or (N,C); w, b (C).
 * Training takes mean and biased variance of each segment, or of all of them, and updates running
 * (with the unbiased variance) and batches; running is virtual device 0's. Eval takes running.
 * In PyTorch: nn.BatchNorm2d, nn.BatchNorm1d, nn.SyncBatchNorm. */
struct var *batch_norm(struct tape *t, struct var *x, struct param *w, struct param *b,
                       const struct norm_config *config);

/* relu(batch_norm(x)) and relu(add(batch_norm(x), residual)), to the bit, in one pass over x. */
struct var *batch_norm_relu(struct tape *t, struct var *x, struct param *w, struct param *b,
                            const struct norm_config *config);
struct var *batch_norm_add_relu(struct tape *t, struct var *x, struct param *w, struct param *b,
                                const struct norm_config *config, struct var *residual);

/* y = (x - mean) / sqrt(var + epsilon) * w + b, with the mean and the biased variance of each
 * run of the last `dims` dimensions of x, or of each of `groups` equal groups of channels of x
 * (N,C,..). w and b are shaped as those dimensions are, or (C); each may be NULL, for 1 and 0.
 * Samples are normalised one by one, so training and eval are alike. PLAIN. In PyTorch:
 * nn.LayerNorm, nn.GroupNorm. */
struct var *layer_norm(struct tape *t, struct var *x, int dims, struct param *w, struct param *b,
                       double epsilon);
struct var *group_norm(struct tape *t, struct var *x, int groups, struct param *w, struct param *b,
                       double epsilon);

struct var *relu(struct tape *t, struct var *x);
struct var *tanh_of(struct tape *t, struct var *x); /* torch.tanh; C has a tanh of its own */
struct var *sigmoid(struct tape *t, struct var *x); /* 1 / (1 + exp(-x)) */
/* One of the functions of device/activation.h. */
struct var *activation(struct tape *t, struct var *x, struct activation_args function);

/* a + b, a - b, a * b, element by element, with PyTorch's broadcasting: shapes are compared from
 * the last dimension on, and where an operand has 1, or no dimension, it is used for all of the
 * other's. Shapes that differ give a result in plain layout. Over dimension 0, which is that of
 * samples, the batch must be one segment. */
struct var *add(struct tape *t, struct var *a, struct var *b);
struct var *subtract(struct tape *t, struct var *a, struct var *b);
struct var *multiply(struct tape *t, struct var *a, struct var *b);

struct var *avg_pool2d(struct tape *t, struct var *x, int size, int stride);
struct var *max_pool2d(struct tape *t, struct var *x, int size, int stride);
/* y (N,C,top+H+bottom,left+W+right), which is `value` around x; negative sides cut off. */
struct pad_sides {
    int left, right, top, bottom;
};
struct var *pad2d(struct tape *t, struct var *x, struct pad_sides sides, float value);
/* With a margin around x, at most half of `size`: zeros, which the mean counts, or what no maximum
 * takes. */
struct var *avg_pool2d_padded(struct tape *t, struct var *x, int size, int stride, int padding);
struct var *max_pool2d_padded(struct tape *t, struct var *x, int size, int stride, int padding,
                              int ceil_mode);
/* PyTorch's ceil_mode: the pixels that a side of `pixels` needs behind its padding, so that a
 * window takes what the last one leaves over; unless that window would begin behind x. */
int pool_ceil_extra(int pixels, int size, int stride, int padding);
/* y (N,C,height,width): each pixel is the mean of its share of x (N,C,H,W), cut as PyTorch's
 * AdaptiveAvgPool2d cuts; 1 x 1 is the mean of the plane. */
struct var *adaptive_avg_pool2d(struct tape *t, struct var *x, int height, int width);
/* The same with the maximum of each share; PLAIN. */
struct var *adaptive_max_pool2d(struct tape *t, struct var *x, int height, int width);
/* The places start .. start+length-1 of dimension `dim`, 1 to rank-1. */
struct var *narrow(struct tape *t, struct var *x, int dim, int start, int length);
/* vars[0 .. count), 1 to MAX_CAT, one behind the other in dimension `dim`, 1 to rank-1; their other
 * sizes are equal. Of one it is that var itself. */
enum { MAX_CAT = 64 };
struct var *cat(struct tape *t, struct var *const *vars, int count, int dim);
struct var *flatten(struct tape *t, struct var *x); /* (N,C,H,W) -> (N,C*H*W), a view */
/* (N,..) -> (N,shape[0],..), a view: each sample has the same numbers in the same order. rank: of
 * the result, 2 to MAX_RANK; shape[rank - 1]. */
struct var *reshape(struct tape *t, struct var *x, int rank, const int *shape);

/* Zeroes elements with probability p and scales the rest by 1/(1-p). Returns x itself when not
 * training, and when p is 0. The mask is a function of (seed, virtual device, step, layer,
 * element), where layers are numbered from 0 in order of call, including those that return x. */
struct var *dropout(struct tape *t, struct var *x, double p);

/* The same with whole planes of x (N,C,H,W): the mask's element is sample * C + channel. */
struct var *dropout2d(struct tape *t, struct var *x, double p);

/* torch.matmul of two vars, PLAIN; each may be a vector, and a vector counts as a row of a or a
 * column of b. With 3 or 4 dimensions it makes a product for each of the leading ones, which are
 * broadcast as those of add; what is used several times is copied for it. Such an a times a matrix
 * or a vector b multiplies all of its matrices by that one, without copies. Where an operand serves
 * all samples its gradient sums over them, so the batch must then be one segment. */
struct var *matmul(struct tape *t, struct var *a, struct var *b);

/* The sum and the mean over dimension `dim` of x, which is then gone; PLAIN. DIM_ALL: over all
 * elements, which leaves one, of shape (1). They are taken in double. Over dimension 0, which is
 * that of samples, the batch must be one segment. */
enum { DIM_ALL = -1 };
struct var *sum_of(struct tape *t, struct var *x, int dim);
struct var *mean_of(struct tape *t, struct var *x, int dim);
/* Over several dimensions, which count from 0, or from -1 backwards; none: over all. keepdim 1: the
 * result has them, with size 1. Where others lie between them, each run is rounded to float. */
struct var *sum_dims(struct tape *t, struct var *x, const int *dims, int count, int keepdim);
struct var *mean_dims(struct tape *t, struct var *x, const int *dims, int count, int keepdim);

/* torch.permute and torch.transpose, PLAIN: dimension i of the result is dimension order[i] of x,
 * count of them; or two dimensions of x change places. Where dimension 0 moves, which is that of
 * samples, the batch must be one segment. */
struct var *permute(struct tape *t, struct var *x, const int *order, int count);
struct var *transpose(struct tape *t, struct var *x, int dim0, int dim1);

/* F.embedding: y (N,..,D) has the rows of w (R,D) that `index` names, I32 (N,..) in device memory,
 * which must stay until backward is done; rank 1 to MAX_RANK - 1. An index that w does not have
 * makes a row of NaN. */
struct var *embedding(struct tape *t, const struct tensor *index, struct param *w);

/* Over the last dimension of x; PLAIN. */
struct var *softmax(struct tape *t, struct var *x);
struct var *log_softmax(struct tape *t, struct var *x);
/* x in PLAIN layout, batch first, as everything that leaves the device must be */
struct var *to_plain(struct tape *t, struct var *x);

/* ---- losses ----
 *
 * labels: I32 (N or more), device memory. The value of the result is F64 (N): the unweighted loss
 * of each sample. In backward MEAN weighs each by step->weight, which is 1/B over the GLOBAL batch,
 * so gradients only ever need summing; SUM by 1; NONE by the gradient given to tape_backward, F32
 * (N). A gradient given for MEAN or SUM counts in place of their weights. */

struct var *cross_entropy(struct tape *t, struct var *scores, const struct tensor *labels,
                          enum reduction r);
/* With a part of each target, 0 to 1, spread evenly over all classes: PyTorch's label_smoothing. */
struct var *cross_entropy_smoothed(struct tape *t, struct var *scores, const struct tensor *labels,
                                   enum reduction r, double label_smoothing);
struct var *nll_loss(struct tape *t, struct var *log_probabilities, const struct tensor *labels,
                     enum reduction r);
/* targets: F32 (N or more, M), device memory, for x (N,M). A sample's loss is the mean of its (x -
 * target)^2, so MEAN is that of nn.MSELoss over all elements. There are no right answers: hits are
 * 0. */
struct var *mse_loss(struct tape *t, struct var *x, const struct tensor *targets, enum reduction r);

/* The reduction of a loss. ERR_USAGE: the value given was made by no loss. */
int tape_loss_reduction(const struct var *loss, enum reduction *r);

/* For each segment s, enqueues the sum of its losses into row step->slot, column s of `losses`
 * (F64 (R,S)) and its number of right answers into `hits` (I64 (R,S)). `loss` must come from one of
 * the losses above. */
int tape_log_loss(struct tape *t, const struct var *loss, const struct tensor *losses,
                  const struct tensor *hits);

#ifdef __cplusplus
}
#endif
#endif
