/* The training loop at the end of the tutorials on DataParallel: ten epochs over 100 random samples
 * with random labels, cross entropy and SGD with momentum. It prints the loss of each epoch's last
 * batch. ComplexModel has 655,370 weights in its last layer and has memorised the batch's four
 * samples after one epoch. So its loss is 0.0000 from then on, as in PyTorch.
 *
 *     ./epochs 2            SimpleModel, torch.randn(100, 10), on two devices
 *     ./epochs 2 complex    ComplexModel, torch.randn(100, 3, 32, 32)
 *
 * In PyTorch:
 *
 *     model = nn.DataParallel(ComplexModel())
 *     for epoch in range(10):
 *         for inputs, labels in loader:                 # batches of 32
 *             optimizer.zero_grad()                     # set_to_none, the default
 *             loss = criterion(model(inputs), labels)
 *             loss.backward()
 *             optimizer.step()
 *         print(f"Epoch [{epoch + 1}/10], Loss: {loss.item():.4f}") */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "duet.h"

#define TRY(call)                      \
    do {                               \
        if ((code = (call))) goto out; \
    } while (0)

enum { ROWS = 100, BATCH = 32, EPOCHS = 10, CLASSES = 10, PIXELS = 3 * 32 * 32 };

static void describe_simple(duet_module *m, void *context) {
    (void)context;
    duet_module_linear(m, "fc", 10, CLASSES, 1); /* fc.weight, fc.bias */
}

static duet_var *simple(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    return duet_layer(t, 0, x);
}

static void describe_complex(duet_module *m, void *context) {
    (void)context;
    duet_module_conv2d(m, "conv1", 3, 64, 3, 1, 1, 1); /* conv1.weight, conv1.bias */
    duet_module_linear(m, "fc", 64 * 32 * 32, CLASSES, 1);
}

static duet_var *complex(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    return duet_layer(t, 1, duet_flatten(t, duet_relu(t, duet_layer(t, 0, x))));
}

static const struct duet_model models[2] = {
    {"simple", .sample = {10, 1, 1}, .describe = describe_simple, .forward = simple},
    {"complex", .sample = {3, 32, 32}, .describe = describe_complex, .forward = complex}};

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* a line reaches a pipe when it is printed */
    static float samples[ROWS * PIXELS];
    static int32_t labels[ROWS];
    int n = argc > 1 ? atoi(argv[1]) : 2, is_complex = argc > 2 && !strcmp(argv[2], "complex");
    const struct duet_model *net = &models[is_complex];
    const struct duet_optimizer_options sgd = {"sgd", .lr = 0.01, .momentum = 0.9};
    const int shape[4] = {ROWS, is_complex ? 3 : 10, 32, 32};
    duet_device *devices[DUET_MAX_DEVICES] = {NULL};
    duet_params *params = NULL;
    duet_data_parallel *model = NULL;
    duet_tape *tape = NULL;
    duet_optimizer *optimizer = NULL;
    duet_tensor *inputs = NULL, *targets = NULL, *x = NULL, *y = NULL;
    duet_rng *rng = NULL;
    int code;
    if (n < 1 || (argc > 2 && !is_complex && strcmp(argv[2], "simple")))
        return fprintf(stderr, "epochs [DEVICES [simple | complex]]: 1 to 64 devices\n"), 2;
    TRY(duet_devices_open(devices, n, "auto", 128 << 20));
    if (n > 1) printf("Let's use %d devices!\n", n);
    TRY(duet_rng_create(&rng, 0)); /* torch.manual_seed(0) */
    duet_rng_normal(rng, samples, ROWS * (is_complex ? PIXELS : 10), 0, 1);
    TRY(duet_rng_integers(rng, DUET_I32, labels, ROWS, 0, CLASSES));
    TRY(duet_tensor_create(&inputs, devices[0], DUET_F32, is_complex ? 4 : 2, shape, samples));
    TRY(duet_tensor_create(&targets, devices[0], DUET_I32, 1, shape, labels));
    TRY(duet_params_create_model(&params, devices[0], net, CLASSES, 0));
    TRY(duet_data_parallel_create(&model, devices, n, params, net->forward, NULL, NULL));
    TRY(duet_tape_create(&tape, devices[0]));
    TRY(duet_optimizer_create(&optimizer, params, &sgd));
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        double loss = 0;
        for (int i = 0; i < ROWS; i += BATCH) {
            int rows = ROWS - i < BATCH ? ROWS - i : BATCH;
            duet_tensor_free(x), duet_tensor_free(y), y = NULL;
            TRY(duet_tensor_rows(&x, inputs, i, rows));
            TRY(duet_tensor_rows(&y, targets, i, rows));
            TRY(duet_zero_grad(params)); /* gradients are now None */
            TRY(duet_tape_begin(tape, params, rows, DUET_TRAIN));
            duet_var *output = duet_data_parallel_call(tape, model, x);
            duet_var *l = duet_cross_entropy(tape, output, y, DUET_MEAN, NULL);
            TRY(duet_backward(tape, l, NULL));
            TRY(duet_optimizer_step(optimizer));
            TRY(duet_loss_read(tape, l, &loss, NULL));
            loss /= rows;
        }
        printf("Epoch [%d/%d], Loss: %.4f\n", epoch + 1, EPOCHS, loss);
    }
out:
    if (code) fprintf(stderr, "epochs: %s\n", duet_error());
    duet_tensor_free(x), duet_tensor_free(y), duet_tensor_free(inputs), duet_tensor_free(targets);
    duet_optimizer_free(optimizer), duet_tape_free(tape), duet_data_parallel_free(model);
    duet_params_free(params), duet_rng_free(rng);
    if (devices[0]) duet_devices_close(devices, n);
    return duet_exit_status(code);
}
