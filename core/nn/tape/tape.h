/* The tape is define-by-run. A forward function calls the ops below in the form of the formula,
 *
 *     h = duet_relu(t, duet_linear(t, x, W1, b1));
 *
 * Each call enqueues its kernel and appends a node. tape_backward walks the nodes from the last to
 * the first, enqueues the gradients, and fires a hook as soon as the gradient of a parameter is
 * complete.
 *
 * Segments. The batch of a step consists of segments (base/segment.h), one for each virtual device.
 * An op on single samples runs once over the whole batch. An op that sums over samples (weight
 * gradients, the loss) runs once for each segment, and the gradient of a parameter is folded over
 * the segments in the fold order (docs/design.md section 2 rule 1) before its hook fires. So the
 * bits of a gradient do not depend on how many real devices share the work.
 *
 * Passes. A gradient may be accumulated over several passes, each a tape_begin, a forward and a
 * backward with its own batch: `more_passes` in all but the last, `add_grads` in all but the
 * first. Each segment keeps its own sum over the passes. The last pass folds these sums over
 * the segments and fires the hooks; the earlier ones fire none. So here, too, the bits do not
 * depend on how many devices share the segments. With one pass neither is set.
 *
 * Memory. Tensors are in the tape's step arena (nn/tape/step_arena.h, charged to MEM_ACTIVATIONS).
 * After two steps the arena is one block of the size that the largest step needed, so a steady step
 * allocates nothing. tape_begin reuses all of it from the start. It makes all vars invalid, and
 * another stream's reads of the last step must be ordered before it. Gradients of vars are freed
 * during backward; with `once`, values are freed, too (nn/tape/lifetime.c).
 *
 * Errors. The first op that fails records its error in the tape and returns NULL. Every later op
 * that gets NULL returns NULL, and tape_backward and tape_error return the code. So forward
 * functions need no checks. The next tape_begin starts without error; an asynchronous failure stays
 * in the stream (device/device.h).
 *
 * A tape belongs to one thread. Everything is enqueued on the device's compute stream. */
#ifndef NN_TAPE_H
#define NN_TAPE_H

#include "base/segment.h"
#include "duet/functions.h"
#include "nn/buffer.h"
#include "nn/param.h"

/* A value on the tape. Backward keeps the gradient of a leaf that requires one, and frees the
 * gradients of other vars after their use. */
struct duet_var {
    struct tensor value; /* in the device's own layout, unless the op says PLAIN */
    struct tensor grad;  /* in a leaf: PLAIN; data is NULL if the root does not depend on it */
    int needs_grad;      /* 1: it depends on a parameter, or on a leaf that requires a gradient */
    int keeps_grad;      /* 1: grad stays after the backward of the node that made the var */
    int reached;         /* 1: the root depends on it */
    struct tensor hits;  /* in a loss: I32 (N), 1 where the largest score was the label's */
    enum reduction reduction; /* of a loss */
    struct tensor divisor;    /* in a loss with weights and MEAN: F32 (1), their sum; else NULL */
    int common;               /* 1: the same for all samples, without a batch dimension */
    struct param *param;      /* if common: the parameter that it is, or a view of; else NULL */
    int joins;                /* 1: tape_join made it, for several roots */
    duet_var *terms[2];       /* in a sum of losses (nn/results.c); else NULL */
    /* If it is not NULL, value is relu(*relu_of) and has no memory yet; tape_stuck computes it for
     * its reader. */
    duet_var *relu_of;
    /* In a view (strided.c), `view` describes the elements in the memory of view_of, from element
     * view_at on. view_of is PLAIN and not itself a view. value equals view until tape_stuck makes
     * a row-major copy. If view_of is NULL, this is not a view. */
    struct duet_var *view_of;
    struct tensor view;
    size_t view_at;
    enum {
        VIEW_ALONE,  /* value is not a copy of it */
        VIEW_MADE,   /* value is a copy; ops may make views of it until forward is done with it */
        VIEW_SAVED,  /* the same, and some backward reads it */
        VIEW_DROPPED /* its memory is no longer held */
    } beside;        /* memory held besides value */
    /* The walk back from the root sets these. */
    int uses;     /* how often ops that the root depends on read it; making a view is not an op */
    int in_place; /* in a view: its gradient is part of view_of's gradient */
    enum { OVERLAP_UNKNOWN, OVERLAP_NONE, OVERLAP_SOME } overlap; /* whether its views overlap */
    struct duet_var *parts, *next_part; /* list of its views that ops read */
    /* For nn/autograd_memory.h. */
    int index; /* its number among the vars of the pass */
    /* These decide when value returns to the arena. */
    int saved;               /* 1: some backward reads it */
    int put_off;             /* number of its deferred relus */
    int forgotten;           /* 1: forward has read it for the last time */
    int gone;                /* 1: value has returned to the arena */
    int names;               /* number of values in a model's graph that are this var */
    int outside;             /* 1: a leaf or a parameter, whose memory is not the pass's */
    const duet_var *same_as; /* the var whose memory it uses in PyTorch; NULL: its own */
};

/* Fires on the compute thread, once per backward for each parameter, after the last kernel of its
 * gradient was enqueued. The order is that in which gradients complete; in a layer the bias is
 * first. With several passes it fires in the last, and at its end for parameters that only earlier
 * passes used. It may only enqueue. `index` counts in the param_set of tape_begin. It does not fire
 * for a parameter that took no part in the loss, whose gradient keeps its old contents. A code
 * other than OK ends the backward, which returns it. */
typedef int grad_hook(void *context, int index);

/* Makes a tape for callers that provide segments, step block and log, such as a replica.
 * duet_tape_create makes a tape that has its own. duet_tape_free frees both. */
int tape_init(duet_tape **out, struct device *device);
/* Sets the cause of the step arena's memory, in place of MEM_ACTIVATIONS, before the first step. */
void tape_set_cause(duet_tape *tape, enum mem_cause cause);

/* The inputs of a step. */
struct tape_step {
    const struct segments *segments; /* how the batch is divided; tape_begin copies it */
    struct param_set *params;        /* borrowed; NULL: no parameters (DP's loss on device 0) */
    const struct step_block *step;   /* device memory, read by the kernels */
    int training;                    /* 0: the tape keeps no nodes, and dropout returns its input */
    int add_grads;                   /* 1: gradients are added to those of earlier passes */
    int more_passes;                 /* 1: passes follow before the gradients are complete */
    int global_n;                    /* samples of the batch on all ranks; 0: those of `segments` */
    int once;                        /* 1: at most one backward follows, after which only the loss
                                      * is read; other values are freed early */
    int64_t number;                  /* number of the batch, for a forward function that varies */
};
int64_t tape_number(const duet_tape *tape); /* number of the current step */
int tape_training(const duet_tape *tape);   /* 1: it is a training step */

/* Starts a step: forgets all nodes and keeps the memory. A segment and the whole batch may be
 * empty. It waits for the stream only if the previous step needed new memory. */
int tape_begin(duet_tape *tape, const struct tape_step *step);

/* With `once`, says that forward will not read again the values of vars from number `first` on,
 * except `kept`, or the value of x. Values that no backward reads are freed at once. */
void tape_forget_since(duet_tape *tape, int first, const duet_var *kept);
void tape_forget(duet_tape *tape, duet_var *x);
/* The number of vars in the pass. */
int tape_var_count(const duet_tape *tape);

/* Sets the hook of all later backwards; NULL: none. */
void tape_set_hook(duet_tape *tape, grad_hook *hook, void *context);

/* Connects a synchronised batch_norm to the segments of other ranks. nn/ does not know ranks, so
 * syncbn/ implements it. Without an exchange only the tape's own segments count. */
struct tape_exchange {
    int segments; /* V: segments of all ranks together */
    int segment;  /* index of the tape's one segment among the V; -1: use each segment's number v */
    /* Sets *parts to F64 (V, rows, channels), valid until the next call. Every rank writes its
     * segments' matrices there, at each segment's number v, on the compute stream. */
    int (*parts)(void *context, int rows, int channels, struct tensor *parts);
    /* Collective: enqueues the gather that brings all matrices to every rank. */
    int (*gather)(void *context, const struct tensor *parts);
    void *context;
};
/* Sets the exchange of all later steps, which is copied; NULL: none. */
void tape_set_exchange(duet_tape *tape, const struct tape_exchange *exchange);

/* The code of the first op that failed since tape_begin, with its message; OK if none did. */
int tape_error(const duet_tape *tape);

/* Runs backward from `root`. root_grad is its gradient, with the same shape; both must be PLAIN. It
 * is only read, and must stay until the stream is done with it. It is NULL if root is a loss with
 * MEAN or SUM. Gradients of parameters are written, not added to, unless the step has several
 * passes. A second backward on one tape starts over. */
int tape_backward(duet_tape *tape, duet_var *root, const struct tensor *root_grad);

/* Makes one var for several roots, so that one backward starts from all of them:
 * tape_backward(tape, join, NULL). grads[i] is like root_grad above; if its rank is 0, roots[i] is
 * a loss with MEAN or SUM. The roots are different vars; one may depend on another. Call it after
 * the forward pass. It returns NULL after a failure. */
duet_var *tape_join(duet_tape *tape, duet_var *const *roots, const struct tensor *grads, int count);

/* ERR_USAGE: a forward function called `function`, which is for a program's own pass. */
int pass_refuse_inside(duet_tape *tape, const char *function);

/* a + b, at least one of which is a loss or a sum of losses. */
duet_var *tape_add_losses(duet_tape *tape, duet_var *a, duet_var *b);

/* Marks the vars that `root` depends on, and sets used[i] to 1 if a backward from root, or an
 * earlier pass, gives parameter i a gradient; NULL: not wanted. */
void tape_uses(duet_tape *tape, duet_var *root, char *used);

/* Makes a leaf from PLAIN data (n, ...) outside the arena. With needs_grad 1, backward leaves its
 * gradient in leaf->grad, PLAIN. */
duet_var *tape_leaf(duet_tape *tape, const struct tensor *value, int needs_grad);

/* ---- ops ----
 *
 * The layers, functions and losses are those of duet/functions.h, which says what each computes.
 * nn/ implements them, with their checks, in layers.c (with parameters, dropout), batch_norm.c,
 * layer_norm.c, pool.c, elementwise.c and functions.c, algebra.c, view.c, embedding.c, common.c,
 * matmul.c, cat.c, loss.c; operand.c has their common parts. model_layers.c finds the layers that a
 * model describes by number.
 *
 * Losses. The value of a loss is F64 (N), the unweighted loss of each sample. In backward DUET_MEAN
 * weights each sample by step->weight, which is 1/B over the GLOBAL batch, so gradients only need
 * summing. DUET_SUM weights it by 1, and DUET_NONE by the gradient passed to tape_backward, F32
 * (N). A gradient passed for DUET_MEAN or DUET_SUM replaces their weights.
 *
 * The mask of dropout is a function of (seed, virtual device, step, layer, element), in which
 * layers are numbered from 0 in order of call, including those that return x. In dropout2d the
 * element is sample * C + channel.
 *
 * The functions below are not in duet/functions.h, or take parameters by number there. */

/* The settings of a batch_norm layer. running and batches are its buffers in device memory, which
 * the caller owns. If their data are NULL, nothing is tracked. */
struct norm_config {
    double epsilon;        /* PyTorch's default: 1e-5 */
    double momentum;       /* PyTorch's default: 0.1; below 0: its None, the mean of all batches */
    int eval;              /* 1: runs as in evaluation, even in a training pass; needs running */
    int synchronised;      /* 1: SyncBatchNorm, the statistics of all segments */
    int relu;              /* 1: relu(y) in the same pass over x, with the same bits, or */
    duet_var *residual;    /* relu(y + residual); NULL: none, else relu is 1 */
    struct tensor running; /* F32 (2, C): running_mean, running_var */
    struct tensor batches; /* I64 (1): num_batches_tracked */
};
/* PyTorch's defaults, with the buffers b[0] running_mean, b[1] running_var and b[2]
 * num_batches_tracked, which are registered in this order. */
struct norm_config norm_config_default(const struct buffer *b);

/* y = (x - mean) / sqrt(var + epsilon) * w + b for each channel of x (N,C,H,W) or (N,C); w, b (C).
 * Training uses the mean and biased variance of each segment, or of all segments, and updates
 * running (with the unbiased variance) and batches; running has virtual device 0's statistics. Eval
 * uses running. In PyTorch: nn.BatchNorm2d, nn.BatchNorm1d, nn.SyncBatchNorm. */
duet_var *batch_norm(duet_tape *t, duet_var *x, struct param *w, struct param *b,
                     const struct norm_config *config);

/* Applies a function of device/activation.h. */
duet_var *tape_activation(duet_tape *t, duet_var *x, struct activation_args function);

/* returns x in PLAIN layout, batch first, like all that leaves the device */
duet_var *to_plain(duet_tape *t, duet_var *x);

/* Gets the reduction of a loss. ERR_USAGE: the value is not a loss. */
int tape_loss_reduction(const duet_var *loss, enum reduction *r);

/* For each segment s, enqueues the sum of its losses into row step->row, column s of `losses`
 * (F64 (R,S)) and its number of right answers into `hits` (I64 (R,S)). `loss` must come from one of
 * the losses above. */
int tape_log_loss(duet_tape *t, const duet_var *loss, const struct tensor *losses,
                  const struct tensor *hits);

#endif
