/* PyTorch's text on DataParallel as a program: a model of one linear layer, batches of 30 samples,
 * and the sizes that each replica sees.
 *
 *     build/examples/data_parallel 4           on four devices
 *
 * In PyTorch:
 *
 *     model = nn.DataParallel(SimpleModel())               # self.fc = nn.Linear(10, 10)
 *     for x in loader:
 *         output = model(x.cuda())                         # forward prints its sizes
 *         print("outside: input", x.size(), "output_size", output.size())
 *         output.sum().backward()
 *         optimizer.step()
 */
#include <stdio.h>
#include <stdlib.h>

#include "duet.h"

enum { FC_WEIGHT, FC_BIAS };
enum { IN = 10, OUT = 10, BATCH = 30, ROWS = 100 };

/* Every replica runs this at the same time, with its rows of the batch. */
static duet_var *forward(duet_tape *t, duet_var *x, void *context) {
    duet_tensor *in, *out;
    (void)context;
    duet_var *y = duet_linear(t, x, FC_WEIGHT, FC_BIAS);
    if (duet_var_value(&in, t, x)) return NULL;
    if (!duet_var_value(&out, t, y))
        printf("inside model: input (%d, %d), output (%d, %d) on %s\n", duet_tensor_dim(in, 0),
               duet_tensor_dim(in, 1), duet_tensor_dim(out, 0), duet_tensor_dim(out, 1),
               duet_device_name(duet_tensor_device(out)));
    duet_tensor_free(in);
    duet_tensor_free(out);
    return y;
}

/* The gradient of output.sum() is 1 everywhere. */
static int step(duet_data_parallel *model, duet_params *params, duet_device *first,
                const float *rows, int n) {
    duet_tensor *x = NULL, *output = NULL, *ones = NULL;
    float one[BATCH * OUT];
    for (int i = 0; i < BATCH * OUT; i++)
        one[i] = 1;
    int code = duet_tensor_create(&x, first, DUET_F32, 2, (int[]){n, IN}, rows);
    if (!code) code = duet_data_parallel_forward(model, x, &output, DUET_TRAIN);
    if (!code)
        printf("outside: input (%d, %d), output (%d, %d)\n", n, IN, duet_tensor_dim(output, 0),
               duet_tensor_dim(output, 1));
    if (!code) code = duet_tensor_create(&ones, first, DUET_F32, 2, (int[]){n, OUT}, one);
    if (!code) code = duet_data_parallel_backward(model, ones);
    if (!code) code = duet_sgd(params, 0.001, 1);
    duet_tensor_free(x);
    duet_tensor_free(output);
    duet_tensor_free(ones);
    return code;
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 4;
    duet_device *devices[DUET_MAX_DEVICES] = {NULL};
    duet_params *params = NULL;
    duet_data_parallel *model = NULL;
    duet_rng *rng = NULL;
    float weight[OUT * IN], bias[OUT], rows[ROWS * IN];
    const struct duet_param shapes[] = {{"fc.weight", 2, {OUT, IN}, weight},
                                        {"fc.bias", 1, {OUT}, bias}};
    int code = duet_rng_create(&rng, 0);
    duet_rng_uniform(rng, weight, OUT * IN, -0.31, 0.31); /* 1 / sqrt(10) */
    duet_rng_uniform(rng, bias, OUT, -0.31, 0.31);
    duet_rng_normal(rng, rows, ROWS * IN, 0, 1);
    if (!code) code = duet_devices_open(devices, n, "auto", 128 << 20);
    if (!code) code = duet_params_create(&params, devices[0], shapes, 2);
    if (!code) code = duet_data_parallel_create(&model, devices, n, params, forward, NULL, NULL);
    for (int i = 0; i < ROWS && !code; i += BATCH)
        code = step(model, params, devices[0], rows + i * IN, ROWS - i < BATCH ? ROWS - i : BATCH);
    if (code) fprintf(stderr, "data_parallel: %s\n", duet_error());
    duet_data_parallel_free(model);
    duet_params_free(params);
    duet_rng_free(rng);
    if (devices[0]) duet_devices_close(devices, n);
    return duet_exit_status(code);
}
