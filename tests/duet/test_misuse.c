/* Tests misuse of devices, tensors, passes and functions of duet/core.h and duet/functions.h. */
#include "tests/duet/misuse.h"

static duet_tensor *out;
static int one[8] = {1, 1, 1, 1, 1, 1, 1, 1};

static int work(void *context, int i) {
    return (void)context, i < 0;
}

Test(misuse, devices_and_tensors, .timeout = 60) {
    open_all();
    duet_device *more[2] = {NULL};
    duet_tensor *parts[2] = {NULL}, *two[2] = {X2, X2};
    float host[16] = {0};
    SAFE(duet_error());
    SAFE(duet_version());
    SAFE(duet_exit_status(I(0)));
    SAFE(duet_time());
    CODE(duet_devices_open(O(more), I(1), O("cpu"), 1 << 20));
    SAFE(duet_devices_close(O(more), I(1)));
    CODE(duet_device_open(O(more), O("cpu"), I(1), 1 << 20));
    SAFE(duet_devices_close(more, 1));
    NOTHING(duet_device_count(O("cpu")));
    SAFE(duet_device_name(O(d)));
    CODE(duet_device_sync(O(d)));
    CODE(duet_device_memory(O(d), NULL, NULL));
    CODE(duet_parallel(I(1), O(work), NULL));
    CODE(duet_tensor_from_host(O(&out), O(d), I(DUET_F32), I(2), S(one), O(host)));
    SAFE(duet_tensor_free(O(out)));
    CODE(duet_tensor_create(O(&out), O(d), I(DUET_F32), I(2), S(((int[]){2, 4})), NULL));
    SAFE(duet_tensor_free(out));
    NOTHING(duet_tensor_device(O(X2)));
    NOTHING(duet_tensor_type(O(labels)));
    NOTHING(duet_tensor_rank(O(X2)));
    NOTHING(duet_tensor_dim(O(X2), I(0)));
    NOTHING(duet_tensor_count(O(X2)));
    CODE(duet_tensor_read(O(X2), O(host)));
    CODE(duet_tensor_write(O(X2), O(host)));
    CODE(duet_tensor_to(O(&out), O(X2), O(d)));
    CODE(duet_tensor_copy(O(X2), O(out)));
    CODE(duet_tensor_add(O(X2), O(out)));
    CODE(duet_tensor_scale(O(X2), 1));
    SAFE(duet_tensor_free(out));
    CODE(duet_tensor_rows(O(&out), O(X2), I(0), I(1)));
    SAFE(duet_tensor_free(out));
    CODE(duet_tensor_cat(O(&out), O(two), I(2), O(d), I(0)));
    SAFE(duet_tensor_free(out));
    CODE(duet_tensor_scatter(O(parts), I(1), O(X2), O(&d), I(0)));
    SAFE(duet_tensor_free(parts[0]));
    close_all();
}

Test(misuse, passes, .timeout = 60) {
    open_all();
    duet_tape *other;
    double sum;
    CODE(duet_tape_create(O(&other), O(d)));
    SAFE(duet_tape_seed(O(other), 1));
    SAFE(duet_tape_free(O(other)));
    CODE(duet_tape_begin(O(t), p, I(2), I(DUET_TRAIN)));
    CODE(duet_tape_accumulate(O(t), bad(1) ? -9 : 1));
    CODE(duet_tape_error(O(t)));
    VAR(duet_input(T(), O(X4)));
    VAR(duet_leaf(T(), O(X4)));
    begin();
    duet_var *leaf = duet_leaf(t, X2);
    duet_var *loss = duet_cross_entropy(t, leaf, labels, DUET_MEAN, NULL);
    const duet_tensor *none[1] = {NULL};
    CODE(duet_loss_read(O(t), O(loss), &sum, NULL));
    CODE(duet_var_value(O(&out), O(t), O(leaf)));
    SAFE(duet_tensor_free(out));
    CODE(duet_backward(O(t), O(loss), NULL));
    CODE(duet_var_grad(O(&out), O(t), O(leaf)));
    SAFE(duet_tensor_free(out));
    CODE(duet_backward_all(O(t), O(&loss), O(none), I(1)));
    NOTHING(duet_tape_training(O(t)));
    NOTHING(duet_layer_count(O(t)));
    close_all();
}

Test(misuse, layers, .timeout = 60) {
    open_all();
    VAR(duet_constant(T(), O(X4)));
    VAR(duet_parameter(T(), I(0)));
    VAR(duet_expand(T(), O(x), I(4), S(((int[]){2, 5, 6, 6}))));
    const struct duet_conv ones = {.stride = {1, 1}};
    VAR(duet_conv2d(T(), O(x), I(0), bad(1) ? 99 : 1, &ones));
    VAR(duet_linear(T(), O(flat), I(2), bad(1) ? 99 : 1));
    VAR(duet_matmul_add(T(), O(flat), I(3), bad(1) ? 99 : 1));
    VAR(duet_batch_norm(T(), O(x), I(7), I(7), bad(1) ? INT_MAX : 0, R(0), R(0.1), 0));
    VAR(duet_layer_norm(T(), O(seq), I(1), S(((int[]){12})), bad(1) ? 99 : -1, -1, R(0)));
    VAR(duet_group_norm(T(), O(x), I(1), bad(1) ? 99 : 7, 7, R(0)));
    VAR(duet_embedding(T(), O(labels), I(2), bad(1) ? 99 : -1));
    VAR(duet_embedding_of(T(), O(flat), I(2), bad(1) ? 99 : -1));
    struct duet_recurrent lstm = {DUET_LSTM, 4, 5, -1, -1, 0},
                          wrong = {DUET_LSTM, 99, 5, -1, -1, 0},
                          kind = {(enum duet_recurrent_kind)99, 4, 5, -1, -1, 0};
    VAR(duet_recurrent(T(), O(seq), O(bad(1) ? &wrong : bad(1) ? &kind : &lstm), NULL, NULL));
    const int side = 2;
    struct duet_pool pool = {.stride = {2, 2}}, minus_pool = {.stride = {-1, -1}};
    VAR(duet_avg_pool2d(T(), O(x), I(side), bad(1) ? &minus_pool : &pool));
    VAR(duet_max_pool2d(T(), O(x), I(side), bad(1) ? &minus_pool : &pool));
    VAR(duet_pad2d(T(), O(x), I(0), I(0), I(0), I(0), R(0)));
    VAR(duet_adaptive_avg_pool2d(T(), O(x), I(1), I(1)));
    VAR(duet_dropout(T(), O(x), R(0.5)));
    VAR(duet_dropout2d(T(), O(x), R(0.5)));
    close_all();
}

Test(misuse, functions, .timeout = 60) {
    open_all();
    VAR(duet_relu(T(), O(x)));
    VAR(duet_tanh(T(), O(x)));
    VAR(duet_sigmoid(T(), O(x)));
    VAR(duet_silu(T(), O(x)));
    VAR(duet_leaky_relu(T(), O(x), 0.01));
    VAR(duet_gelu(T(), O(x), I(DUET_GELU)));
    VAR(duet_clamp(T(), O(x), R(0), R(6)));
    VAR(duet_pow(T(), O(x), R(2)));
    VAR(duet_multiply_number(T(), O(x), 2));
    VAR(duet_add_number(T(), O(x), 2));
    VAR(duet_abs(T(), O(x)));
    VAR(duet_exp(T(), O(x)));
    VAR(duet_log(T(), O(x)));
    VAR(duet_sqrt(T(), O(x)));
    VAR(duet_reciprocal(T(), O(x)));
    VAR(duet_detach(T(), O(x)));
    VAR(duet_flatten(T(), O(x)));
    VAR(duet_softmax(T(), O(x)));
    VAR(duet_log_softmax(T(), O(x)));
    VAR(duet_reshape(T(), O(x), I(2), S(((int[]){2, 36}))));
    VAR(duet_narrow(T(), O(x), I(2), I(0), I(1)));
    duet_var *two[2];
    VAR((two[0] = x, two[1] = O(x), duet_cat(T(), O(two), I(2), I(1))));
    VAR(duet_add(T(), O(x), O(x)));
    VAR(duet_subtract(T(), O(x), O(x)));
    VAR(duet_multiply(T(), O(x), O(x)));
    VAR(duet_where(T(), O(x), O(x), O(x)));
    VAR(duet_masked_fill(T(), O(x), O(x), 0));
    VAR(duet_matmul(T(), O(x), O(x)));
    const struct duet_attention_options plain = {0};
    VAR(duet_scaled_dot_product_attention(T(), O(seq), O(seq), O(seq), &plain));
    VAR(duet_sum(T(), O(x), S(((int[]){2, 3})), I(2), 0));
    VAR(duet_mean(T(), O(x), S(((int[]){2, 3})), I(2), 0));
    VAR(duet_transpose(T(), O(x), I(1), I(2)));
    VAR(duet_permute(T(), O(x), S(((int[]){0, 1, 3, 2}))));
    const struct duet_loss_options no = {0}, smooth = {.label_smoothing = 0.1};
    VAR(duet_cross_entropy(T(), O(flat), O(labels), I(DUET_MEAN), &no));
    VAR(duet_nll_loss(T(), O(flat), O(labels), I(DUET_MEAN), bad(1) ? &smooth : &no));
    VAR(duet_mse_loss(T(), O(flat), O(X36), I(DUET_MEAN)));
    VAR(duet_smooth_l1_loss(T(), O(flat), O(X36), I(DUET_MEAN)));
    VAR(duet_binary_cross_entropy_with_logits(T(), O(flat), O(X36), I(DUET_MEAN)));
    NOTHING(duet_layer(T(), I(0), x) && mutated);
    NOTHING(duet_layer_relu(T(), I(0), x) && mutated);
    NOTHING(duet_layer_add_relu(T(), I(0), x, x) && mutated);
    close_all();
}
