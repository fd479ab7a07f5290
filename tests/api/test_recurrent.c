/* Recurrent layers of the public library on every kind of device: PyTorch's numbers and gradients,
 * of nn.LSTM, nn.GRU and nn.RNN in both directions, with and without biases and first states; and
 * what is refused. With CUDA_EMULATION on GPUs too. */
#include "tests/api/facts.h"

/* Relative to 1 + |want|: 4 steps of some 10 roundings each; a wrong term is 1e-2. */
static const double TOLERANCE = 4e-6;

#define FILE_OF_FACTS "tests/golden/recurrent.txt"
enum { SAMPLES = 2, STEPS = 4, INPUT = 3, HIDDEN = 5, MOST_GATES = 4, STATES = 2 };
enum { MOST_VALUES = MOST_GATES * HIDDEN * HIDDEN };
static const int gates_of[] = {4, 3, 1, 1}, state_shape[2] = {SAMPLES, HIDDEN};

struct bed {
    duet_device *device;
    duet_tape *tape;
    duet_params *params;
    duet_tensor *x, *first[STATES];
};

/* Weights and biases in PyTorch's order, which is that of the layer's indices too. */
static struct duet_recurrent make_params(struct bed *b, int kind, int reverse, int full) {
    static const int factors[4] = {6131, 4001, 5003, 8009};
    static const char *const names[4] = {"weight_ih_l0", "weight_hh_l0", "bias_ih_l0",
                                         "bias_hh_l0"};
    float values[4][MOST_VALUES];
    int rows = gates_of[kind] * HIDDEN, count = full ? 4 : 2;
    struct duet_param params[4];
    for (int p = 0; p < count; p++) {
        for (int i = 0; i < MOST_VALUES; i++)
            values[p][i] = golden_value(i, factors[p]);
        params[p] = (struct duet_param){.name = names[p],
                                        .rank = p < 2 ? 2 : 1,
                                        .shape = {rows, p ? HIDDEN : INPUT},
                                        .values = values[p]};
        if (p > 1) params[p].shape[1] = 0;
    }
    MUST(duet_params_create(&b->params, b->device, params, count));
    return (struct duet_recurrent){
        (enum duet_recurrent_kind)kind, 0,      1, full ? 2 : DUET_NO_BIAS,
        full ? 3 : DUET_NO_BIAS,        reverse};
}

static void expect_var(struct bed *b, const char *name, const char *part, duet_var *var,
                       int is_gradient) {
    duet_tensor *got;
    MUST(is_gradient ? duet_var_grad(&got, b->tape, var) : duet_var_value(&got, b->tape, var));
    expect_fact(FILE_OF_FACTS, name, part, got, TOLERANCE);
    duet_tensor_free(got);
}

static void check_layer(struct bed *b, int kind, int reverse, int full) {
    static const int x_shape[3] = {SAMPLES, STEPS, INPUT}, y_shape[3] = {SAMPLES, STEPS, HIDDEN};
    static const int states_factors[STATES] = {2113, 1409};
    static const char *const last_names[] = {"last0", "last1"},
                             *const first_names[] = {"dfirst0", "dfirst1"},
                             *const param_names[] = {"dp0", "dp1", "dp2", "dp3"};
    duet_var *first[STATES] = {NULL}, *last[STATES] = {NULL}, *roots[1 + STATES];
    const duet_tensor *grads[1 + STATES];
    duet_tensor *dy, *dlast;
    int states = kind == DUET_LSTM ? 2 : 1;
    char name[64];
    snprintf(name, sizeof name, "recurrent_%d_%d_%d", kind, reverse, full);
    struct duet_recurrent layer = make_params(b, kind, reverse, full);
    b->x = fact_input(b->device, 3, x_shape, 7919, 1);
    dy = fact_input(b->device, 3, y_shape, 3571, 1);
    dlast = fact_input(b->device, 2, state_shape, 1741, 1);
    MUST(duet_tape_begin(b->tape, b->params, SAMPLES, DUET_TRAIN));
    for (int i = 0; i < states; i++) {
        b->first[i] = fact_input(b->device, 2, state_shape, states_factors[i], 1);
        if (full) last[i] = first[i] = duet_leaf(b->tape, b->first[i]);
    }
    duet_var *x = duet_leaf(b->tape, b->x);
    roots[0] = duet_recurrent(b->tape, x, &layer, &last[0], states > 1 ? &last[1] : NULL);
    MUST(duet_tape_error(b->tape));
    expect_var(b, name, "y", roots[0], 0);
    grads[0] = dy;
    for (int i = 0; i < states; i++) {
        expect_var(b, name, last_names[i], last[i], 0);
        roots[1 + i] = last[i], grads[1 + i] = dlast;
    }
    MUST(duet_backward_all(b->tape, roots, grads, 1 + states));
    expect_var(b, name, "dx", x, 1);
    for (int i = 0; full && i < states; i++)
        expect_var(b, name, first_names[i], first[i], 1);
    for (int p = 0; p < duet_params_count(b->params); p++)
        expect_fact(FILE_OF_FACTS, name, param_names[p], duet_params_grad(b->params, p), TOLERANCE);
    for (int i = 0; i < states; i++)
        duet_tensor_free(b->first[i]);
    duet_tensor_free(b->x);
    duet_tensor_free(dy);
    duet_tensor_free(dlast);
    duet_params_free(b->params);
}

Test(recurrent, layers_are_pytorchs, .timeout = 60) {
    for (int k = 0; k < API_KINDS; k++) {
        struct bed b;
        MUST(duet_devices_open(&b.device, 1, api_kinds[k], api_memory(api_kinds[k])));
        MUST(duet_tape_create(&b.tape, b.device));
        for (int i = 0; i < 16; i++)
            check_layer(&b, i / 4, i / 2 % 2, i % 2);
        duet_tape_free(b.tape);
        duet_devices_close(&b.device, 1);
    }
}

Test(recurrent, what_does_not_suit_is_refused, .timeout = 30) {
    struct bed b;
    float numbers[SAMPLES * STEPS * INPUT];
    MUST(duet_devices_open(&b.device, 1, "cpu", API_MEMORY));
    MUST(duet_tape_create(&b.tape, b.device));
    const struct duet_recurrent good = make_params(&b, DUET_LSTM, 0, 1);
    for (int i = 0; i < 6; i++) {
        static const char *const says[] = {"each number of the state", "is none of this number",
                                           "must have 2 dimensions",   "must be (N, steps",
                                           "an LSTM takes h and c",    "must be (2, 5)"};
        struct duet_recurrent layer = good;
        b.x = api_tensor(b.device, 3, (int[]){SAMPLES, STEPS, INPUT}, numbers);
        MUST(duet_tape_begin(b.tape, b.params, SAMPLES, DUET_TRAIN));
        duet_var *x = duet_leaf(b.tape, b.x), *h = NULL, *c = NULL;
        if (i == 0) layer.kind = DUET_GRU;
        if (i == 1) layer.kind = (enum duet_recurrent_kind)7;
        if (i == 2) layer.w_hh = 3;
        if (i == 3) x = duet_flatten(b.tape, x);
        if (i > 3) h = duet_reshape(b.tape, x, 2, (int[]){SAMPLES, STEPS * INPUT});
        if (i == 5) c = h;
        cr_assert_null(duet_recurrent(b.tape, x, &layer, &h, &c));
        cr_assert_eq(duet_tape_error(b.tape), DUET_USAGE);
        MUST_SAY(says[i]);
        duet_tensor_free(b.x);
    }
    duet_params_free(b.params);
    duet_tape_free(b.tape);
    duet_devices_close(&b.device, 1);
}
