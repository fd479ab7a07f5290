/* ResNet-18 on several devices with DataParallel, as in "Dive into Deep Learning" 13.6.
 *
 *     ./resnet18 2 512 0.2 fashion-mnist 10     train(net, num_gpus=2, batch_size=512, lr=0.2) */
#include <stdio.h>
#include <stdlib.h>

#include "duet.h"

#define TRY(call)                      \
    do {                               \
        if ((code = (call))) goto out; \
    } while (0)
#define HALVES(i) ((i) > 0 && (i) % 2 == 0) /* residual i, the first of block 2, 3 and 4 */

static void describe(duet_module *m, void *context) {
    static const char *const parts[] = {"conv1", "conv2", "conv3", "bn1", "bn2"};
    char name[40];
    (void)context;
    duet_module_conv2d(m, "0", 1, 64, 3, 1, 1, 1);
    duet_module_batch_norm(m, "1", 64, 1e-5, 0.1);
    for (int i = 0, in = 64, out = 64; i < 8; i++, in = out) { /* class Residual(nn.Module) */
        const int s = 1 + HALVES(i), k[] = {3, 3, 1}, stride[] = {s, 1, s};
        out *= s;
        for (int p = 0; p < 5; p++) {
            snprintf(name, sizeof name, "resnet_block%d.%d.%s", i / 2 + 1, i % 2, parts[p]);
            if (p > 2)
                duet_module_batch_norm(m, name, out, 1e-5, 0.1);
            else if (p < 2 || HALVES(i))
                duet_module_conv2d(m, name, p == 1 ? out : in, out, k[p], stride[p], k[p] / 2, 1);
        }
    }
    duet_module_linear(m, "fc.1", 512, duet_module_classes(m), 1);
}

/* nn.init.normal_(weight, std=0.01) of all but the norms, which are 1. Biases are in between. */
static void init(const duet_module *m, duet_rng *rng, float *const *values, void *context) {
    (void)context;
    for (int i = 0; duet_module_count(m, i); i += 2)
        if (values[i][0] != 1) duet_rng_normal(rng, values[i], duet_module_count(m, i), 0, 0.01);
}

/* x (n,1,28,28) -> (n,10). Runs on all devices at once, each with its share of the batch. */
static duet_var *forward(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    x = duet_layer_relu(t, 1, duet_layer(t, 0, x));
    for (int i = 0, conv = 2; i < 8; i++) {
        int bn = conv + 2 + HALVES(i);
        duet_var *y = duet_layer(t, conv + 1, duet_layer_relu(t, bn, duet_layer(t, conv, x)));
        x = duet_layer_add_relu(t, bn + 1, y, HALVES(i) ? duet_layer(t, conv + 2, x) : x);
        conv = bn + 2;
    }
    x = duet_flatten(t, duet_adaptive_avg_pool2d(t, x, 1, 1)); /* (n,512) */
    return duet_layer(t, duet_layer_count(t) - 1, x);
}

/* An epoch of training, or with lr < 0 evaluate_accuracy_gpu. */
static int run(duet_data_parallel *net, duet_params *params, duet_tape *tape, duet_device *first,
               duet_loader *iter, int epoch, double lr) {
    duet_tensor *X = NULL, *y = NULL, *output = NULL, *grad = NULL;
    enum duet_pass pass = lr < 0 ? DUET_EVALUATE : DUET_TRAIN;
    int64_t right = 0, all = 0, hits;
    double start = duet_time(), said = start;
    int code = duet_loader_start(iter, epoch);
    for (struct duet_batch b; !code; right += hits, all += b.n) {
        if (duet_time() - said > 10) { /* an epoch takes many minutes on emulated devices */
            said = duet_time();
            fprintf(stderr, "epoch %d: %lld samples in %.0f s\n", epoch, (long long)all,
                    said - start);
        }
        TRY(duet_loader_next(iter, &b)); /* for X, y in train_iter: */
        if (!b.n) break;
        duet_tensor_free(X), duet_tensor_free(y), duet_tensor_free(output), duet_tensor_free(grad);
        X = y = output = grad = NULL; /* the previous step's tensors */
        TRY(duet_tensor_create(&X, first, DUET_F32, 4, (int[]){b.n, 1, 28, 28}, b.X));
        TRY(duet_tensor_create(&y, first, DUET_I32, 1, &b.n, b.y));
        TRY(duet_data_parallel_forward(net, &X, 1, &output, 1, pass)); /* net(X) */
        TRY(duet_tape_begin(tape, NULL, b.n, pass));
        duet_var *scores = duet_leaf(tape, output);
        duet_var *l =
            duet_cross_entropy(tape, scores, y, DUET_MEAN, NULL); /* l = loss(net(X), y) */
        TRY(duet_loss_read(tape, l, NULL, &hits));
        if (lr < 0) continue;
        TRY(duet_backward(tape, l, NULL)); /* l.backward() */
        TRY(duet_var_grad(&grad, tape, scores));
        TRY(duet_data_parallel_backward(net, &grad, 1));
        TRY(duet_sgd(params, lr, 1)); /* trainer.step() */
    }
    printf(lr < 0 ? "test acc: %.2f\n" : "%.1f sec/epoch, ",
           lr < 0 ? 1. * right / all : duet_time() - start);
out:
    duet_tensor_free(X), duet_tensor_free(y), duet_tensor_free(output), duet_tensor_free(grad);
    return code;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* a line reaches a pipe when it is printed */
    const struct duet_model resnet18 = {"resnet18", .describe = describe, .init = init};
    if (argc < 6 || atoi(argv[5]) < 1)
        return fprintf(stderr, "resnet18 GPUS BATCH_SIZE LR DATASET EPOCHS [FILE]\n"), 2;
    int code, n = atoi(argv[1]);
    duet_device *devices[DUET_MAX_DEVICES] = {NULL};
    duet_params *params = NULL;
    duet_tape *tape = NULL;
    duet_data_parallel *net = NULL;
    duet_dataset *sets[2] = {NULL}; /* test, train */
    duet_loader *iters[2] = {NULL};
    TRY(duet_devices_open(devices, n, "auto", 0));
    TRY(duet_params_create_model(&params, devices[0], &resnet18, 10, 0));
    TRY(duet_data_parallel_create(&net, devices, n, params, forward, NULL, NULL)); /* nn.Data... */
    TRY(duet_tape_create(&tape, devices[0]));
    for (int train = 0; train < 2; train++) { /* d2l.load_data_fashion_mnist(batch_size) */
        TRY(duet_dataset_open(&sets[train], argv[4], NULL, train));
        TRY(duet_loader_create(
            &iters[train], sets[train],
            &(struct duet_loader_options){.batch_size = atoi(argv[2]),
                                          .shuffle = train ? DUET_SHUFFLE : DUET_IN_ORDER,
                                          .workers = 1}));
    }
    for (int epoch = 0; epoch < atoi(argv[5]); epoch++) {
        TRY(run(net, params, tape, devices[0], iters[1], epoch, atof(argv[3])));
        TRY(run(net, params, tape, devices[0], iters[0], 0, -1));
    }
    if (argv[6]) TRY(duet_params_save(params, argv[6]));
out:
    if (code) fprintf(stderr, "resnet18: %s\n", duet_error());
    duet_loader_free(iters[0]), duet_loader_free(iters[1]), duet_dataset_free(sets[0]);
    duet_dataset_free(sets[1]), duet_data_parallel_free(net), duet_params_free(params);
    duet_tape_free(tape);
    if (devices[0]) duet_devices_close(devices, n);
    return duet_exit_status(code);
}
