/* The rows of test_ops.c: functions of numbers, of indices and of the shape.
 * tests/core/nn/layer_rows.h has products, sums and layers. ROW(NAME, CALL, FIELDS...) uses the
 * names of op_bed.h; the row NAME of tests/golden/make_ops.py makes the same call in PyTorch. */
// clang-format off

/* ---- of each number ---- */

ROW(leaky_0, duet_leaky_relu(t, x, 0.01), .as = "activation_0", .x = S(6, 4), .scale = 8)
ROW(leaky_1, duet_leaky_relu(t, x, 0.2), .as = "activation_1", .x = S(6, 4), .scale = 8)
ROW(elu_0, OF(x, ELU, 1), .as = "activation_2", .x = S(6, 4), .scale = 8)
ROW(elu_1, OF(x, ELU, 0.7), .as = "activation_3", .x = S(6, 4), .scale = 8, .is = CORNERS)
ROW(hardtanh, duet_clamp(t, x, -1, 1), .as = "activation_4", .x = S(6, 4), .scale = 8,
    .is = CORNERS)
ROW(clamp_5, duet_clamp(t, x, -0.5, 2), .as = "activation_5", .x = S(6, 4), .scale = 8,
    .is = CORNERS)
ROW(relu6, duet_clamp(t, x, 0, 6), .as = "activation_6", .x = S(6, 4), .scale = 8)
ROW(gelu, duet_gelu(t, x, DUET_GELU), .as = "activation_7", .x = S(6, 4), .scale = 8)
ROW(gelu_tanh, duet_gelu(t, x, DUET_GELU_TANH), .as = "activation_8", .x = S(6, 4), .scale = 8)
ROW(numbers, duet_add_number(t, TIMES(x, 0.25), -3), .as = "activation_9", .x = S(6, 4), .scale = 8)
ROW(log, duet_log(t, duet_add_number(t, duet_abs(t, x), 0.5)), .as = "activation_10", .x = S(6, 4),
    .scale = 8)
ROW(roots, duet_reciprocal(t, duet_sqrt(t, duet_exp(t, x))), .as = "activation_11", .x = S(6, 4),
    .scale = 8)
ROW(softplus, duet_subtract(t, OF(x, SOFTPLUS, 0), duet_multiply(t, x, duet_sigmoid(t, x))),
    .as = "activation_12", .x = S(6, 4), .scale = 8)
ROW(silu, duet_silu(t, TIMES(x, 4)), .x = S(3, 4, 5))
ROW(hardswish, OF(TIMES(x, 4), HARDSWISH, 0), .x = S(3, 4, 5), .is = CORNERS)
ROW(hardsigmoid, OF(TIMES(x, 4), HARDSIGMOID, 0), .x = S(3, 4, 5), .is = CORNERS)
ROW(erf, OF(TIMES(x, 2), ERF, 0), .x = S(3, 4, 5))
ROW(sin, OF(TIMES(x, 4), SIN, 0), .x = S(3, 4, 5))
ROW(cos, OF(TIMES(x, 4), COS, 0), .x = S(3, 4, 5))
ROW(sin_far, OF(x, SIN, 0), .x = S(2, 4), .is = OWN)
ROW(cos_far, OF(x, COS, 0), .x = S(2, 4), .is = OWN)
ROW(tanh, duet_add(t, duet_tanh(t, x), duet_multiply(t, b, b)), .x = S(3, 6), .b = {L(1, 3, 6)},
    .is = NO_FACT)
ROW(sigmoid, duet_multiply(t, duet_sigmoid(t, x), duet_tanh(t, b)), .x = S(3, 6), .b = {L(1, 3, 6)},
    .is = NO_FACT)
ROW(gated, duet_multiply(t, x, OF(OF(x, SOFTPLUS, 0), ABOVE, log(2))), .x = S(4, 9),
    .is = NO_FACT)
ROW(clamp, duet_clamp(t, x, -0.3, 0.7), .x = S(3, 4, 5), .is = CORNERS)
ROW(clamp_below, duet_clamp(t, x, -0.5, INFINITY), .x = S(2, 4), .is = OWN)
ROW(clamp_above, duet_clamp(t, x, -INFINITY, 0.5), .x = S(2, 4), .is = OWN)
ROW(pow, duet_pow(t, x, 3), .x = S(3, 4, 5))
ROW(pow_minus_1, duet_pow(t, x, -1), .x = S(2, 4), .is = OWN)
ROW(pow_minus_2, duet_pow(t, x, -2), .x = S(2, 4), .is = OWN)
ROW(pow_0, duet_pow(t, x, 0), .x = S(2, 4), .is = OWN)
ROW(pow_1, duet_pow(t, x, 1), .x = S(2, 4), .is = OWN)
ROW(pow_2, duet_pow(t, x, 2), .x = S(2, 4), .is = OWN)
ROW(pow_3, duet_pow(t, x, 3), .x = S(2, 4), .is = OWN)
ROW(pow_half, duet_pow(t, x, 0.5), .x = S(2, 4), .is = OWN)
ROW(pow_three_halves, duet_pow(t, x, 1.5), .x = S(2, 4), .is = OWN)
ROW(pow_65, duet_pow(t, x, 65), .x = S(2, 4), .is = OWN)
ROW(round, OF(x, ROUND, 0), .x = S(2, 4), .is = OWN)
ROW(floor, OF(x, FLOOR, 0), .x = S(2, 4), .is = OWN)
ROW(ceil, OF(x, CEIL, 0), .x = S(2, 4), .is = OWN)
ROW(trunc, OF(x, TRUNC, 0), .x = S(2, 4), .is = OWN)
ROW(remainder_by_3, OF(x, REMAINDER, 3), .x = S(2, 4), .is = OWN)
ROW(remainder_by_minus, OF(x, REMAINDER, -2.5), .x = S(2, 4), .is = OWN)
ROW(fmod_by_3, OF(x, FMOD, 3), .x = S(2, 4), .is = OWN)
ROW(fmod_by_minus, OF(x, FMOD, -2.5), .x = S(2, 4), .is = OWN)
ROW(divide_by_3, OF(x, FLOOR_DIVIDE, 3), .x = S(2, 4), .is = OWN)
ROW(divide_by_minus, OF(x, FLOOR_DIVIDE, -2.5), .x = S(2, 4), .is = OWN)
ROW(where, duet_where(t, OF(x, ABOVE, 0), duet_multiply(t, x, x), P(0)), .x = S(3, 4, 5),
    .w = {S(5)})
ROW(masked_fill, duet_masked_fill(t, x, k, -2.5), .x = S(3, 4), .c = S(4), .is = C_TOKENS)
ROW(masked, duet_masked_fill(t, x, OF(x, ABOVE, 0.5), 2), .x = S(3, 9), .is = NO_FACT)
ROW(dropout, duet_dropout(t, x, 0.4), .x = S(3, 40), .is = NO_FACT)
ROW(dropout2d, duet_dropout2d(t, duet_dropout2d(t, x, 0.25), 0.5), .x = S(3, 5, 3, 3),
    .is = NO_FACT)
ROW(random, duet_add(t, duet_multiply(t, x, tape_random(t, 3, I(-1, 3, 7), RANDOM_NORMAL)),
                     tape_random(t, 3, I(-1, 1, 7), RANDOM_UNIFORM)), .x = S(3, 3, 7),
    .is = NO_FACT)
ROW(detach, duet_multiply(t, x, duet_detach(t, duet_multiply(t, x, x))), .x = S(2, 3),
    .is = CORNERS)

/* ---- sums: operands may share memory, and the gradients of all uses add up ---- */

ROW(terms, duet_add(t, RELU(x), x), .x = S(3, 5), .is = NO_FACT)
ROW(itself, duet_add(t, ADD(x, x), ADD(x, x)), .x = S(3, 5), .is = NO_FACT)
ROW(use_behind, use_behind(t, x, 0), .x = S(3, 5), .is = NO_FACT)
ROW(use_before, use_behind(t, x, 1), .x = S(3, 5), .is = NO_FACT)
ROW(more_uses, more_uses(t, x), .x = S(3, 5), .is = NO_FACT)
ROW(flattened, ADD(ADD(duet_flatten(t, RELU(x)), duet_flatten(t, x)), duet_flatten(t, x)),
    .x = S(3, 5), .is = NO_FACT)
ROW(residual, residual(t, residual(t, x)), .x = S(3, 5), .is = NO_FACT)
ROW(difference, difference(t, x, b), .x = S(3, 6), .b = {L(1, 3, 6)}, .is = NO_FACT)
ROW(views, views(t, x, b), .x = S(3, 6), .b = {L(1, 3, 6)}, .is = NO_FACT)
ROW(scale, duet_subtract(t, duet_multiply(t, x, P(0)), P(0)), .x = S(3, 4, 2, 3), .w = {S(4, 1, 1)})
ROW(scale_1d, duet_multiply(t, duet_multiply(t, P(0), x), duet_reshape(t, P(0), 2, I(1, 5))),
    .x = S(3, 4, 5), .w = {S(5)})
ROW(scaled, duet_multiply(t, x, duet_expand(t, P(0), 3, I(-1, 1, 8))), .x = S(3, 4, 8),
    .w = {S(8)}, .is = NO_FACT)
#define TERMS(i, X, ...)                                                                          \
    ROW(add_##i, duet_add(t, x, b), .x = X, .b = {L(6131, __VA_ARGS__)}, .samples = 2)            \
    ROW(sub_##i, duet_subtract(t, x, b), .x = X, .b = {L(6131, __VA_ARGS__)}, .samples = 2)       \
    ROW(mul_##i, duet_multiply(t, x, b), .x = X, .b = {L(6131, __VA_ARGS__)}, .samples = 2)
TERMS(0, S(2, 3, 4), 4)
TERMS(1, S(3, 1), 1, 4)
TERMS(2, S(4), 2, 3, 4)
TERMS(3, S(2, 1, 3, 1), 2, 1, 4)
TERMS(4, S(2, 3, 1, 4), 2, 3, 1, 1)

/* ---- positions and shapes ---- */

ROW(taken, tape_take_along_dim(t, x, k, 1), .x = S(3, 6, 4), .c = S(9, 4), .is = C_TOKENS)
ROW(taken_rows, tape_take_along_dim(t, x, k, -2), .x = S(3, 6, 4), .c = S(3, 1), .is = C_TOKENS)
ROW(taken_of_table, tape_take_along_dim(t, P(0), x, 1), .x = S(3, 4), .w = {S(6)}, .is = TOKENS)
ROW(taken_of_x, tape_take_along_dim(t, x, duet_narrow(t, OF(x, ABOVE, 0), 2, 3, 1), 1),
    .x = S(3, 4, 8), .is = NO_FACT)
ROW(added, tape_scatter_add(t, k, x, 2, 5), .x = S(3, 4, 6), .c = S(6), .is = C_TOKENS)
ROW(added_rows, tape_scatter_add(t, k, x, 1, 5), .x = S(3, 7, 4), .c = S(7, 1), .is = C_TOKENS)
ROW(scattered, tape_scatter_add(t, OF(x, ABOVE, 0), x, 1, 3), .x = S(3, 4, 8), .is = NO_FACT)
ROW(argsort, duet_multiply(t, x, tape_argsort(t, x, 1, 0)), .x = S(3, 6, 4))
ROW(argsort_last, duet_multiply(t, x, tape_argsort(t, x, -1, 1)), .x = S(2, 7), .is = OWN)
ROW(sorted, tape_take_along_dim(t, x, tape_argsort(t, x, 2, 1), 2), .x = S(3, 4, 37))
ROW(padded, duet_embedding_of(t, x, 0, 2), .x = S(3, 4), .w = {S(5, 6)},
    .is = TOKENS | CORNERS)
ROW(padded_index, duet_embedding(t, index, 0, 2), .as = "padded", .x = S(3, 4), .w = {S(5, 6)},
    .is = TOKENS | CORNERS)
ROW(words, duet_add(t, WORDS(x, 0), WORDS(k, 1)), .x = S(3, 4), .w = {S(5, 6), S(5, 6)}, .c = S(4),
    .is = TOKENS | C_TOKENS)
ROW(word, duet_add(t, WORDS(x, 0), WORDS(k, 1)), .x = S(3, 1), .w = {S(5, 6), S(5, 6)}, .c = S(1),
    .is = TOKENS | C_TOKENS)
ROW(word_row, duet_add(t, WORDS(x, 0), WORDS(k, 1)), .x = S(3, 4), .w = {S(5, 6), S(5, 6)},
    .c = S(1, 4), .is = TOKENS | C_TOKENS)
ROW(tied, duet_linear(t, WORDS(x, 0), 0, DUET_NO_BIAS), .x = S(3, 4), .w = {S(5, 6)}, .is = TOKENS)
ROW(looked_up, looked_up(t, x), .x = S(3, 32), .w = {S(3, 8)}, .is = NO_FACT)
ROW(mixed_words, mixed_words(t, x), .x = S(3, 3), .w = {S(5, 4)}, .is = TOKENS | NO_FACT)
ROW(windows, windows(t, x), .x = S(3, 4, 12))
ROW(narrow, duet_narrow(t, x, 2, 1, 2), .x = S(2, 3, 4, 2))
ROW(narrow_last, duet_narrow(t, x, 2, 2, 3), .x = S(2, 3, 6))
ROW(cat, duet_cat(t, VARS(x, duet_narrow(t, x, 1, 1, 2), duet_narrow(t, x, 1, 0, 1), x), 4, 1),
    .x = S(2, 3, 2, 2))
ROW(cat_last, duet_cat(t, VARS(duet_narrow(t, x, 2, 3, 1), x), 2, 2), .x = S(2, 3, 4))
ROW(token, duet_add(t, duet_cat(t, VARS(duet_expand(t, P(0), 3, I(-1, -1, -1)), x), 2, 1),
                   P(1)),
    .x = S(3, 4, 5), .w = {S(1, 1, 5), S(1, 5, 5)})
ROW(pad, duet_pad2d(t, x, 2, 1, -1, 3, 0.75), .x = S(2, 2, 4, 3))
ROW(permute_0, duet_permute(t, x, I(1, 0)), .x = S(2, 3), .samples = 2)
ROW(permute_1, duet_permute(t, x, I(0, 2, 1)), .x = S(2, 3, 4))
ROW(permute_2, duet_permute(t, x, I(2, 0, 1)), .x = S(2, 3, 4), .samples = 2)
ROW(permute_3, duet_permute(t, x, I(0, 2, 1, 3)), .x = S(2, 3, 2, 4))
ROW(permute_4, duet_permute(t, x, I(3, 1, -4, 2)), .x = S(2, 3, 2, 4), .samples = 2)
ROW(transpose_0, duet_transpose(t, x, 0, 1), .as = "permute_0", .x = S(2, 3), .samples = 2)
ROW(transpose_1, duet_transpose(t, x, -1, 1), .as = "permute_1", .x = S(2, 3, 4))
ROW(transpose_3, duet_transpose(t, x, 2, -3), .as = "permute_3", .x = S(2, 3, 2, 4))
// clang-format on
