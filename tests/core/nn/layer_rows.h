/* More rows of test_ops.c (tests/core/nn/op_rows.h): products, sums, convolutions, pools, norms,
 * attention and recurrent layers. */
// clang-format off

/* ---- products and sums ---- */

ROW(weight, duet_matmul(t, x, P(0)), .x = S(3, 4, 5), .w = {S(5, 2)})
ROW(vector, duet_matmul(t, x, P(0)), .x = S(3, 4, 5), .w = {S(5)})
ROW(vector_2d, duet_matmul(t, x, P(0)), .x = S(5, 5), .w = {S(5)})
ROW(vector_4d, duet_matmul(t, x, P(0)), .x = S(3, 2, 4, 5), .w = {S(5)})
ROW(left_vector, duet_matmul(t, P(0), x), .x = S(3, 4, 5), .w = {S(4)})
ROW(left_vector_4d, duet_matmul(t, P(0), x), .x = S(3, 2, 4, 5), .w = {S(4)})
ROW(view, duet_matmul(t, x, duet_reshape(t, P(0), 2, I(5, 2))), .x = S(3, 4, 5), .w = {S(10)})
ROW(view_2d, duet_matmul(t, x, duet_reshape(t, P(0), 2, I(5, 2))), .x = S(5, 5), .w = {S(10)})
ROW(constant_left, duet_matmul(t, k, x), .x = S(3, 4, 5), .c = S(4))
ROW(constant_right, duet_matmul(t, x, k), .x = S(5, 5), .c = S(5))
ROW(mask, duet_matmul(t, duet_add(t, x, k), duet_reshape(t, k, 2, I(5, 4))), .x = S(3, 4, 5),
    .c = S(4, 5))
ROW(product, duet_matmul(t, x, duet_transpose(t, x, 1, 2)), .x = S(3, 4, 8), .is = NO_FACT)
#define PRODUCT(i, X, ...) \
    ROW(matmul_##i, duet_matmul(t, x, b), .x = X, .b = {L(6131, __VA_ARGS__)}, .samples = 2)
PRODUCT(0, S(3, 4), 4, 5)
PRODUCT(1, S(4), 4)
PRODUCT(2, S(3, 4), 4)
PRODUCT(3, S(4), 4, 5)
PRODUCT(4, S(2, 3, 4), 2, 4, 5)
PRODUCT(5, S(2, 3, 4), 4, 5)
PRODUCT(6, S(2, 3, 4), 4)
PRODUCT(7, S(2, 2, 3, 4), 2, 2, 4, 2)
PRODUCT(8, S(3, 4), 2, 4, 5)
PRODUCT(9, S(4), 2, 4, 5)
PRODUCT(10, S(2, 3, 4), 1, 4, 5)
PRODUCT(11, S(1, 3, 4), 2, 4, 5)
PRODUCT(12, S(2, 1, 3, 4), 1, 3, 4, 2)
PRODUCT(13, S(3, 3, 4), 2, 1, 4, 2)
PRODUCT(14, S(2, 3, 4), 2, 2, 4, 2)
PRODUCT(15, S(4), 2, 2, 4, 3)
PRODUCT(16, S(1, 1, 3, 4), 2, 3, 4, 2)
#define SUMS(i, sum, mean, count, dims, keep, ...)                  \
    ROW(sum##_##i, duet_sum(t, x, dims, count, keep), __VA_ARGS__) \
    ROW(mean##_##i, duet_mean(t, x, dims, count, keep), __VA_ARGS__)
SUMS(0, sum, mean, 0, NULL, 0, .x = S(3, 4), .samples = 2)
SUMS(1, sum, mean, 1, I(0), 0, .x = S(3, 4), .samples = 2)
SUMS(2, sum, mean, 1, I(-1), 0, .x = S(3, 4))
SUMS(3, sum, mean, 1, I(1), 0, .x = S(2, 3, 4))
SUMS(4, sum, mean, 1, I(3), 0, .x = S(2, 3, 2, 3))
SUMS(5, sum, mean, 1, I(0), 0, .x = S(5), .samples = 2)
SUMS(0, sums, means, 2, I(0, 2), 0, .x = S(2, 3, 4), .samples = 2)
SUMS(1, sums, means, 2, I(1, 2), 1, .x = S(2, 3, 4))
SUMS(2, sums, means, 2, I(1, -1), 1, .x = S(2, 3, 2, 3))
SUMS(3, sums, means, 0, I(0), 0, .x = S(2, 3, 4), .samples = 2)
SUMS(4, sums, means, 1, I(-1), 1, .x = S(2, 3, 4))
SUMS(5, sums, means, 4, I(3, 0, 2, 1), 1, .x = S(2, 3, 2, 3), .samples = 2)

/* ---- linear layers and convolutions ---- */

ROW(linear_0, duet_linear(t, x, 0, 1), .x = S(2, 3, 4), .w = {S(5, 4), S(5)}, .is = WIDE)
ROW(linear_1, duet_linear(t, x, 0, DUET_NO_BIAS), .x = S(2, 2, 3, 4), .w = {S(3, 4)}, .is = WIDE)
ROW(square, duet_conv2d(t, x, 0, 1, CONV(2, 2, 1, 1, 1, 1, 1)), .x = S(3, 4, 6, 5),
    .w = {S(2, 4, 3, 3), S(2)})
ROW(depthwise, duet_conv2d(t, x, 0, 1, CONV(2, 2, 1, 1, 1, 1, 4)), .x = S(3, 4, 6, 5),
    .w = {S(4, 1, 3, 3), S(4)})
ROW(grouped, duet_conv2d(t, x, 0, DUET_NO_BIAS, CONV(1, 2, 2, 0, 2, 1, 2)), .x = S(3, 4, 6, 5),
    .w = {S(6, 2, 3, 2)})
ROW(conv1d, duet_conv2d(t, x, 0, 1, CONV1D(2, 2, 2)), .x = S(3, 4, 9),
    .w = {S(5, 4, 3), S(5)})
ROW(transposed, tape_conv_transpose(t, x, 0, 1, CONV(2, 2, 1, 1, 1, 1, 1), I(1, 1)),
    .x = S(3, 4, 3, 2), .w = {S(4, 2, 3, 3), S(2)})
ROW(transposed_groups,
    tape_conv_transpose(t, x, 0, DUET_NO_BIAS, CONV(2, 1, 0, 1, 1, 2, 2), I(1, 0)),
    .x = S(3, 4, 3, 2), .w = {S(4, 3, 2, 3)})
ROW(transposed_1d, tape_conv_transpose(t, x, 0, 1, CONV1D(3, 1, 1), I(2, 0)),
    .x = S(3, 4, 3), .w = {S(4, 2, 4), S(2)})

/* ---- pools: POOL(width, stride, padding, ceil_mode) ---- */

ROW(adaptive_0, duet_adaptive_avg_pool2d(t, x, 1, 1), .x = S(2, 3, 7, 5))
ROW(adaptive_1, duet_adaptive_avg_pool2d(t, x, 3, 4), .x = S(1, 2, 7, 5)) /* windows overlap */
ROW(adaptive_2, duet_adaptive_avg_pool2d(t, x, 5, 3), .x = S(1, 1, 2, 3)) /* more out than in */
ROW(adaptive_3, duet_adaptive_avg_pool2d(t, x, 3, 2), .x = S(2, 1, 6, 8))
ROW(max_pool_0, duet_max_pool2d(t, x, 3, POOL(0, 2, 2, 1, 1, 0)), .x = S(1, 2, 7, 6))
ROW(max_pool_1, duet_max_pool2d(t, x, 3, POOL(0, 2, 2, 0, 0, 1)), .x = S(1, 1, 8, 6))
ROW(max_pool_2, duet_max_pool2d(t, x, 4, POOL(0, 3, 3, 2, 2, 1)), .x = S(2, 1, 5, 9))
/* no window in the padding; an image smaller than the window */
ROW(max_pool_3, duet_max_pool2d(t, x, 2, POOL(0, 3, 3, 1, 1, 1)), .x = S(1, 1, 6, 5))
ROW(max_pool_4, duet_max_pool2d(t, x, 3, POOL(0, 2, 2, 0, 0, 1)), .x = S(1, 1, 2, 5))
ROW(avg_pool, duet_avg_pool2d(t, x, 3, POOL(0, 2, 2, 1, 1, 0)), .x = S(1, 2, 7, 6))
ROW(max_pool_sides, duet_max_pool2d(t, x, 2, POOL(3, 3, 1, 0, 1, 1)), .x = S(2, 2, 6, 5))
ROW(avg_pool_sides, duet_avg_pool2d(t, x, 3, POOL(2, 1, 2, 1, 0, 0)), .x = S(2, 2, 5, 7))
ROW(max_pool_plain, duet_max_pool2d(t, x, 2, NULL), .x = S(2, 2, 6, 7), .is = NO_FACT)
ROW(avg_pool_plain, duet_avg_pool2d(t, x, 3, NULL), .x = S(2, 2, 6, 7), .is = NO_FACT)

/* ---- softmax, norms, attention ---- */

ROW(softmax, duet_softmax(t, x), .x = S(3, 7), .scale = 8)
ROW(softmax_4d, duet_softmax(t, x), .x = S(2, 3, 2, 4), .scale = 8)
ROW(log_softmax_3d, duet_log_softmax(t, x), .x = S(2, 3, 4), .scale = 8)
ROW(layer_norm_0, duet_layer_norm(t, x, 1, I(5), 0, 1, 1e-5), .x = S(3, 5), .w = {S(5), S(5)},
    .is = WIDE)
ROW(layer_norm_1, duet_layer_norm(t, x, 1, I(4), 0, 1, 1e-5), .x = S(2, 3, 4),
    .w = {S(4), S(4)}, .is = WIDE)
ROW(layer_norm_2, duet_layer_norm(t, x, 2, I(3, 4), 0, 1, 1e-3), .x = S(2, 3, 4),
    .w = {S(3, 4), S(3, 4)}, .is = WIDE)
ROW(layer_norm_3, duet_layer_norm(t, x, 3, I(2, 3, 4), 0, DUET_NO_BIAS, 1e-5),
    .x = S(2, 2, 3, 4), .w = {S(2, 3, 4)}, .is = WIDE)
ROW(layer_norm_4, duet_layer_norm(t, x, 1, I(4), DUET_NO_WEIGHT, DUET_NO_BIAS, 1e-5),
    .x = S(2, 3, 4))
ROW(group_norm_0, duet_group_norm(t, x, 2, 0, 1, 1e-5), .x = S(3, 4), .w = {S(4), S(4)}, .is = WIDE)
ROW(group_norm_1, duet_group_norm(t, x, 3, 0, 1, 1e-5), .x = S(2, 6, 3), .w = {S(6), S(6)},
    .is = WIDE)
ROW(group_norm_2, duet_group_norm(t, x, 1, 0, 1, 1e-2), .x = S(2, 4, 3, 2), .w = {S(4), S(4)},
    .is = WIDE)
ROW(group_norm_3, duet_group_norm(t, x, 4, 0, DUET_NO_BIAS, 1e-5), .x = S(2, 4, 3, 2), .w = {S(4)},
    .is = WIDE)
ROW(group_norm_4, duet_group_norm(t, x, 2, DUET_NO_WEIGHT, DUET_NO_BIAS, 1e-5), .x = S(2, 4, 3, 2))
/* each virtual device has statistics of its own */
ROW(batch_norm, duet_batch_norm(t, x, 0, 1, DUET_NO_BUFFERS, 1e-5, 0.1, 0), .x = S(4, 2, 4, 4),
    .w = {S(2), S(2)}, .is = NO_FACT)
ROW(batch_norm_rows, duet_batch_norm(t, x, 0, 1, DUET_NO_BUFFERS, 1e-5, 0.1, 0), .x = S(7, 3),
    .w = {S(3), S(3)}, .is = NO_FACT)
ROW(attention, attention(t, x, NULL), .x = S(3, 2, 5, 4), .w = {S(4), S(4, 3)})
ROW(attention_causal, attention(t, x, HOW(.is_causal = 1, .scale = 3)), .x = S(3, 5, 4),
    .w = {S(4), S(4, 3)})
ROW(attention_mask, attention(t, x, HOW(.attn_mask = TIMES(k, 9))), .x = S(3, 2, 5, 4),
    .w = {S(4), S(4, 3)}, .c = S(2, 1, 5))
ROW(attention_learned, duet_scaled_dot_product_attention(t, P(0), x, x, NULL), .x = S(3, 5, 4),
    .w = {S(6, 4)})
ROW(attention_dropout, attention(t, x, HOW(.is_causal = 1, .dropout_p = 0.3, .scale = 0.7)),
    .x = S(3, 2, 5, 4), .w = {S(4), S(4, 3)}, .is = NO_FACT)

/* ---- recurrent layers: kind, number of gates, states, reverse ---- */

#define STATES_1 L(2113, 2, 5)
#define STATES_2 L(2113, 2, 5), L(1409, 2, 5)
#define RECURRENT(kind, name, gates, states, reverse)                                              \
    ROW(recurrent_##kind##_##reverse##_1, recurrent(c, name, states, reverse, 1), .x = S(2, 4, 3), \
        .w = {S(5 * gates, 3), S(5 * gates, 5), S(5 * gates), S(5 * gates)},                       \
        .b = {STATES_##states}, .is = WIDE)                                                        \
    ROW(recurrent_##kind##_##reverse##_0, recurrent(c, name, states, reverse, 0), .x = S(2, 4, 3), \
        .w = {S(5 * gates, 3), S(5 * gates, 5)}, .is = WIDE)
RECURRENT(0, DUET_LSTM, 4, 2, 0)
RECURRENT(0, DUET_LSTM, 4, 2, 1)
RECURRENT(1, DUET_GRU, 3, 1, 0)
RECURRENT(1, DUET_GRU, 3, 1, 1)
RECURRENT(2, DUET_RNN_TANH, 1, 1, 0)
RECURRENT(2, DUET_RNN_TANH, 1, 1, 1)
RECURRENT(3, DUET_RNN_RELU, 1, 1, 0)
RECURRENT(3, DUET_RNN_RELU, 1, 1, 1)
// clang-format on
