/* The rows of test_refused.c: REFUSED(MESSAGE, CALL). The inputs of a pass with 5 samples are x2
 * (5,6), x3 (5,3,4) and x4 (5,2,9,9); rows7 is a leaf (7,6), and index has int32 (5). The
 * parameters are TABLE (4,3), BIAS (4), CONV (3,2,3,3), W_IH (20,3), W_HH (20,5), GATES (20). */
// clang-format off

/* ---- shapes and dimensions ---- */

REFUSED("mat1 and mat2 shapes cannot be multiplied", duet_matmul(t, x2, x2))
REFUSED("matmul: (4) times (5, 12) would sum over the samples",
        duet_matmul(t, P(BIAS), duet_flatten(t, x3)))
REFUSED("expected to be in range of [-2, 1]", duet_sum(t, x2, I(2), 1, 0))
REFUSED("expected to be in range of [-2, 1]", duet_mean(t, x2, I(-3), 1, 0))
REFUSED("dim 0 appears multiple", duet_mean(t, x3, I(0, 1, -3), 3, 0))
REFUSED("sum: 0 dimensions", duet_sum(t, x3, NULL, 1, 0))
REFUSED("sum: -1 dimensions", duet_sum(t, x3, I(1, 1), -1, 0))
REFUSED("no order", duet_permute(t, x3, NULL))
REFUSED("dim 0 appears multiple", duet_permute(t, x3, I(0, 1, -3)))
REFUSED("expected to be in range of [-3, 2]", duet_transpose(t, x3, 0, 3))
REFUSED("expected to be in range of [-3, 2]", duet_transpose(t, x3, INT32_MIN, 0))
REFUSED("reshape: ", duet_reshape(t, x2, 2, I(5, 7)))
REFUSED("reshape: ", duet_reshape(t, x2, 3, I(5, -1, -1)))
REFUSED("reshape: ", duet_reshape(t, x2, 2, I(6, 5)))
REFUSED("reshape: ", duet_reshape(t, x2, 2, NULL))
REFUSED("reshape: ", duet_reshape(t, x2, 1, I(-1)))
REFUSED("reshape: ", duet_reshape(t, x2, 5, I(-1, 1, 2, 3, 0)))
REFUSED("reshape: ", duet_reshape(t, x2, 4, I(-1, -1, -3, 2)))
REFUSED("reshape: ", duet_reshape(t, x2, 2, I(-1, 0)))
REFUSED("reshape: ", duet_reshape(t, x2, 3, I(-1, 1 << 30, 1 << 30)))
REFUSED("start (4) + length (3) exceeds", duet_narrow(t, x2, 1, 4, 3))
REFUSED("exceeds dimension", duet_narrow(t, x2, 1, INT32_MAX, INT32_MAX))
REFUSED("dimension 0 is that of the samples", duet_narrow(t, x2, 0, 0, 1))
REFUSED("give an array of 1 to 64", duet_cat(t, NULL, 2, 1))
REFUSED("expected to be in range of [-2, 1]", duet_cat(t, VARS(x2, x2), 2, 2))
REFUSED("Expected size 5 but got size 7", duet_cat(t, VARS(x2, rows7), 2, 1))
REFUSED("(6) must match the size of tensor b (5) at non-singleton dimension 1",
        duet_add(t, x2, duet_narrow(t, x2, 1, 0, 5)))
REFUSED("must match the size of tensor b", duet_subtract(t, x2, x4))
REFUSED("must match the size of tensor b", duet_multiply(t, x2, duet_narrow(t, x2, 1, 0, 5)))
REFUSED("dimension 0 is that of the samples", tape_argsort(t, x2, 0, 0))
REFUSED("expected to be in range of [-2, 1]", tape_argsort(t, x2, 2, 0))
REFUSED("expand it first", tape_argsort(t, P(TABLE), 1, 0))
REFUSED("dimension 0 is that of", tape_take_along_dim(t, x2, x2, 0))
REFUSED("no tensor has samples", tape_take_along_dim(t, P(TABLE), P(TABLE), 1))
REFUSED("give both the same number of dimensions", tape_take_along_dim(t, x3, x2, 1))
REFUSED("2 indices for 6 numbers", tape_scatter_add(t, duet_narrow(t, x2, 1, 0, 2), x2, 1, 4))
REFUSED("at least one of each", tape_scatter_add(t, x2, x2, 1, 0))

/* ---- numbers ---- */

REFUSED("min 1 above max -1", duet_clamp(t, x2, 1, -1))
REFUSED("min nan above max 1", duet_clamp(t, x2, NAN, 1))
REFUSED("either none or tanh", duet_gelu(t, x2, (enum duet_gelu)2))
REFUSED("pow: an exponent of -1e+39", duet_pow(t, x2, -1e39))
REFUSED("must be a finite float", duet_pow(t, x2, NAN))
REFUSED("by 0: must be a finite float", tape_function(t, x2, ACTIVATION_FMOD, 0))
REFUSED("must begin with -1 or the 5 samples", tape_random(t, 2, I(3, 4), RANDOM_UNIFORM))
REFUSED("a dimension of 0", tape_random(t, 2, I(-1, 0), RANDOM_NORMAL))
REFUSED("at most 2^31 - 1", tape_random(t, 3, I(-1, 1 << 20, 1 << 20), RANDOM_NORMAL))
REFUSED("between 0 and 1, but got 1.5", duet_dropout(t, x2, 1.5))
REFUSED("between 0 and 1, but got nan", duet_dropout(t, x2, NAN))
REFUSED("7 rows, the pass 5 samples", duet_dropout(t, rows7, .5))
REFUSED("dropout2d: an input of (5, 6)", duet_dropout2d(t, x2, 0.5))
REFUSED("between 0 and 1, but got 1.5", duet_dropout2d(t, x4, 1.5))

/* ---- layers ---- */

REFUSED("7 rows, the pass 5 samples", duet_linear(t, rows7, TABLE, DUET_NO_BIAS))
REFUSED("linear table: takes 3 inputs", duet_linear(t, x2, TABLE, BIAS))
REFUSED("(4): must have 2", duet_linear(t, x3, BIAS, DUET_NO_BIAS))
REFUSED("linear: parameter 6", duet_linear(t, x2, PARAMS, DUET_NO_BIAS))
REFUSED("linear table: takes 4 inputs", duet_matmul_add(t, x2, TABLE, BIAS))
REFUSED("is on cpu(1)", duet_leaf(t, elsewhere))
REFUSED("begun with 6 parameters", duet_embedding(t, index, PARAMS, -1))
REFUSED("no index was given", duet_embedding(t, NULL, TABLE, -1))
REFUSED("must be int32", duet_embedding(t, floats, TABLE, -1))
REFUSED("is on cpu(1)", duet_embedding(t, index_elsewhere, TABLE, -1))
REFUSED("indices of (4) for 5 samples", duet_embedding(t, few, TABLE, -1))
REFUSED("must be a table of 2", duet_embedding(t, index, BIAS, -1))
REFUSED("conv2d conv: 3x3 of 2 channels",
        duet_conv2d(t, duet_cat(t, VARS(x4, x4), 2, 1), CONV, DUET_NO_BIAS, NULL))
REFUSED("stride -1", duet_conv2d(t, x4, CONV, DUET_NO_BIAS, HOW(.stride = {1, -1})))
REFUSED("padding -1", duet_conv2d(t, x4, CONV, DUET_NO_BIAS, HOW(.padding = {-1})))
REFUSED("padding 2147483647",
        duet_conv2d(t, x4, CONV, DUET_NO_BIAS, HOW(.padding = {INT_MAX, INT_MAX})))
REFUSED("at most 2^31 - 1",
        duet_conv2d(t, x4, CONV, DUET_NO_BIAS, HOW(.padding = {1 << 20, 1 << 20})))
REFUSED("stride -2147483648",
        duet_conv2d(t, x4, CONV, DUET_NO_BIAS, HOW(.stride = {INT_MIN, INT_MIN})))
REFUSED("padding 2147483647", duet_max_pool2d(t, x4, 2, POOL(.padding = {INT_MAX, INT_MAX})))
REFUSED("size 2147483647", duet_avg_pool2d(t, x4, 2, POOL(.width = INT_MAX)))
REFUSED("right 2147483647", duet_pad2d(t, x4, 0, INT_MAX, 0, INT_MAX, 0))
REFUSED("value inf", duet_pad2d(t, x4, 0, 0, 0, 0, INFINITY))
REFUSED("an input of (5, 162)", duet_conv2d(t, duet_flatten(t, x4), CONV, DUET_NO_BIAS, NULL))
REFUSED("conv2d: parameter 6", duet_conv2d(t, x4, CONV, PARAMS, NULL))
REFUSED("operand b is (20)", duet_conv2d(t, x4, CONV, GATES, NULL))
REFUSED("pooling: size 10", duet_max_pool2d(t, x4, 10, POOL(.stride = {1, 1})))
REFUSED("stride -1", duet_avg_pool2d(t, x4, 2, POOL(.stride = {1, -1})))
REFUSED("an input of (5, 162)", duet_max_pool2d(t, duet_flatten(t, x4), 1, NULL))
REFUSED("height 0: give 1 to", duet_adaptive_avg_pool2d(t, x4, 0, 1))
REFUSED("does not fit an input of (5, 6)", duet_adaptive_avg_pool2d(t, x2, 1, 1))
REFUSED("Given normalized_shape=[5], expected input with shape [N, ..., 5], but got input of size "
        "[5, 3, 4]", duet_layer_norm(t, x3, 1, I(5), BIAS, BIAS, 1e-5))
REFUSED("normalized_shape", duet_layer_norm(t, x3, 1, NULL, BIAS, BIAS, 1e-5))
REFUSED("normalized_shape", duet_layer_norm(t, x3, 0, I(4), BIAS, BIAS, 1e-5))
REFUSED("normalized", duet_layer_norm(t, x3, 1 << 30, I(4), BIAS, BIAS, 0))
REFUSED("begun with 6", duet_layer_norm(t, x3, 1, I(4), 7, BIAS, 1e-5))
REFUSED("without a weight", duet_layer_norm(t, x3, 1, I(4), DUET_NO_WEIGHT, BIAS, 1e-5))
REFUSED("eps -1", duet_layer_norm(t, x3, 1, I(4), BIAS, BIAS, -1))
REFUSED("divisible by num_groups", duet_group_norm(t, x3, 2, BIAS, BIAS, 1e-5))
REFUSED("divisible by num_groups", duet_group_norm(t, x3, 0, BIAS, BIAS, 1e-5))
REFUSED("from the 3 channels", duet_group_norm(t, x3, 3, BIAS, BIAS, 1e-5))
REFUSED("4 channels do not suit an input of (5, 2, 9, 9)",
        duet_batch_norm(t, x4, BIAS, BIAS, DUET_NO_BUFFERS, 1e-5, 0.1, 0))
REFUSED("each number of the state", recurrent(t, steps, DUET_GRU, W_HH, NULL, NULL))
REFUSED("does not exist",
        recurrent(t, steps, (enum duet_recurrent_kind)7, W_HH, NULL, NULL))
REFUSED("must have 2 dimensions", recurrent(t, steps, DUET_LSTM, GATES, NULL, NULL))
REFUSED("must be (N, steps", recurrent(t, x2, DUET_LSTM, W_HH, NULL, NULL))
REFUSED("an LSTM takes h and c", recurrent(t, steps, DUET_LSTM, W_HH, x2, NULL))
REFUSED("must be (5, 5)", recurrent(t, steps, DUET_LSTM, W_HH, x2, x2))

/* ---- losses; index is -1 ---- */

REFUSED("labels of (4) for scores of (5, ", CROSS_ENTROPY(x2, few, NULL))
REFUSED("Target -1 is out of bounds: give labels 0 to 5, or set ignore_index",
        CROSS_ENTROPY(x2, index, NULL))
REFUSED("Target -1 is out of bounds",
        CROSS_ENTROPY(x2, index, OPTIONS(.ignores = 1, .ignore_index = 2)))
REFUSED("label_smoothing must be between 0.0 and 1.0. Got: 1.5",
        CROSS_ENTROPY(x2, index, OPTIONS(.label_smoothing = 1.5)))
REFUSED("weight of (5, 6) for scores of (5, 6): give one for each of 6 classes",
        CROSS_ENTROPY(x2, index, OPTIONS(.weight = floats)))
REFUSED("weight", CROSS_ENTROPY(x2, index, OPTIONS(.weight = index)))
// clang-format on
