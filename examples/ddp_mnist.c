/* A training script of DistributedDataParallel, as PyTorch's texts write it for MNIST: the ConvNet,
 * Adadelta, one process per device. Beside each call stands what it is in PyTorch.
 *
 *     ./ddp_mnist 4                       four ranks, spawned by the program
 *     torchrun --standalone --nproc-per-node 4 --no-python ./ddp_mnist
 *     ./ddp_mnist 4 synthetic 2 weights   data set, epochs, where rank 0 saves */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "duet.h"

#define TRY(call)                      \
    do {                               \
        if ((code = (call))) goto out; \
    } while (0)

enum { RANKS, DATASET, EPOCHS, SAVE, WORDS };                /* of the command line */
enum { W1, B1, W2, B2, W3, B3, W4, B4, PARAMS, BATCH = 32 }; /* of each rank */
static const struct duet_param shapes[PARAMS] = {
    {"conv1.weight", 4, {32, 1, 3, 3}, NULL},  {"conv1.bias", 1, {32}, NULL},
    {"conv2.weight", 4, {64, 32, 3, 3}, NULL}, {"conv2.bias", 1, {64}, NULL},
    {"fc1.weight", 2, {128, 9216}, NULL},      {"fc1.bias", 1, {128}, NULL},
    {"fc2.weight", 2, {10, 128}, NULL},        {"fc2.bias", 1, {10}, NULL}};

/* nn.Conv2d and nn.Linear draw both from U(-1/sqrt(fan_in), 1/sqrt(fan_in)). */
static int make_params(duet_params **out, duet_device *device) {
    static float values[128 * 9216]; /* of the largest */
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

static duet_var *forward(duet_tape *t, const duet_tensor *X) {
    duet_var *x = duet_relu(t, duet_conv2d(t, duet_input(t, X), W1, B1, 1, 0));
    x = duet_relu(t, duet_conv2d(t, x, W2, B2, 1, 0));
    x = duet_flatten(t, duet_dropout(t, duet_max_pool2d(t, x, 2, 2), 0.25));
    x = duet_dropout(t, duet_relu(t, duet_linear(t, x, W3, B3)), 0.5);
    return duet_log_softmax(t, duet_linear(t, x, W4, B4));
}

/* What each process does: those of mp.spawn, or those of torchrun. */
static int work(int rank, void *context) {
    const char *const *words = context;
    duet_group *group = NULL;
    duet_device *device = NULL;
    duet_params *params = NULL;
    duet_tape *tape = NULL;
    duet_ddp *ddp = NULL;
    duet_dataset *set = NULL;
    duet_loader *loader = NULL;
    duet_optimizer *optimizer = NULL;
    duet_tensor *X = NULL, *y = NULL;
    struct duet_optimizer_options adadelta;
    int code, n;
    TRY(duet_group_init(&group, 0)); /* dist.init_process_group() */
    rank = duet_group_rank(group), n = duet_group_size(group);
    TRY(duet_device_open(&device, "auto", duet_group_local_rank(group), 0));
    TRY(make_params(&params, device));
    TRY(duet_tape_create(&tape, device));
    duet_tape_seed(tape, (uint64_t)rank);                /* other dropout masks on each rank */
    TRY(duet_ddp_create(&ddp, group, params, NULL));     /* DDP(model, device_ids=[rank]) */
    TRY(duet_optimizer_defaults(&adadelta, "adadelta")); /* optim.Adadelta(..., lr=1.0) */
    TRY(duet_optimizer_create(&optimizer, params, &adadelta));
    TRY(duet_dataset_open(&set, words[DATASET], NULL, 1));
    /* DataLoader(set, 32, sampler=DistributedSampler(set)) */
    TRY(duet_loader_create_distributed(&loader, set, BATCH, 1, 0, 0, 1, rank, n));
    for (int epoch = 0; epoch < atoi(words[EPOCHS]); epoch++) {
        struct duet_batch b;
        double loss, sum = 0;
        int steps = duet_loader_steps(loader);
        TRY(duet_loader_start(loader, epoch)); /* sampler.set_epoch(epoch) */
        for (int i = 0; i < steps; i++) {
            TRY(duet_loader_next(loader, &b));
            duet_tensor_free(X), duet_tensor_free(y), y = NULL; /* those of the step before */
            TRY(duet_tensor_create(&X, device, DUET_F32, 4, (int[]){b.n, 1, 28, 28}, b.X));
            TRY(duet_tensor_create(&y, device, DUET_I32, 1, &b.n, b.y));
            TRY(duet_tape_begin(tape, params, b.n, DUET_TRAIN));
            duet_var *nll = duet_nll_loss(tape, forward(tape, X), y, DUET_MEAN);
            TRY(duet_backward(tape, nll));       /* loss.backward(): averaged over the ranks */
            TRY(duet_optimizer_step(optimizer)); /* optimizer.step() */
            TRY(duet_loss_read(tape, nll, &loss, NULL));
            sum += loss / b.n; /* loss.item() */
        }
        if (!rank) printf("epoch %d: mean loss of rank 0 %.4f\n", epoch, sum / steps);
    }
    if (words[SAVE] && !rank) TRY(duet_params_save(params, words[SAVE])); /* on rank 0 alone */
out:
    duet_tensor_free(X), duet_tensor_free(y);
    duet_loader_free(loader);
    duet_dataset_free(set);
    duet_optimizer_free(optimizer);
    duet_ddp_free(ddp);
    duet_tape_free(tape);
    duet_params_free(params);
    duet_devices_close(&device, 1);
    duet_group_destroy(&group); /* dist.destroy_process_group() */
    return code;
}

int main(int argc, char **argv) {
    const char *words[] = {"2", "mnist", "1", NULL}; /* unless others are given */
    for (int i = 1; i < argc && i <= WORDS; i++)
        words[i - 1] = argv[i];
    int code = getenv("RANK") ? work(0, words) : duet_spawn(atoi(words[RANKS]), work, words);
    if (code) fprintf(stderr, "ddp_mnist: %s\n", duet_error());
    return duet_exit_status(code);
}
