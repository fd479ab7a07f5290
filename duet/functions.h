/* duet/functions.h: the parts of a forward pass on a tape (duet/core.h): parameters and constants
 * as values, layers, functions, arithmetic and losses. Names, defaults and shapes are PyTorch's; N
 * is the number of samples.
 *
 * This program applies a convolution, a pool and a linear layer to 8 black images. All scores are
 * 0, so the loss is log 10:
 *
 *     int main(void) {
 *         const struct duet_param net[] = {{"conv.weight", 4, {4, 1, 3, 3}, NULL},
 *                                          {"conv.bias", 1, {4}, NULL},
 *                                          {"fc.weight", 2, {10, 16}, NULL},
 *                                          {"fc.bias", 1, {10}, NULL}};
 *         duet_device *device;
 *         duet_params *params = NULL;
 *         duet_tensor *X = NULL, *y = NULL;
 *         duet_tape *t = NULL;
 *         double sum = 0;
 *         if (duet_devices_open(&device, 1, "auto", 0)) return DUET_FAILED;
 *         duet_params_create(&params, device, net, 4);
 *         duet_tensor_create(&X, device, DUET_F32, 4, (int[]){8, 1, 6, 6}, NULL);
 *         duet_tensor_create(&y, device, DUET_I32, 1, (int[]){8}, NULL);
 *         duet_tape_create(&t, device);
 *         duet_tape_begin(t, params, 8, DUET_TRAIN);
 *         duet_var *h = duet_relu(t, duet_conv2d(t, duet_input(t, X), 0, 1, NULL));
 *         h = duet_linear(t, duet_flatten(t, duet_max_pool2d(t, h, 2, NULL)), 2, 3);
 *         duet_var *loss = duet_cross_entropy(t, h, y, DUET_MEAN, NULL);
 *         int code = duet_backward(t, loss, NULL);
 *         if (!code) code = duet_loss_read(t, loss, &sum, NULL);
 *         printf("%g\n", sum / 8);
 *         duet_tensor_free(X), duet_tensor_free(y), duet_tape_free(t);
 *         duet_params_free(params), duet_devices_close(&device, 1);
 *         return duet_exit_status(code);
 *     }
 * */
#ifndef DUET_FUNCTIONS_H
#define DUET_FUNCTIONS_H

#include "core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Vars that are the same for all samples: a constant, such as a mask, and the value of parameter i
 * of the pass, such as a class token or a learned scale. They have no batch dimension. In add,
 * subtract, multiply and matmul with a var that has one, each sample gets a copy: (D), (1,D), (L,D)
 * and (1,L,D) go with (N,L,D). In matmul a vector is a row as a and a column as b. A vector as a
 * needs a b of 3 dimensions or more, because matmul must not sum over samples. reshape gives a
 * constant or parameter any shape; every other function returns a var of samples. expand is
 * torch's, with `rank` dimensions, the first of which is N, the number of rows, or -1; it also
 * expands sizes of 1 in other vars. The constant lives until backward is done. */
duet_var *duet_constant(duet_tape *tape, const duet_tensor *x);
duet_var *duet_parameter(duet_tape *tape, int i);
duet_var *duet_expand(duet_tape *tape, duet_var *x, int rank, const int *shape);

/* Layers with parameters. w and b are indices of parameters of the pass. With DUET_NO_BIAS as b,
 * conv2d, linear, matmul_add, layer_norm and group_norm add nothing. x is (N,C,H,W), or for linear
 * and matmul_add (N,K) or (N,...,K), where each run of K numbers is a row.
 *     conv2d       w (O,C/groups,K,L), b (O)     y (N,O,P,Q), where
 *                  P = (H + 2 padding - dilation (K - 1) - 1) / stride + 1. x (N,C,H) with
 *                  w (O,C/groups,K) is F.conv1d, with the first number of each pair. 3-D filters,
 *                  (O,C/groups,T,K,L), count as filters of images with CT channels
 *     linear       w (M,K), b (M)        y (N,M) = x wT + b, as PyTorch's Linear
 *     matmul_add   w (K,M), b (M)        y (N,M) = x w + b, as "Dive into Deep Learning" writes it
 *     batch_norm   w (C), b (C)          x (N,C,H,W) or (N,C). Buffer number `running` is the
 *                  running mean, the next one the running variance; DUET_NO_BUFFERS: none. eps
 *                  is at least 0; momentum below 0 is PyTorch's None, the mean of all batches.
 *                  eval 1 is eval mode within a training pass, as in a frozen backbone: the layer
 *                  normalises with the running statistics and does not change them
 *     layer_norm   w, b (normalized_shape)  over the last `rank` (1 to 3) dimensions of x.
 *                  DUET_NO_WEIGHT as w is elementwise_affine=False. PyTorch's eps is 1e-5
 *     group_norm   w, b (C)              x (N,C,...), in num_groups groups of channels
 *     embedding    w (R,D), or (R,...) with D numbers in a row
 *                                        y (N,...,D), the rows of w that `index` selects. index is
 *                  int32 (N,...) and must live until backward is done; a bad index gives NaN. In
 *                  embedding_of index is a var of integers, such as samples of a data set or a
 *                  constant. Row padding_idx gets no gradient; with -1 all rows do
 * Window settings come in pairs, for rows and for columns. If the second is 0, it equals the first:
 * {2} is PyTorch's 2; {1, DUET_NO_PADDING} pads rows only. Here and below, a field of 0 means
 * PyTorch's default, and NULL means all defaults: stride 1 (in pools the size), padding 0, dilation
 * 1, groups 1. The largest value is 2^20. duet_conv and duet_pool begin with the same members. */
enum { DUET_NO_BIAS = -1, DUET_NO_BUFFERS = -1, DUET_NO_WEIGHT = -1, DUET_NO_PADDING = -1 };
struct duet_conv {
    int stride[2], padding[2], dilation[2], groups;
};
duet_var *duet_conv2d(duet_tape *tape, duet_var *x, int w, int b, const struct duet_conv *how);
duet_var *duet_linear(duet_tape *tape, duet_var *x, int w, int b);
duet_var *duet_matmul_add(duet_tape *tape, duet_var *x, int w, int b);
duet_var *duet_batch_norm(duet_tape *tape, duet_var *x, int w, int b, int running, double eps,
                          double momentum, int eval);
duet_var *duet_layer_norm(duet_tape *tape, duet_var *x, int rank, const int *normalized_shape,
                          int w, int b, double eps);
duet_var *duet_group_norm(duet_tape *tape, duet_var *x, int num_groups, int w, int b, double eps);
duet_var *duet_embedding(duet_tape *tape, const duet_tensor *index, int w, int padding_idx);
duet_var *duet_embedding_of(duet_tape *tape, duet_var *index, int w, int padding_idx);
/* One layer of nn.LSTM, nn.GRU or nn.RNN in one direction, with batch_first: x (N,L,I), y (N,L,H).
 * The weights are PyTorch's weight_ih_l0 (GH,I), weight_hh_l0 (GH,H), bias_ih_l0 (GH) and
 * bias_hh_l0 (GH); G is 4, 3 or 1 gates. DUET_NO_BIAS: no bias. reverse 1 runs from the last step
 * to the first, as with weights that end in _reverse. Further layers take y; duet_cat over
 * dimension 2 joins two directions. *h and *c, (N,H), are the states before the first step, NULL
 * for zeros, and become those after the last one. If h or c is NULL, the first state is zeros and
 * the last is not returned. Only an LSTM has c; it starts with both states or with neither. */
enum duet_recurrent_kind { DUET_LSTM, DUET_GRU, DUET_RNN_TANH, DUET_RNN_RELU };
struct duet_recurrent {
    enum duet_recurrent_kind kind;
    int w_ih, w_hh, b_ih, b_hh, reverse;
};
duet_var *duet_recurrent(duet_tape *tape, duet_var *x, const struct duet_recurrent *layer,
                         duet_var **h, duet_var **c);

/* Layers without parameters.
 *     relu, tanh, sigmoid, silu      of each element, and leaky_relu (PyTorch's default slope is
 *                  0.01), and gelu: DUET_GELU, or DUET_GELU_TANH for approximate="tanh"
 *     multiply_number, add_number        x * number, x + number, for each element
 *     clamp        torch.clamp, where -INFINITY and INFINITY are no bound; F.hardtanh clamps to -1,
 *                  1, and F.relu6 to 0, 6. At a bound the gradient is 0
 *     pow          x to a finite power
 *     abs, exp, log, sqrt, reciprocal      of each element
 *     pools        y (N,C,P,Q), P = (H + 2 padding - size) / stride + 1, rounded up with ceil_mode
 *                  (only in max_pool2d). Windows are size x size, or size x width. Averages count
 *                  the zeros of the padding, as PyTorch's default does. With padding a padded copy
 *                  of x is kept until backward
 *     pad2d        F.pad(x, (left, right, top, bottom), value=value); negative sides cut off
 *     adaptive     averages              y (N,C,height,width), windows as in AdaptiveAvgPool2d
 *     detach       x without a gradient to its operands
 *     flatten                            y (N,C*H*W)
 *     reshape      to `rank` dimensions, 1 to 8. The first stays N, or is -1; one other may be -1.
 *                  Or the first gets several rows per sample, and no dimension is -1: videos
 *                  (N,T,C,H,W) become (NT,C,H,W), which every layer accepts like samples, and the
 *                  result (NT,..) becomes (N,T,..). Losses take N rows
 *     narrow       torch.narrow: indices start .. start + length - 1 of dimension `dim`
 *     cat          torch.cat: 1 to 64 vars one after another in dimension `dim`. Here and in
 *                  narrow dim is not 0, the batch dimension; -1 is the last one
 *     dropout      zeroes each element with probability p and scales the others by 1 / (1 - p);
 *                  dropout2d: each plane
 *     softmax, log_softmax               over the last dimension */
duet_var *duet_relu(duet_tape *tape, duet_var *x);
duet_var *duet_tanh(duet_tape *tape, duet_var *x);
duet_var *duet_sigmoid(duet_tape *tape, duet_var *x);
duet_var *duet_leaky_relu(duet_tape *tape, duet_var *x, double negative_slope);
duet_var *duet_silu(duet_tape *tape, duet_var *x);
duet_var *duet_clamp(duet_tape *tape, duet_var *x, double min, double max);
duet_var *duet_pow(duet_tape *tape, duet_var *x, double exponent);
enum duet_gelu { DUET_GELU, DUET_GELU_TANH };
duet_var *duet_gelu(duet_tape *tape, duet_var *x, enum duet_gelu approximate);
duet_var *duet_multiply_number(duet_tape *tape, duet_var *x, double number);
duet_var *duet_add_number(duet_tape *tape, duet_var *x, double number);
duet_var *duet_abs(duet_tape *tape, duet_var *x);
duet_var *duet_exp(duet_tape *tape, duet_var *x);
duet_var *duet_log(duet_tape *tape, duet_var *x);
duet_var *duet_sqrt(duet_tape *tape, duet_var *x);
duet_var *duet_reciprocal(duet_tape *tape, duet_var *x);
struct duet_pool {
    int stride[2], padding[2], ceil_mode;
    int width; /* width of the window; 0: it is square */
};
duet_var *duet_avg_pool2d(duet_tape *tape, duet_var *x, int size, const struct duet_pool *how);
duet_var *duet_max_pool2d(duet_tape *tape, duet_var *x, int size, const struct duet_pool *how);
duet_var *duet_pad2d(duet_tape *tape, duet_var *x, int left, int right, int top, int bottom,
                     double value);
duet_var *duet_adaptive_avg_pool2d(duet_tape *tape, duet_var *x, int height, int width);
duet_var *duet_detach(duet_tape *tape, duet_var *x);
duet_var *duet_flatten(duet_tape *tape, duet_var *x);
duet_var *duet_reshape(duet_tape *tape, duet_var *x, int rank, const int *shape);
duet_var *duet_narrow(duet_tape *tape, duet_var *x, int dim, int start, int length);
duet_var *duet_cat(duet_tape *tape, duet_var *const *vars, int count, int dim);
duet_var *duet_dropout(duet_tape *tape, duet_var *x, double p);
duet_var *duet_dropout2d(duet_tape *tape, duet_var *x, double p);
duet_var *duet_softmax(duet_tape *tape, duet_var *x);
duet_var *duet_log_softmax(duet_tape *tape, duet_var *x);

/* Arithmetic.
 *     add, subtract, multiply            a + b, a - b, a * b. add also adds two losses, each with
 *                  its own reduction, or a loss and a var with one element, as from duet_mean. The
 *                  sum, PyTorch's loss_a + loss_b, is for duet_backward and duet_loss_read
 *     matmul       torch.matmul: (I,K) times (K,J) is (I,J); each may be a vector. With 3 or 4
 *                  dimensions it computes one product for each leading index, as in attention:
 *                  (N,L,K) times (N,K,M) is (N,L,M); or it multiplies all matrices of one operand
 *                  by the only matrix or vector of the other
 *     where        torch.where: a where the condition is not 0, else b; values that are not chosen,
 *                  even NaN, have no effect. masked_fill: value where the mask is not 0, else x
 *     sum, mean    over dims[0 .. count) (-1: the last one), or with NULL, 0 over all elements. The
 *                  result drops these dimensions, or with keepdim 1 gives them size 1; over all
 *                  elements it has shape (1). Both are computed in double
 *     transpose, permute                 swaps two dimensions; dimension i of the result is
 *                  dimension order[i] of x, for every dimension. Both are views, as narrow is: an
 *                  op that cannot read a view in place makes a copy
 * Shapes are broadcast as in PyTorch, those of matmul in their leading dimensions: compared from
 * the last dimension on, a size of 1 or a missing one fits any size. (N,L,K) + (K), (N,1,K) and
 * (N,L,1) are all (N,L,K). Broadcasting copies the operand, except a matrix or a vector as b of
 * matmul. In a model's forward (struct duet_model) the samples of a batch may be on several
 * devices, so these are refused there: sum and mean of all elements or over dimension 0, moving
 * that dimension, operands of different rank, and matmul with a var of samples that is a matrix or
 * a vector as b. Constants and parameters are not vars of samples and are allowed. */
duet_var *duet_add(duet_tape *tape, duet_var *a, duet_var *b);
duet_var *duet_subtract(duet_tape *tape, duet_var *a, duet_var *b);
duet_var *duet_multiply(duet_tape *tape, duet_var *a, duet_var *b);
duet_var *duet_where(duet_tape *tape, duet_var *condition, duet_var *a, duet_var *b);
duet_var *duet_masked_fill(duet_tape *tape, duet_var *x, duet_var *mask, double value);
duet_var *duet_matmul(duet_tape *tape, duet_var *a, duet_var *b);
/* F.scaled_dot_product_attention of query (N,..,L,E), key (N,..,S,E) and value (N,..,S,Ev):
 * (N,..,L,Ev), softmax(query keyT scale + attn_mask) value. It keeps no (L,S) scores for backward,
 * so its memory grows with L and S, not with their product. options NULL means all defaults.
 *     attn_mask    is added to the scores: (L,S), or with the query's leading dimensions in front,
 *                  some of which may be 1, as (N,1,L,S); L may be 1. It is a constant or a var
 *                  without a gradient; -INFINITY hides a key. A row that hides all keys gives 0
 *     dropout_p    the probability that a weight is dropped, while training
 *     is_causal 1  query i sees keys 0 .. i; only without attn_mask
 *     scale        0: 1 / sqrt(E) */
struct duet_attention_options {
    duet_var *attn_mask;
    double dropout_p;
    int is_causal;
    double scale;
};
duet_var *duet_scaled_dot_product_attention(duet_tape *tape, duet_var *query, duet_var *key,
                                            duet_var *value,
                                            const struct duet_attention_options *options);
duet_var *duet_sum(duet_tape *tape, duet_var *x, const int *dims, int count, int keepdim);
duet_var *duet_mean(duet_tape *tape, duet_var *x, const int *dims, int count, int keepdim);
duet_var *duet_transpose(duet_tape *tape, duet_var *x, int dim0, int dim1);
duet_var *duet_permute(duet_tape *tape, duet_var *x, const int *order);

/* The losses. cross_entropy takes scores (N,M), nll_loss the result of log_softmax. labels are
 * int32 (N), each 0 .. M-1. Any other label is DUET_USAGE, "Target 5 is out of bounds"; on
 * asynchronous devices ("cpu-async", "cpu-late", "cuda") the loss of that sample is NaN instead.
 * The value of the var is the loss of each sample, double (N). The reduction says where backward
 * starts: from the mean over the samples of this pass, from their sum, or, with DUET_NONE, from the
 * gradient that you pass to duet_backward. With scores (N,C,d1,...) and labels (N,d1,...) each
 * position has a loss, and the mean is over all positions; duet_loss_read then takes the mean over
 * a sample's positions.
 *
 * options NULL means all defaults.
 *     weight       float (M), borrowed until the pass ends: the weight of each class
 *     ignores 1    rows whose label is ignore_index, which need not be a class, have loss 0 and no
 *                  gradient; 0: the same for the label DUET_IGNORED, PyTorch's default. With
 *                  DUET_MEAN and no weights, an asynchronous device needs ignores 1: otherwise the
 *                  loss is NaN
 *     label_smoothing      the part of each target, 0 to 1, that is spread evenly over all classes;
 *                  only in cross_entropy
 * With weights or ignored labels DUET_MEAN is PyTorch's: the sum of the losses of this pass divided
 * by the sum of its labels' weights. If all labels are ignored, it is NaN and the gradients are 0.
 * duet_loss_read returns this mean times the samples. A rank of DDP knows only its own labels, so
 * the ranks' means are averaged, as in PyTorch. To divide by the labels of all ranks, use DUET_SUM
 * and scale its gradient. */
enum duet_reduction {
    DUET_MEAN,
    DUET_SUM,
    DUET_NONE,
    /* only for process groups, which also accept MEAN and SUM */
    DUET_PRODUCT,
    DUET_MIN,
    DUET_MAX
};
enum { DUET_IGNORED = -100 };
struct duet_loss_options {
    const duet_tensor *weight; /* NULL: every class has weight 1 */
    int ignores, ignore_index;
    double label_smoothing;
};
duet_var *duet_cross_entropy(duet_tape *tape, duet_var *scores, const duet_tensor *labels,
                             enum duet_reduction r, const struct duet_loss_options *options);
duet_var *duet_nll_loss(duet_tape *tape, duet_var *log_probabilities, const duet_tensor *labels,
                        enum duet_reduction r, const struct duet_loss_options *options);
/* targets are float, with the shape of x (N,M). A sample's loss is the mean over its elements of:
 *     mse_loss         (x - target)^2
 *     smooth_l1_loss   (x - target)^2 / 2 where |x - target| < 1, else |x - target| - 1/2
 *     binary_cross_entropy_with_logits      log(1 + e^x) - x target, for targets 0 to 1 */
duet_var *duet_mse_loss(duet_tape *tape, duet_var *x, const duet_tensor *targets,
                        enum duet_reduction r);
duet_var *duet_smooth_l1_loss(duet_tape *tape, duet_var *x, const duet_tensor *targets,
                              enum duet_reduction r);
duet_var *duet_binary_cross_entropy_with_logits(duet_tape *tape, duet_var *x,
                                                const duet_tensor *targets, enum duet_reduction r);

#ifdef __cplusplus
}
#endif
#endif
