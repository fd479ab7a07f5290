/* A model of several inputs and outputs under DataParallel: each person has a few numbers and three
 * words, and the model returns the scores and, as it is given the labels too, the loss.
 *
 *     build/examples/several_inputs 4
 *
 * In PyTorch:
 *
 *     class Model(nn.Module):
 *         def forward(self, numbers, words, labels):
 *             h = numbers + self.embedding(words).mean(1)
 *             scores = self.fc(F.relu(h))
 *             return scores, F.cross_entropy(scores, labels)
 *     model = nn.DataParallel(Model())
 *     for step in range(100):
 *         scores, losses = model(numbers, words, labels)   # 10 rows, 4 losses
 *         optimizer.zero_grad()
 *         losses.mean().backward()
 *         optimizer.step()
 */
#include <stdio.h>
#include <stdlib.h>

#include "duet.h"

#define TRY(call)                      \
    do {                               \
        if ((code = (call))) goto out; \
    } while (0)

enum { N = 10, K = 8, WORDS = 50, CLASSES = 3, STEPS = 100, MOST = WORDS * K };
enum { EMBEDDING, WEIGHT, BIAS, PARAMS };
enum { NUMBERS, NAMES, LABELS, INPUTS };
enum { SCORES, LOSS, OUTPUTS };
static const struct duet_param shapes[PARAMS] = {{"embedding.weight", 2, {WORDS, K}, NULL},
                                                 {"fc.weight", 2, {CLASSES, K}, NULL},
                                                 {"fc.bias", 1, {CLASSES}, NULL}};

/* Every replica runs this at the same time, with its rows of each input. */
static void forward(duet_tape *t, const struct duet_replica *r, duet_var **out, void *context) {
    (void)context;
    duet_var *words =
        duet_mean(t, duet_embedding(t, r->tensors[NAMES], EMBEDDING, -1), (int[]){1}, 1, 0);
    duet_var *h = duet_add(t, r->x[NUMBERS], words);
    out[SCORES] = duet_linear(t, duet_relu(t, h), WEIGHT, BIAS);
    out[LOSS] = duet_cross_entropy(t, out[SCORES], r->tensors[LABELS], DUET_MEAN, NULL);
}

/* Forward, backward from the mean of the R losses, SGD. *mean: that mean. */
static int step(duet_data_parallel *model, duet_params *params, duet_tensor *const *inputs,
                double *mean, int *rows) {
    duet_tensor *outputs[OUTPUTS] = {NULL}, *each = NULL;
    float losses[DUET_MAX_DEVICES], weights[DUET_MAX_DEVICES];
    int code, count = 0;
    *mean = 0;
    TRY(duet_data_parallel_forward(model, inputs, INPUTS, outputs, OUTPUTS, DUET_TRAIN));
    TRY(duet_tensor_read(outputs[LOSS], losses));
    count = duet_tensor_dim(outputs[LOSS], 0);
    for (int r = 0; r < count; r++) {
        weights[r] = 1 / (float)count;
        *mean += (double)losses[r] / count;
    }
    rows[SCORES] = duet_tensor_dim(outputs[SCORES], 0), rows[LOSS] = count;
    TRY(duet_tensor_create(&each, duet_tensor_device(outputs[LOSS]), DUET_F32, 1, &count, weights));
    duet_tensor *grads[OUTPUTS] = {[LOSS] = each}; /* the scores get none of their own */
    TRY(duet_data_parallel_backward(model, grads, OUTPUTS));
    TRY(duet_sgd(params, 0.1, 1));
out:
    for (int i = 0; i < OUTPUTS; i++)
        duet_tensor_free(outputs[i]);
    duet_tensor_free(each);
    return code;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* a line reaches a pipe when it is printed */
    int n = argc > 1 ? atoi(argv[1]) : 4, code, rows[OUTPUTS] = {0};
    float values[MOST];
    int32_t words[3 * N], labels[N];
    double loss;
    duet_device *devices[DUET_MAX_DEVICES] = {NULL};
    duet_params *params = NULL;
    duet_data_parallel *model = NULL;
    duet_tensor *inputs[INPUTS] = {NULL};
    duet_rng *rng = NULL;
    TRY(duet_rng_create(&rng, 0));
    TRY(duet_devices_open(devices, n, "auto", 128 << 20));
    TRY(duet_params_create(&params, devices[0], shapes, PARAMS));
    for (int i = 0; i < PARAMS; i++) {
        duet_rng_normal(rng, values, duet_tensor_count(duet_params_value(params, i)), 0, 0.3);
        TRY(duet_tensor_write(duet_params_value(params, i), values));
    }
    duet_rng_normal(rng, values, N * K, 0, 1);
    duet_rng_integers(rng, DUET_I32, words, 3 * N, 0, WORDS);
    duet_rng_integers(rng, DUET_I32, labels, N, 0, CLASSES);
    TRY(duet_tensor_create(&inputs[NUMBERS], devices[0], DUET_F32, 2, (int[]){N, K}, values));
    TRY(duet_tensor_create(&inputs[NAMES], devices[0], DUET_I32, 2, (int[]){N, 3}, words));
    TRY(duet_tensor_create(&inputs[LABELS], devices[0], DUET_I32, 1, (int[]){N}, labels));
    TRY(duet_data_parallel_create(&model, devices, n, params, NULL, NULL,
                                  &(struct duet_data_parallel_options){.forward_multi = forward}));
    for (int i = 0; i <= STEPS; i++) {
        TRY(step(model, params, inputs, &loss, rows));
        if (i % 50 == 0)
            printf("step %3d: scores of %d rows, %d losses, their mean %.4f\n", i, rows[SCORES],
                   rows[LOSS], loss);
    }
out:
    if (code) fprintf(stderr, "several_inputs: %s\n", duet_error());
    duet_data_parallel_free(model), duet_params_free(params), duet_rng_free(rng);
    for (int i = 0; i < INPUTS; i++)
        duet_tensor_free(inputs[i]);
    if (devices[0]) duet_devices_close(devices, n);
    return duet_exit_status(code);
}
