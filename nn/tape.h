/* The tape: define by run. A forward function calls the ops below as it would write the formula,
 *
 *     h = relu(t, conv2d(t, x, W1, b1, conv(1, 0)));
 *
 * each call enqueues its kernel and leaves a node; tape_backward walks the nodes from the last
 * to the first, enqueues the gradients, and fires a hook as each parameter's gradient is
 * complete.
 *
 * Segments. A step's batch is made of segments (base/segment.h), one per virtual device. What
 * treats each sample alike runs once over the whole batch; what sums over samples (weight
 * gradients, the loss) runs once per segment, and a parameter's gradient is folded over the
 * segments in the fold order of docs/design.md section 2 rule 1 before its hook fires. So the
 * bits of a gradient do not depend on how many real devices share the work.
 *
 * Memory. Tensors live in the tape's step arena (MEM_ACTIVATIONS), which after two steps is one
 * block of what the largest step needed, so a steady step allocates nothing. tape_begin starts
 * the arena anew: vars are invalid from then on, and whatever another stream still reads of the
 * last step must be ordered before it.
 *
 * Errors. The first failing op is recorded in the tape and the op returns NULL; every later op
 * given NULL returns NULL; tape_backward and tape_error return the code. Forward functions need
 * no checks. The next tape_begin starts without error; an asynchronous failure stays in the
 * stream (device/device.h).
 *
 * A tape belongs to one thread. Everything is enqueued on the device's compute stream. */
#ifndef NN_TAPE_H
#define NN_TAPE_H

#include "base/segment.h"
#include "nn/param.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tape;

/* A value on the tape. Backward leaves the gradient of a leaf that asked for one; what it leaves
 * in other vars is used up on the way. */
struct var {
    struct tensor value; /* in the device's own layout, unless said: see to_plain */
    struct tensor grad;  /* of a leaf: PLAIN; data NULL where the root does not depend on it */
    int needs_grad;      /* 1: some parameter, or a leaf that asked, stands behind it */
};

/* Fires on the compute thread once a backward for each parameter, in the order in which their
 * gradients complete (of one layer the bias first), after the last kernel of its gradient was
 * enqueued. May only enqueue. `index` counts in the param_set given to tape_begin. A parameter
 * that took no part in the loss never fires and keeps the gradient it has. A code other than OK
 * ends the backward. */
typedef int grad_hook(void *context, int index);

int tape_init(struct tape **out, struct device *device);
/* of the step arena, before the first step; MEM_ACTIVATIONS else */
void tape_set_cause(struct tape *tape, enum mem_cause cause);
void tape_free(struct tape *tape); /* NULL is fine; waits for the compute stream */

/* Starts a step: forgets all nodes, keeps the memory. `segments` says how the batch is cut
 * (copied); a segment and the whole batch may be empty. `params` may be NULL (a tape without
 * parameters: DP's loss on device 0). training 0: no nodes are kept, dropout passes through.
 * `step` lies in device memory and is read by kernels. Waits for the stream only where the step
 * before needed new memory. */
struct tape_step {
    const struct segments *segments;
    struct param_set *params;
    const struct step_block *step;
    int training;
};
int tape_begin(struct tape *tape, const struct tape_step *step);

/* Grows whenever the step arena's memory changes. While it stays, a step of the same segments
 * puts everything where it lay before: that is what a recording of its launches
 * (models/recorded.h) leans on. */
uint64_t tape_arena_version(const struct tape *tape);
/* kept over steps; NULL: none */
void tape_set_hook(struct tape *tape, grad_hook *hook, void *context);

/* The code of the first op that failed since tape_begin, its message restored; OK if none. */
int tape_error(const struct tape *tape);

/* Backward from `root`, whose gradient is `root_grad`: PLAIN, as the root must then be, of the
 * same shape, never written to; it must stay until the stream is done with it. NULL where root
 * is a loss made by cross_entropy or nll_loss with MEAN or SUM: it then starts from the loss
 * itself. Gradients of parameters are written, not added to; see tape_accumulate. A second
 * backward on one tape starts anew. */
int tape_backward(struct tape *tape, struct var *root, const struct tensor *root_grad);

/* 1: the next backwards add to the parameters' gradients instead of overwriting them. Each
 * call's gradient is folded by itself: bits are promised for one call only. */
void tape_accumulate(struct tape *tape, int on);

/* A leaf: PLAIN data (n, ...) that lives outside the arena. needs_grad 1: backward leaves
 * leaf->grad, PLAIN. */
struct var *tape_leaf(struct tape *tape, const struct tensor *value, int needs_grad);

/* ---- layers. x is (N,C,H,W) or (N,K); parameters are those of the param_set given to tape_begin. ---- */

/* y (N,O,P,Q) = x * w + b; w (O,C,k,k), b (O). In PyTorch: F.conv2d. */
struct var *conv2d(struct tape *t, struct var *x, struct param *w, struct param *b, int stride,
                   int padding);

/* y (N,M) = x wT + b with w (M,K), PyTorch's Linear; or with w (K,M), x @ w + b, as d2l writes
 * it. */
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
/* y = (x - mean) / sqrt(var + epsilon) * w + b for each channel of x (N,C,H,W) or (N,C); w, b (C).
 * Training takes mean and biased variance of each segment, or of all of them, and updates running
 * (with the unbiased variance) and batches; running is virtual device 0's. Eval takes running.
 * In PyTorch: nn.BatchNorm2d, nn.BatchNorm1d, nn.SyncBatchNorm. */
struct var *batch_norm(struct tape *t, struct var *x, struct param *w, struct param *b,
                       const struct norm_config *config);

struct var *relu(struct tape *t, struct var *x);
struct var *avg_pool2d(struct tape *t, struct var *x, int size, int stride);
struct var *max_pool2d(struct tape *t, struct var *x, int size, int stride);
struct var *flatten(struct tape *t, struct var *x); /* (N,C,H,W) -> (N,C*H*W): a view */

/* Zeroes elements with probability p and scales the rest by 1/(1-p); returns x itself when not
 * training or p is 0. Layers are numbered in order of call, from 0, those that return x too: a
 * mask is a function of (seed, virtual device, step, layer, element). */
struct var *dropout(struct tape *t, struct var *x, double p);

struct var *log_softmax(struct tape *t, struct var *x); /* row-wise; the result is PLAIN */
/* PLAIN and batch first, for whatever leaves the device */
struct var *to_plain(struct tape *t, struct var *x);

/* ---- losses. labels: I32 (N or more), device memory. The result's value is F64 (N): each sample's unweighted
 * loss. In backward MEAN weighs each by step->weight, which is 1/B over the GLOBAL batch, so
 * gradients only ever need summing; SUM by 1; NONE by the root gradient given to tape_backward,
 * F32 (N). ---- */
struct var *cross_entropy(struct tape *t, struct var *scores, const struct tensor *labels,
                          enum reduction r);
struct var *nll_loss(struct tape *t, struct var *log_probabilities, const struct tensor *labels,
                     enum reduction r);

/* Enqueues, for each segment s, the sum of its losses into row step->slot, column s of losses
 * (F64 (R,S)) and its count of right answers into hits (I64 (R,S)). `loss` comes from the two
 * functions above. */
int tape_log_loss(struct tape *t, const struct var *loss, const struct tensor *losses,
                  const struct tensor *hits);

#ifdef __cplusplus
}
#endif
#endif
