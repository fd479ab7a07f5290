/* The training script of the tutorials on DataParallel. One process runs a thread per device,
 * computes the loss on the gathered outputs, evaluates on all devices, and saves. A comment at each
 * call names PyTorch's call.
 *
 *     ./dp_train 4 mnist 2 model.safetensors      devices, data set, epochs, file to save */
#include <stdio.h>
#include <stdlib.h>

#include "duet.h"

#define TRY(call)                      \
    do {                               \
        if ((code = (call))) goto out; \
    } while (0)

enum { CONV, BN, FC, BATCH = 64 /* batch of all devices */ };

static void describe(duet_module *m, void *context) {
    (void)context;
    duet_module_conv2d(m, "conv", 1, 8, 3, 1, 1, 1);
    duet_module_batch_norm(m, "bn", 8, 1e-5, 0.1);
    duet_module_linear(m, "fc", 8 * 14 * 14, duet_module_classes(m), 1);
}

/* Runs on all devices at once, each with its share of the batch. */
static duet_var *forward(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    x = duet_layer_relu(t, BN, duet_layer(t, CONV, x)); /* (n,8,28,28) */
    return duet_layer(t, FC, duet_flatten(t, duet_max_pool2d(t, x, 2, NULL)));
}

static const struct duet_model net = {"net", .describe = describe, .forward = forward};

enum { RIGHT, SAMPLES, LOSS, SUMS }; /* sums over an epoch */

/* Without an optimizer it evaluates. Adds up the samples with the right answer, all samples, and
 * their losses. */
static int run(duet_data_parallel *model, duet_tape *tape, duet_params *params,
               duet_optimizer *optimizer, duet_loader *loader, int epoch, double sums[SUMS]) {
    enum duet_pass pass = optimizer ? DUET_TRAIN : DUET_EVALUATE;
    int code = duet_loader_start(loader, epoch); /* for X, y in loader: */
    sums[RIGHT] = sums[SAMPLES] = sums[LOSS] = 0;
    while (!code) {
        struct duet_batch b;
        int64_t right;
        double sum;
        TRY(duet_loader_next(loader, &b)); /* X.to("cuda:0", non_blocking=True), and y */
        if (!b.n) break;
        TRY(duet_tape_begin(tape, params, b.n, pass));
        duet_var *scores = duet_data_parallel_call(tape, model, b.samples); /* model(X) */
        /* the loss is computed on device 0 only */
        duet_var *loss = duet_cross_entropy(tape, scores, b.answers, DUET_MEAN, NULL);
        if (optimizer) TRY(duet_backward(tape, loss, NULL)); /* loss.backward() */
        if (optimizer) TRY(duet_optimizer_step(optimizer));  /* optimizer.step() */
        TRY(duet_loss_read(tape, loss, &sum, &right));       /* sums over the batch */
        sums[RIGHT] += (double)right, sums[SAMPLES] += b.n, sums[LOSS] += sum;
    }
out:
    return code;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* a line reaches a pipe when it is printed */
    const struct duet_optimizer_options sgd = {"sgd", .lr = 0.05, .momentum = 0.9};
    duet_device *devices[DUET_MAX_DEVICES] = {NULL};
    duet_params *params = NULL;
    duet_data_parallel *model = NULL;
    duet_tape *tape = NULL;
    duet_optimizer *optimizer = NULL;
    duet_dataset *sets[2] = {NULL}; /* for evaluation and for training */
    duet_loader *loaders[2] = {NULL};
    double sums[SUMS];
    if (argc < 4 || atoi(argv[3]) < 1)
        return fprintf(stderr, "dp_train DEVICES DATASET EPOCHS [FILE]\n"), 2;
    int code, n = atoi(argv[1]);
    TRY(duet_devices_open(devices, n, "auto", 128 << 20));
    if (n > 1) printf("Let's use %d devices!\n", n);
    TRY(duet_params_create_model(&params, devices[0], &net, 10, 0)); /* model.to("cuda:0") */
    /* nn.DataParallel(model, device_ids=[0, ..., n - 1], output_device=0) */
    TRY(duet_data_parallel_create(&model, devices, n, params, forward, NULL, NULL));
    TRY(duet_tape_create(&tape, devices[0]));
    TRY(duet_optimizer_create(&optimizer, params, &sgd)); /* optim.SGD(model.parameters(), ...) */
    for (int train = 0; train < 2; train++) {
        TRY(duet_dataset_open(&sets[train], argv[2], NULL, train));
        TRY(duet_loader_create(
            &loaders[train], sets[train],
            &(struct duet_loader_options){.batch_size = BATCH,
                                          .shuffle = train ? DUET_SHUFFLE : DUET_IN_ORDER,
                                          .workers = 1,
                                          .device = devices[0]})); /* pin_memory=True */
    }
    for (int epoch = 0; epoch < atoi(argv[3]); epoch++) {
        TRY(run(model, tape, params, optimizer, loaders[1], epoch, sums));
        TRY(run(model, tape, params, NULL, loaders[0], 0, sums)); /* model.eval() */
        printf("epoch %d: valid_loss %.4f  test acc %.4f\n", epoch, sums[LOSS] / sums[SAMPLES],
               sums[RIGHT] / sums[SAMPLES]);
    }
    if (argv[4]) TRY(duet_params_save(params, argv[4])); /* torch.save(model.module.state_dict()) */
out:
    if (code) fprintf(stderr, "dp_train: %s\n", duet_error());
    for (int train = 0; train < 2; train++)
        duet_loader_free(loaders[train]), duet_dataset_free(sets[train]);
    duet_data_parallel_free(model), duet_optimizer_free(optimizer);
    duet_tape_free(tape), duet_params_free(params);
    if (devices[0]) duet_devices_close(devices, n);
    return duet_exit_status(code);
}
