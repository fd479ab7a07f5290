/* PyTorch's text on the ConvNet of MNIST: one script that trains it alone, and one in which several
 * processes share each batch of 128. Beside each call stands what it is in PyTorch. It prints what
 * `duet train --log-loss` writes, to the bit.
 *
 *     ./convnet_mnist >losses.csv              one epoch, alone
 *     ./convnet_mnist 4 fashion-mnist          by four processes, with another data set
 *     ./convnet_mnist 4 fashion-mnist 6 plain  six steps without dropout and shuffle, whose losses
 *                              are the same, but for rounding, on any number of processes */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "duet.h"

#define TRY(call)                      \
    do {                               \
        if ((code = (call))) goto out; \
    } while (0)

enum { RANKS, DATASET, STEPS, PLAIN, WORDS }; /* of the command line */
enum { W1, B1, W2, B2, W3, B3, W4, B4, PARAMS, BATCH = 128, PIXELS = 28 * 28 };
static const struct duet_param shapes[PARAMS] = {
    {"cn1.weight", 4, {16, 1, 3, 3}, NULL},  {"cn1.bias", 1, {16}, NULL},
    {"cn2.weight", 4, {32, 16, 3, 3}, NULL}, {"cn2.bias", 1, {32}, NULL},
    {"fc1.weight", 2, {64, 4608}, NULL},     {"fc1.bias", 1, {64}, NULL},
    {"fc2.weight", 2, {10, 64}, NULL},       {"fc2.bias", 1, {10}, NULL}};

/* nn.Conv2d and nn.Linear draw both from U(-1/sqrt(fan_in), 1/sqrt(fan_in)). */
static int make_params(duet_params **out, duet_device *device) {
    static float values[64 * 4608]; /* of the largest */
    duet_rng *rng = NULL;
    double bound = 1;
    int code;
    TRY(duet_rng_create(&rng, 0)); /* torch.manual_seed(0) */
    TRY(duet_params_create(out, device, shapes, PARAMS));
    for (int i = 0; i < PARAMS; i++) {
        duet_tensor *value = duet_params_value(*out, i);
        size_t count = duet_tensor_count(value);
        if (shapes[i].rank > 1) bound = 1 / sqrt((double)count / shapes[i].shape[0]);
        duet_rng_uniform(rng, values, count, -bound, bound);
        TRY(duet_tensor_write(value, values));
    }
out:
    duet_rng_free(rng);
    return code;
}

static duet_var *forward(duet_tape *t, const duet_tensor *X, int plain) {
    duet_var *x = duet_relu(t, duet_conv2d(t, duet_input(t, X), W1, B1, 1, 0));
    x = duet_max_pool2d(t, duet_relu(t, duet_conv2d(t, x, W2, B2, 1, 0)), 2, 2);
    x = duet_flatten(t, duet_dropout(t, x, plain ? 0 : 0.10));
    x = duet_dropout(t, duet_relu(t, duet_linear(t, x, W3, B3)), plain ? 0 : 0.25);
    return duet_log_softmax(t, duet_linear(t, x, W4, B4));
}

static int work(int rank, void *context) {
    static float x[BATCH * PIXELS];
    const char *const *words = context;
    int code, n, steps, plain = words[PLAIN] != NULL;
    double loss, start = duet_time();
    duet_group *group = NULL;
    duet_device *device = NULL;
    duet_params *params = NULL;
    duet_tape *tape = NULL;
    duet_ddp *ddp = NULL;
    duet_dataset *set = NULL;
    duet_loader *loader = NULL;
    duet_optimizer *optimizer = NULL;
    duet_tensor *X = NULL, *y = NULL, *sum = NULL;
    struct duet_optimizer_options adadelta = {"adadelta", .lr = 0.5, .rho = 0.9, .eps = 1e-6};
    struct duet_batch b;
    TRY(duet_group_init(&group, 0)); /* dist.init_process_group() */
    TRY(duet_device_open(&device, "auto", rank, 256 << 20));
    TRY(make_params(&params, device));
    TRY(duet_tape_create(&tape, device));
    n = duet_group_size(group);
    if (n > 1) TRY(duet_ddp_create(&ddp, group, params, NULL)); /* DDP(model) */
    TRY(duet_optimizer_create(&optimizer, params, &adadelta));  /* optim.Adadelta(.., lr=0.5) */
    TRY(duet_dataset_open(&set, words[DATASET], NULL, 1));      /* datasets.MNIST(train=True) */
    /* DataLoader(set, 128 // n, sampler=DistributedSampler(set, n, rank)) */
    TRY(duet_loader_create_distributed(&loader, set, BATCH / n, !plain, 0, 0, 1, rank, n));
    TRY(duet_loader_start(loader, 0)); /* sampler.set_epoch(0) */
    TRY(duet_tensor_create(&sum, device, DUET_F64, 1, (int[]){1}, NULL));
    steps = words[STEPS] ? atoi(words[STEPS]) : duet_loader_steps(loader);
    if (rank == 0) printf("step,epoch,loss\n");
    for (int i = 0; i < steps; i++) {
        TRY(duet_loader_next(loader, &b));
        for (int k = 0; k < b.n * PIXELS; k++) /* transforms.Normalize((0.1302,), (0.3069,)) */
            x[k] = (b.X[k] - 0.1302f) / 0.3069f;
        duet_tensor_free(X), duet_tensor_free(y), y = NULL; /* those of the step before */
        TRY(duet_tensor_create(&X, device, DUET_F32, 4, (int[]){b.n, 1, 28, 28}, x));
        TRY(duet_tensor_create(&y, device, DUET_I32, 1, &b.n, b.y));
        TRY(duet_tape_begin(tape, params, b.n, DUET_TRAIN));
        duet_var *nll = duet_nll_loss(tape, forward(tape, X, plain), y, DUET_MEAN);
        TRY(duet_backward(tape, nll));       /* loss.backward(): averaged over the processes */
        TRY(duet_optimizer_step(optimizer)); /* optimizer.step() */
        TRY(duet_loss_read(tape, nll, &loss, NULL));
        TRY(duet_tensor_write(sum, &loss));
        TRY(duet_all_reduce(group, sum, DUET_SUM, NULL)); /* PyTorch's prints that of each rank */
        TRY(duet_tensor_read(sum, &loss));
        if (rank == 0) printf("%d,0,%.9g\n", i, loss / (b.n * n)); /* print(loss.item()) */
    }
    if (rank == 0) fprintf(stderr, "Finished training in %.1f secs\n", duet_time() - start);
out:
    duet_tensor_free(X), duet_tensor_free(y), duet_tensor_free(sum);
    duet_loader_free(loader), duet_dataset_free(set), duet_optimizer_free(optimizer);
    duet_ddp_free(ddp), duet_tape_free(tape), duet_params_free(params);
    duet_devices_close(&device, 1), duet_group_destroy(&group);
    return code;
}

int main(int argc, char **argv) {
    const char *words[] = {"1", "mnist", NULL, NULL}; /* unless others are given */
    for (int i = 1; i < argc && i <= WORDS; i++)
        words[i - 1] = argv[i];
    int code = duet_spawn(atoi(words[RANKS]), work, words);
    if (code) fprintf(stderr, "convnet_mnist: %s\n", duet_error());
    return duet_exit_status(code);
}
