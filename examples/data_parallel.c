/* PyTorch's tutorial on DataParallel as a program. It runs two small models on batches of 30 random
 * samples and prints the sizes that each replica sees.
 *
 *     build/examples/data_parallel 4           SimpleModel on four devices
 *     build/examples/data_parallel 4 complex   ComplexModel, with a convolution
 *
 * In PyTorch:
 *
 *     model = nn.DataParallel(SimpleModel())               # self.fc = nn.Linear(10, 10)
 *     for x in loader:
 *         output = model(x.cuda())                         # forward prints its sizes
 *         print("Outside: input size", x.size(), "output_size", output.size())
 *         output.sum().backward()
 *         optimizer.step()
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "duet.h"

#define TRY(call)                      \
    do {                               \
        if ((code = (call))) goto out; \
    } while (0)

enum { OUT = 10, BATCH = 30, ROWS = 100, MOST = 10 * 65536 /* most elements of a parameter */ };

/* nn.Linear(10, 10) */
static const struct duet_param simple[] = {{"fc.weight", 2, {OUT, 10}, NULL},
                                           {"fc.bias", 1, {OUT}, NULL}};

/* nn.Conv2d(3, 64, kernel_size=3, padding=1), relu, nn.Linear(64 * 32 * 32, 10) */
static const struct duet_param complex[] = {{"conv1.weight", 4, {64, 3, 3, 3}, NULL},
                                            {"conv1.bias", 1, {64}, NULL},
                                            {"fc.weight", 2, {OUT, 65536}, NULL},
                                            {"fc.bias", 1, {OUT}, NULL}};

/* Writes "torch.Size([8, 10])". */
static const char *size_of(char text[64], const duet_tensor *x) {
    int used = snprintf(text, 64, "torch.Size([%d", duet_tensor_dim(x, 0));
    for (int i = 1; i < duet_tensor_rank(x); i++)
        used += snprintf(text + used, 64 - (size_t)used, ", %d", duet_tensor_dim(x, i));
    snprintf(text + used, 64 - (size_t)used, "])");
    return text;
}

/* Every replica runs this at the same time, with its rows of the batch. */
static duet_var *forward(duet_tape *t, duet_var *x, void *context) {
    int is_complex = *(const int *)context;
    duet_tensor *in = NULL, *out = NULL;
    char input[64], output[64];
    const struct duet_conv how = {.padding = {1, 1}};
    duet_var *h = is_complex ? duet_flatten(t, duet_relu(t, duet_conv2d(t, x, 0, 1, &how))) : x;
    duet_var *y = duet_linear(t, h, is_complex ? 2 : 0, is_complex ? 3 : 1);
    if (!duet_var_value(&in, t, x) && !duet_var_value(&out, t, y))
        printf("\tIn Model: input size %s output size %s\n", size_of(input, in),
               size_of(output, out));
    duet_tensor_free(in), duet_tensor_free(out);
    return y;
}

static int step(duet_data_parallel *model, duet_params *params, duet_tensor *x) {
    duet_tensor *output = NULL, *ones = NULL;
    char input[64], text[64];
    float one[BATCH * OUT];
    int code;
    for (int i = 0; i < BATCH * OUT; i++)
        one[i] = 1;
    TRY(duet_data_parallel_forward(model, &x, 1, &output, 1, DUET_TRAIN));
    printf("Outside: input size %s output_size %s\n", size_of(input, x), size_of(text, output));
    /* the gradient of output.sum() is 1 everywhere */
    TRY(duet_tensor_create(&ones, duet_tensor_device(output), DUET_F32, 2,
                           (int[]){duet_tensor_dim(output, 0), OUT}, one));
    TRY(duet_data_parallel_backward(model, &ones, 1));
    TRY(duet_sgd(params, 0.001, 1));
out:
    duet_tensor_free(output), duet_tensor_free(ones);
    return code;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* a line reaches a pipe when it is printed */
    static float values[MOST];
    int n = argc > 1 ? atoi(argv[1]) : 4, is_complex = argc > 2 && !strcmp(argv[2], "complex");
    const struct duet_param *shapes = is_complex ? complex : simple;
    const int shape[] = {ROWS, is_complex ? 3 : 10, 32, 32};
    double bound = 1;
    duet_device *devices[DUET_MAX_DEVICES] = {NULL};
    duet_params *params = NULL;
    duet_data_parallel *model = NULL;
    duet_tensor *rows = NULL, *x = NULL;
    duet_rng *rng = NULL;
    int code;
    if (n < 1 || (argc > 2 && !is_complex && strcmp(argv[2], "simple")))
        return fprintf(stderr, "data_parallel [DEVICES [simple | complex]]: 1 to 64 devices\n"), 2;
    TRY(duet_rng_create(&rng, 0));
    TRY(duet_devices_open(devices, n, "auto", 128 << 20));
    TRY(duet_params_create(&params, devices[0], shapes, is_complex ? 4 : 2));
    for (int i = 0; i < duet_params_count(params); i++) {
        duet_tensor *value = duet_params_value(params, i);
        size_t count = duet_tensor_count(value);
        if (i % 2 == 0) bound = 1 / sqrt((double)count / duet_tensor_dim(value, 0)); /* fan-in */
        duet_rng_uniform(rng, values, count, -bound, bound);
        TRY(duet_tensor_write(value, values));
    }
    duet_rng_normal(rng, values, ROWS * (is_complex ? 3072 : 10), 0, 1);
    TRY(duet_tensor_create(&rows, devices[0], DUET_F32, is_complex ? 4 : 2, shape, values));
    TRY(duet_data_parallel_create(&model, devices, n, params, forward, &is_complex, NULL));
    for (int i = 0; i < ROWS; i += BATCH) {
        duet_tensor_free(x);
        TRY(duet_tensor_rows(&x, rows, i, ROWS - i < BATCH ? ROWS - i : BATCH));
        TRY(step(model, params, x));
    }
out:
    if (code) fprintf(stderr, "data_parallel: %s\n", duet_error());
    duet_data_parallel_free(model);
    duet_tensor_free(x), duet_tensor_free(rows);
    duet_params_free(params), duet_rng_free(rng);
    if (devices[0]) duet_devices_close(devices, n);
    return duet_exit_status(code);
}
