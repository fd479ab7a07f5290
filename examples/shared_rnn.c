/* A recurrent network under DataParallel: every step of a sequence uses the same matrix, and x and
 * the hidden state have their samples in dimension 1. `rows` does the same arithmetic without the
 * chain, on all steps at once. docs/lessons/recurrent.md explains the output.
 *
 *     ./shared_rnn                           prints its losses on 1, 2 and 4 devices
 *     ./shared_rnn COMMAND ...               runs a command of duet with this network
 *     NETWORK=rows ./shared_rnn COMMAND ...  runs it with `rows` */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "duet.h"

#define TRY(call)                      \
    do {                               \
        if ((code = (call))) goto out; \
    } while (0)

enum { IH, HH, FC, L = 32 /* length */, WIDTH = 16, HIDDEN = 32, N = 64, CLASSES = 10, MOST = 4 };

static void describe(duet_module *m, void *context) {
    (void)context;
    duet_module_linear(m, "weight_ih", WIDTH, HIDDEN, 1);
    duet_module_linear(m, "weight_hh", HIDDEN, HIDDEN, 1);
    duet_module_linear(m, "fc", HIDDEN, duet_module_classes(m), 1);
}

/* x (n,L,WIDTH); the state after the last step is (n,HIDDEN). Step s waits for step s - 1. */
static duet_var *recur(duet_tape *t, duet_var *x) {
    duet_var *h = NULL;
    x = duet_layer(t, IH, x); /* (n,L,HIDDEN): all that does not depend on h, in one launch */
    for (int s = 0; s < L; s++) {
        duet_var *now = duet_reshape(t, duet_narrow(t, x, 1, s, 1), 2, (int[]){-1, HIDDEN});
        h = duet_tanh(t, h ? duet_add(t, now, duet_layer(t, HH, h)) : now);
    }
    return h;
}

static duet_var *rnn_forward(duet_tape *t, duet_var *x, void *context) {
    (void)context; /* x (n,1,L,WIDTH), as the command has samples */
    return duet_layer(t, FC, recur(t, duet_reshape(t, x, 3, (int[]){-1, L, WIDTH})));
}

static duet_var *rows_forward(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    x = duet_layer(t, IH, duet_reshape(t, x, 3, (int[]){-1, L, WIDTH}));
    x = duet_tanh(t, duet_layer(t, HH, x)); /* (n,L,HIDDEN) */
    return duet_layer(t, FC, duet_mean(t, x, (int[]){1}, 1, 0));
}

/* What a replica runs: x (L,n,WIDTH) -> hidden state (1,n,HIDDEN), as in nn.RNN. */
static duet_var *replica_forward(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    duet_var *h = recur(t, duet_permute(t, x, (int[]){1, 0, 2}));
    return duet_permute(t, duet_reshape(t, h, 3, (int[]){-1, 1, HIDDEN}), (int[]){1, 0, 2});
}

static void describe_head(duet_module *m, void *context) {
    (void)context;
    duet_module_linear(m, "fc", HIDDEN, duet_module_classes(m), 1);
}

static const struct duet_model rnn = {"rnn", .describe = describe, .forward = rnn_forward},
                               rows = {"rows", .describe = describe, .forward = rows_forward},
                               head = {"head", .describe = describe_head, .forward = rnn_forward};

/* Three steps on n devices; prints the losses. */
static int train(int n) {
    duet_device *devices[MOST] = {NULL};
    duet_params *params = NULL, *last = NULL;
    duet_data_parallel *model = NULL;
    duet_tape *tape = NULL;
    duet_tensor *x = NULL, *y = NULL, *state = NULL;
    const struct duet_data_parallel_options along_samples = {.dim = 1};
    static float numbers[L * N * WIDTH];
    int32_t labels[N];
    int code;
    double loss;
    for (int i = 0; i < L * N * WIDTH; i++)
        numbers[i] = (float)((i * 37 + i / 11) % 101) / 50 - 1;
    for (int i = 0; i < N; i++)
        labels[i] = i * 7 % CLASSES;
    TRY(duet_devices_open(devices, n, "cpu", 64 << 20));
    TRY(duet_params_create_model(&params, devices[0], &rnn, CLASSES, 0));
    TRY(duet_params_create_model(&last, devices[0], &head, CLASSES, 1));
    TRY(duet_data_parallel_create(&model, devices, n, params, replica_forward, NULL,
                                  &along_samples)); /* nn.DataParallel(rnn, dim=1) */
    TRY(duet_tape_create(&tape, devices[0]));
    TRY(duet_tensor_create(&x, devices[0], DUET_F32, 3, (int[]){L, N, WIDTH}, numbers));
    TRY(duet_tensor_create(&y, devices[0], DUET_I32, 1, (int[]){N}, labels));
    printf("%d device%s:", n, n > 1 ? "s" : "");
    for (int step = 0; step < 3; step++) {
        TRY(duet_tape_begin(tape, last, N, DUET_TRAIN));
        duet_var *h = duet_data_parallel_call(tape, model, x); /* (1,N,HIDDEN), along dim 1 */
        if (step == 0 && h) TRY(duet_var_value(&state, tape, h));
        h = duet_reshape(tape, duet_permute(tape, h, (int[]){1, 0, 2}), 2, (int[]){-1, HIDDEN});
        duet_var *l = duet_cross_entropy(tape, duet_linear(tape, h, 0, 1), y, DUET_MEAN, NULL);
        TRY(duet_backward(tape, l, NULL));
        TRY(duet_sgd(params, 0.1, 1));
        TRY(duet_sgd(last, 0.1, 1));
        TRY(duet_loss_read(tape, l, &loss, NULL));
        printf(" loss %.5f", loss / N);
    }
    printf("\n  hidden state (%d,%d,%d)\n", duet_tensor_dim(state, 0), duet_tensor_dim(state, 1),
           duet_tensor_dim(state, 2));
out:
    if (code) fprintf(stderr, "shared_rnn: %s\n", duet_error());
    duet_tensor_free(x), duet_tensor_free(y), duet_tensor_free(state), duet_tape_free(tape);
    duet_data_parallel_free(model), duet_params_free(params), duet_params_free(last);
    if (devices[0]) duet_devices_close(devices, n);
    return code;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* a line reaches a pipe when it is printed */
    const char *network = getenv("NETWORK");
    int code = 0, other = network && !strcmp(network, "rows");
    if (argc > 1) return duet_command(argc, argv, other ? &rows : &rnn);
    for (int n = 1; n <= MOST && !code; n *= 2)
        code = train(n);
    return duet_exit_status(code);
}
