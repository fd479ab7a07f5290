/* The table of ops. A row has an op's operands, the relations of their shapes, and the flops of a
 * launch. No other code states this: op_check.c checks operands with the table, and op_letters.c
 * counts flops. The bytes of a launch are those of its operands (scheduled.c).
 *
 * An operand is its name, its type and its shape. Types: f F32, d F64, i I32, l I64, u U64, b U8, w
 * F32 or I32; with n it may be in N16 (tensor.h), and then all operands with an n do; with ? it may
 * be left out; with s it may be strided (tensor.h), and two strided outputs may be parts of one
 * tensor; with = it may be the same memory as out[0]. Outputs are overwritten, not added to, and
 * overlap no input, unless `=` or a note says otherwise. If activations are in N16, weights, biases
 * and their gradients stay PLAIN.
 *
 * In a shape each letter is a symbolic dimension, the same number in all operands of the row. A
 * digit is itself, a dot stands for any further dimensions, the same in all operands, and a
 * question mark for any shape. `MK|KM` is (M,K), or (K,M) if `transposed` is set. N are samples, C
 * channels, H x W pixels, O output channels, P x Q output pixels, K inputs and M outputs of a
 * linear layer. A `rule` checks settings and relations that letters cannot express.
 *
 * Flops are a number times the dimensions after it. A multiply-add counts 2, a root or a quotient
 * 1, a move of data 0. If they depend on settings, `cost` counts them.
 *
 * `step`: the op always reads the step block. `segment`: one segment per launch, since the op sums
 * over samples or needs a sample's index in its segment. */
#include "device/op_table.h"

// clang-format off
const struct op_row op_table[OP_COUNT] = {
    /* Changes of layout. TO_N16 writes zeros into the lanes past the last sample. */
    [OP_TO_N16] = {LAYOUT, .in = {{"x", "fs", "."}}, .out = {{"y", "fn", "."}}, .segment = 1,
        .rule = rule_to_n16},
    [OP_TO_PLAIN] = {LAYOUT, .in = {{"x", "fn", "."}}, .out = {{"y", "fs", "."}}, .segment = 1,
        .rule = rule_to_plain},

    /* C = G times the number of groups, which also divides O. Flops: one multiply-add for each
     * output pixel and each weight that contributes to it, since the forward pass and both
     * gradients consist of the same products. */
    [OP_CONV2D_FORWARD] = {PRODUCT,
        .in = {{"x", "fn", "NCHW"}, {"w", "f", "OGKL"}, {"b", "f", "O"}},
        .out = {{"y", "fn", "NOPQ"}}, .rule = rule_conv, .flops = "2 NOPQGKL"},
    [OP_CONV2D_BACKWARD_DATA] = {PRODUCT, .in = {{"dy", "fn", "NOPQ"}, {"w", "f", "OGKL"}},
        .out = {{"dx", "fn", "NCHW"}}, .rule = rule_conv, .flops = "2 NOPQGKL"},
    [OP_CONV2D_BACKWARD_WEIGHT] = {PRODUCT, .in = {{"x", "fn", "NCHW"}, {"dy", "fn", "NOPQ"}},
        .out = {{"dw", "f", "OGKL"}, {"db", "f", "O"}}, .segment = 1, .rule = rule_conv,
        .flops = "2 NOPQGKL"},

    /* With weight_is_in_out w is (K,M). In N16, x (N,K) is stored as [group][K][16]. */
    [OP_LINEAR_FORWARD] = {PRODUCT, .in = {{"x", "fn", "NK"}, {"w", "f", "MK|KM"}, {"b", "f", "M"}},
        .out = {{"y", "fn", "NM"}}, .transposed = transposed_linear, .flops = "2 NKM"},
    [OP_LINEAR_BACKWARD_DATA] = {PRODUCT, .in = {{"dy", "fn", "NM"}, {"w", "f", "MK|KM"}},
        .out = {{"dx", "fn", "NK"}}, .transposed = transposed_linear, .flops = "2 NKM"},
    [OP_LINEAR_BACKWARD_WEIGHT] = {PRODUCT, .in = {{"x", "fn", "NK"}, {"dy", "fn", "NM"}},
        .out = {{"dw", "f", "MK|KM"}, {"db", "f", "M"}}, .segment = 1,
        .transposed = transposed_linear,
        .flops = "2 NKM"},

    [OP_ADD_FORWARD] = {POINTWISE, .in = {{"a", "fn=", "."}, {"b", "fn", "."}},
        .out = {{"y", "fn", "."}}, .flops = "1 ."},
    [OP_SUBTRACT_FORWARD] = {POINTWISE, .in = {{"a", "fn", "."}, {"b", "fn", "."}},
        .out = {{"y", "fn", "."}}, .flops = "1 ."},
    [OP_MULTIPLY_FORWARD] = {POINTWISE, .in = {{"a", "fn", "."}, {"b", "fn", "."}},
        .out = {{"y", "fn", "."}}, .flops = "1 ."},

    /* y = c is not 0 ? a : b. A missing operand is p.fill.value everywhere, so the gradients are
     * the op itself on dy, with 0 for the other operand. */
    [OP_WHERE] = {POINTWISE, .in = {{"c", "f", "."}, {"a", "f?", "."}, {"b", "f?", "."}},
        .out = {{"y", "f", "."}}, .flops = "1 ."},

    /* One of the functions of activation.h; some take only PLAIN, and some use y in place of x in
     * backward. */
    [OP_ACTIVATION_FORWARD] = {POINTWISE, .in = {{"x", "fn=", "."}}, .out = {{"y", "fn", "."}},
        .rule = rule_activation, .cost = cost_activation},
    [OP_ACTIVATION_BACKWARD] = {POINTWISE, .in = {{"x", "fn", "."}, {"dy", "fn=", "."}},
        .out = {{"dx", "fn", "."}}, .rule = rule_activation, .cost = cost_activation},

    /* Pools have no padding: P = (H - size) / stride + 1, Q likewise. With p.pool.relu they pool
     * the relu of x, and gradients pass through both, with the bits of the two ops: then the
     * gradient of AVG_POOL needs x. In MAX_POOL the first of equal maxima gets dy. */
    [OP_AVG_POOL_FORWARD] = {PICTURE, .in = {{"x", "fn", "NCHW"}}, .out = {{"y", "fn", "NCPQ"}},
        .rule = rule_pool, .cost = cost_pool},
    [OP_AVG_POOL_BACKWARD] = {PICTURE, .in = {{"dy", "fn", "NCPQ"}, {"x", "fn?", "NCHW"}},
        .out = {{"dx", "fn", "NCHW"}}, .rule = rule_pool, .cost = cost_pool},
    [OP_MAX_POOL_FORWARD] = {PICTURE, .in = {{"x", "fn", "NCHW"}}, .out = {{"y", "fn", "NCPQ"}},
        .rule = rule_pool, .cost = cost_pool},
    [OP_MAX_POOL_BACKWARD] = {PICTURE, .in = {{"x", "fn", "NCHW"}, {"dy", "fn", "NCPQ"}},
        .out = {{"dx", "fn", "NCHW"}}, .rule = rule_pool, .cost = cost_pool},

    /* Row p of y is the mean of the rows floor(p H / P) to ceil((p+1) H / P) - 1 of x, columns
     * likewise. So windows may overlap, and P and Q may be any number from 1. Flops are those of
     * adjacent windows: one addition per pixel. */
    [OP_ADAPTIVE_AVG_POOL_FORWARD] = {PICTURE, .in = {{"x", "fn", "NCHW"}},
        .out = {{"y", "fn", "NCPQ"}}, .flops = "1 NCHW"},
    [OP_ADAPTIVE_AVG_POOL_BACKWARD] = {PICTURE, .in = {{"dy", "fn", "NCPQ"}},
        .out = {{"dx", "fn", "NCHW"}}, .flops = "1 NCHW"},

    /* y[h][w] is x[h - top][w - left], or p.pad.value where x has no such pixel. So negative sides
     * crop, and the gradient of a pad is the pad with -top, -left and value 0. */
    [OP_PAD] = {PICTURE, .in = {{"x", "fn", "NCHW"}}, .out = {{"y", "fn", "NCPQ"}},
        .rule = rule_pad},

    /* S = K + L: y[n][o] is a[n][o] followed by b[n][o]; pads crop their gradients out of dy. */
    [OP_CAT] = {PICTURE, .in = {{"a", "fn", "NOKI"}, {"b", "fn", "NOLI"}},
        .out = {{"y", "fn", "NOSI"}}, .rule = rule_cat},

    /* Backward is the same op on dy: it recomputes the mask of the forward pass. */
    [OP_DROPOUT] = {POINTWISE, .in = {{"x", "fn=", "."}}, .out = {{"y", "fn", "."}},
        .step = 1, .segment = 1, .rule = rule_dropout, .flops = "1 ."},

    /* Random numbers, for each element of the segment. Flops: a logarithm, a root and a sine. */
    [OP_RANDOM] = {POINTWISE, .out = {{"y", "f", "."}},
        .step = 1, .segment = 1, .rule = rule_dropout, .flops = "4 ."},

    /* Flops: max, subtract, exp, add, subtract; backward: multiply, add, subtract, multiply;
     * backward of the logarithm: add, exp, multiply, subtract. */
    [OP_SOFTMAX_FORWARD] = {LOSS, .in = {{"x", "f", "NM"}}, .out = {{"y", "f", "NM"}},
        .flops = "5 NM"},
    [OP_SOFTMAX_BACKWARD] = {LOSS, .in = {{"y", "f", "NM"}, {"dy", "f", "NM"}},
        .out = {{"dx", "f", "NM"}}, .flops = "4 NM"},

    /* hits is 1 if the largest score is the label's (the first of equals), else 0. In MSE the loss
     * of a row is the mean of its distances (enum distance), and hits are 0. w: weights of the
     * classes; without them all are 1. dloss: enum reduction. */
    [OP_CROSS_ENTROPY_FORWARD] = {LOSS,
        .in = {{"x", "f", "NM"}, {"labels", "i", "N"}, [3] = {"w", "f?", "M"}},
        .out = {{"loss", "d", "N"}, {"hits", "i", "N"}}, .rule = rule_loss_forward,
        .cost = cost_cross_entropy},
    [OP_CROSS_ENTROPY_BACKWARD] = {LOSS, 
        .in = {{"x", "f", "NM"}, {"labels", "i", "N"}, {"dloss", "f?", "N"}, {"w", "f?", "M"}},
        .out = {{"dx", "f", "NM"}}, .rule = rule_loss_backward, .cost = cost_cross_entropy},
    [OP_MSE_FORWARD] = {LOSS, .in = {{"x", "f", "NM"}, {"targets", "f", "NM"}},
        .out = {{"loss", "d", "N"}, {"hits", "i", "N"}}, .rule = rule_loss_forward,
        .flops = "3 NM"},
    [OP_MSE_BACKWARD] = {LOSS,
        .in = {{"x", "f", "NM"}, {"targets", "f", "NM"}, {"dloss", "f?", "N"}},
        .out = {{"dx", "f", "NM"}}, .rule = rule_loss_backward, .flops = "3 NM"},

    /* Writes one number into logs of R rows: row step->row, column p.loss.column. */
    [OP_LOSS_SUM] = {LOG, .in = {{"loss", "d", "N"}, {"hits", "i", "N"}},
        .out = {{"losses", "d", "RS"}, {"hits", "l", "RS"}}, .step = 1, .rule = rule_column,
        .flops = "1 N"},

    /* host/kernels/reference_norm.c says what the rows of moments, parts, sums and factors hold.
     * running: mean and variance of each channel; TRACK updates it, counts the batch and needs a
     * count of 2 at least. MERGE and TOTAL go in the order of S. FORWARD adds the residual and
     * with p.norm.relu takes the relu, each rounded as by ADD_FORWARD and a relu. */
    [OP_BATCH_NORM_MOMENTS] = {NORM, .in = {{"x", "fn", "NC."}}, .out = {{"moments", "d", "3C"}},
        .segment = 1, .flops = "4 NC."},
    [OP_BATCH_NORM_MERGE] = {NORM, .in = {{"parts", "d", "S3C"}}, .out = {{"moments", "d", "3C"}}},
    [OP_BATCH_NORM_OF_RUNNING] = {NORM, .in = {{"running", "f", "2C"}},
        .out = {{"moments", "d", "3C"}}},
    [OP_BATCH_NORM_TRACK] = {NORM, .in = {{"moments", "d", "3C"}},
        .out = {{"running", "f", "2C"}, {"batches", "l", "1"}}},
    [OP_BATCH_NORM_FACTORS] = {NORM,
        .in = {{"moments", "d", "3C"}, {"w", "f", "C"}, {"b", "f", "C"}},
        .out = {{"factors", "f", "2C"}}},
    [OP_BATCH_NORM_FORWARD] = {NORM, 
        .in = {{"x", "fn=", "NC."}, {"factors", "f", "2C"}, {"residual", "fn?", "NC."}},
        .out = {{"y", "fn", "NC."}}, .segment = 1, .flops = "2 NC."},
    [OP_BATCH_NORM_SUMS] = {NORM,
        .in = {{"x", "fn", "NC."}, {"dy", "fn", "NC."}, {"moments", "d", "3C"}},
        .out = {{"sums", "d", "2C"}}, .segment = 1, .flops = "4 NC."},
    [OP_BATCH_NORM_TOTAL] = {NORM, .in = {{"sums", "d", "S2C"}}, .out = {{"total", "d", "2C"}}},
    [OP_BATCH_NORM_BACKWARD_WEIGHT] = {NORM, .in = {{"sums", "d", "2C"}, {"moments", "d", "3C"}},
        .out = {{"dw", "f", "C"}, {"db", "f", "C"}}},
    [OP_BATCH_NORM_BACKWARD_FACTORS] = {NORM, 
        .in = {{"sums", "d", "2C"}, {"moments", "d", "3C"}, {"w", "f", "C"}},
        .out = {{"factors", "f", "4C"}}},
    [OP_BATCH_NORM_BACKWARD_DATA] = {NORM, 
        .in = {{"x", "fn", "NC."}, {"dy", "fn=", "NC."}, {"factors", "f", "4C"}},
        .out = {{"dx", "fn", "NC."}}, .segment = 1, .flops = "5 NC."},

    /* y = value */
    [OP_FILL] = {POINTWISE, .out = {{"y", "fn", "."}}},

    /* Clipping by the norm of all gradients. A row of pieces holds a piece's first element and its
     * length; the squares of a piece are summed in double in the order of clip.h, so the sums do
     * not depend on the piece's address. CLIP adds them up in order and multiplies y by clip_factor
     * of the total. */
    [OP_SQUARE_SUMS] = {LOG, .in = {{"grads", "f", "N"}, {"pieces", "i", "P2"}},
        .out = {{"sums", "d", "P"}}, .flops = "2 N"},
    [OP_CLIP] = {POINTWISE, .in = {{"sums", "d", "P"}}, .out = {{"y", "f", "."}},
        .rule = rule_clip, .flops = "1 ."},

    /* The optimizers. moments: two running means of each of the n elements side by side, zero
     * before the first update. ADADELTA keeps those of g^2 and d^2, d being the change before the
     * learning rate; ADAM, also used for AdamW, those of g and g^2. */
    [OP_SGD] = {POINTWISE, .in = {{"grad", "f", "."}},
        .out = {{"value", "f", "."}, {"momentum", "f?", "."}}, .step = 1, .rule = rule_sgd,
        .cost = cost_sgd},
    [OP_ADADELTA] = {POINTWISE, .in = {{"grad", "f", "."}},
        .out = {{"value", "f", "."}, {"moments", "f", "n2"}}, .step = 1, .rule = rule_two_moments,
        .cost = cost_adadelta},
    [OP_ADAM] = {POINTWISE, .in = {{"grad", "f", "."}},
        .out = {{"value", "f", "."}, {"moments", "f", "n2"}}, .step = 1, .rule = rule_two_moments,
        .cost = cost_adam},

    /* Writes one number into a log of R rows: row step->row, column p.hash.column. */
    [OP_HASH] = {LOG, .in = {{"x", "f", "."}}, .out = {{"hashes", "u", "RS"}}, .step = 1,
        .rule = rule_column},

    /* Row n of y is row index[n] of x; of an index outside 0..R-1 it is NaN. */
    [OP_GATHER_ROWS] = {ALONG, .in = {{"x", "f", "R."}, {"index", "i", "N"}},
        .out = {{"y", "f", "N."}}},

    /* B products. With turn_a each a is stored as (K,I), with turn_b each b as (J,K); both at
     * once are refused, since no gradient needs them. */
    [OP_MATMUL] = {ALGEBRA, .in = {{"a", "f", "BIK|BKI"}, {"b", "f", "BKJ|BJK"}},
        .out = {{"y", "f", "BIJ"}}, .transposed = transposed_matmul, .rule = rule_matmul,
        .flops = "2 BIJK"},

    /* y[o][i] is the sum, in double, of x[o][..][i] over p.sum.divide: 1 for a sum, L for a mean.
     * SPREAD is its gradient: every x[o][..][i] gets dy[o][i] / p.sum.divide, in float. */
    [OP_SUM] = {ALGEBRA, .in = {{"x", "f", "OLI"}}, .out = {{"y", "f", "OI"}}, .rule = rule_sum,
        .flops = "1 OLI"},
    [OP_SPREAD] = {ALGEBRA, .in = {{"dy", "f", "OI"}}, .out = {{"dx", "f", "OLI"}},
        .rule = rule_sum, .flops = "1 OLI"},

    /* y = x, element by element; memory between the elements of a strided y does not change. The
     * elements of y must not share memory. */
    [OP_PERMUTE] = {ALGEBRA, .in = {{"x", "fs", "."}}, .out = {{"y", "fs", "."}}},

    /* Converts numbers to indices: -1 if a number is not an integer or is outside int32. */
    [OP_TO_INDEX] = {ALGEBRA, .in = {{"x", "f", "."}}, .out = {{"y", "i", "."}}},

    /* Row r of dw is the sum of the rows of dy whose index is r, in the order of N, and 0 if there
     * are none, or if p.embedding.left_out is r + 1. An index outside 0..R-1 adds nothing. */
    [OP_EMBEDDING_BACKWARD] = {ALGEBRA, .in = {{"dy", "f", "ND"}, {"index", "i", "N"}},
        .out = {{"dw", "f", "RD"}}, .flops = "1 ND"},

    /* y[o][k][i] = x[o][index[o][k][i]][i] if J is I; if J is 1, one index serves all i. ADD_ALONG
     * is its gradient: dx[o][c][i] is the sum of those dy[o][k][i] whose index is c, in the order
     * of k, and 0 if there are none. Indices are integers in float; for one outside of C, y is NaN,
     * and nothing is added. */
    [OP_TAKE_ALONG] = {ALONG, .in = {{"x", "f", "OCI"}, {"index", "f", "OKJ"}},
        .out = {{"y", "f", "OKI"}}, .rule = rule_along},
    [OP_ADD_ALONG] = {ALONG, .in = {{"dy", "f", "OKI"}, {"index", "f", "OKJ"}},
        .out = {{"dx", "f", "OCI"}}, .rule = rule_along, .flops = "1 OKI"},
    /* y[o][k][i] is the index c of the x[o][c][i] that has rank k in the order of sort_order.h. */
    [OP_ARGSORT] = {ALONG, .in = {{"x", "f", "OCI"}}, .out = {{"y", "f", "OCI"}},
        .rule = rule_argsort},

    /* y = (x - mean) / sqrt(var + epsilon) w + b, each row of x by itself, in double; moments
     * are the mean and 1 / sqrt(var + epsilon) of each row. A missing w counts as 1, a missing b as
     * 0. Row r is group r % groups of a sample, and `inner` neighbours share a weight: element i
     * has weight (r % groups) L / inner + i / inner of K. LayerNorm has groups and inner of 1;
     * others are GroupNorm. */
    [OP_LAYER_NORM_FORWARD] = {LAYER_NORM,
        .in = {{"x", "f", "RL"}, {"w", "f?", "K"}, {"b", "f?", "K"}},
        .out = {{"y", "f", "RL"}, {"moments", "d", "R2"}}, .rule = rule_layer_norm,
        .flops = "8 RL"},
    [OP_LAYER_NORM_BACKWARD_DATA] = {LAYER_NORM,
        .in = {{"x", "f", "RL"}, {"dy", "f", "RL"}, {"w", "f?", "K"}}, .out = {{"dx", "f", "RL"}},
        .rule = rule_layer_norm, .flops = "16 RL"},
    [OP_LAYER_NORM_BACKWARD_WEIGHT] = {LAYER_NORM, 
        .in = {{"x", "f", "RL"}, {"dy", "f", "RL"}, {"moments", "d", "R2"}},
        .out = {{"dw", "f", "K"}, {"db", "f", "K"}}, .rule = rule_layer_norm, .flops = "5 RL"},

    /* A recurrent layer over L steps. gates are x W_ih^T + b_ih of all steps, w is W_hh, and the
     * initial states are h and, in an LSTM, c (zeros if not given). A step saves rows of H in
     * `saved` for backward:
     *
     *     LSTM   the four gates, c before the step, tanh(c) after it          G = 4H, T = 6H
     *     GRU    the three gates, (h W^T + b) of the new gate, h before it    G = 3H, T = 5H
     *     TANH, RELU   nothing: backward takes y for it                       G = H,  T = H
     *
     * last: c after the last step, only in an LSTM. dgates is the gradient of gates. That of h W^T
     * + b is the same, except in a GRU, where it is dhidden. */
    [OP_RECURRENT_FORWARD] = {RECURRENT,
        .in = {{"gates", "f", "NLG"}, {"w", "f", "GH"}, {"b", "f?", "G"}, {"first", "f?", "NSH"}},
        .out = {{"y", "f", "NLH"}, {"saved", "f?", "NLT"}, {"last", "f?", "NH"}},
        .rule = rule_recurrent, .flops = "2 NLGH"},
    [OP_RECURRENT_BACKWARD] = {RECURRENT,
        .in = {{"dy", "f", "NLH"}, {"saved", "f", "NLT"}, {"w", "f", "GH"}, {"dlast", "f?", "NH"}},
        .out = {{"dgates", "f", "NLG"}, {"dfirst", "f", "NSH"}, {"dhidden", "f?", "NLG"}},
        .rule = rule_recurrent, .flops = "2 NLGH"},
    /* Scaled dot product attention: y = dropout(softmax(scale q kT + mask)) v, for H matrices of
     * each of N samples. Rows may have gaps between them, elements of a row may not. lse: each
     * row's logarithm of the sum of exp(score), from which backward recomputes the weights, so no
     * (L,S) matrix outlives a launch. If all keys of a row are masked, its y, lse and gradients are
     * 0. A mask has one row for all queries, or one for each. */
    [OP_ATTENTION_FORWARD] = {ATTENTION,
        .in = {{"q", "fs", "NHLE"}, {"k", "fs", "NHSE"}, {"v", "fs", "NHSV"},
            {"mask", "f?", "GRS"}},
        .out = {{"y", "fs", "NHLV"}, {"lse", "f", "NHL"}}, .rule = rule_attention,
        .cost = cost_attention},
    [OP_ATTENTION_BACKWARD] = {ATTENTION,
        .in = {{"q", "fs", "NHLE"}, {"k", "fs", "NHSE"}, {"v", "fs", "NHSV"},
            {"mask", "f?", "GRS"}, {"y", "fs", "NHLV"}, {"lse", "f", "NHL"}, {"dy", "fs", "NHLV"}},
        .out = {{"dq", "fs", "NHLE"}, {"dk", "fs", "NHSE"}, {"dv", "fs", "NHSV"}},
        .rule = rule_attention, .cost = cost_attention},
};
// clang-format on
