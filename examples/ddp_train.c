/* The training script of the tutorials on DistributedDataParallel on one machine. It uses a local
 * rank, SyncBatchNorm and unused parameters; all ranks evaluate and one saves. A comment at each
 * call names PyTorch's call. ddp_traps.c shows what goes wrong without them.
 *
 *     duet run --nproc-per-node 4 ./ddp_train mnist 2 model.safetensors
 *                     data set, epochs, file to save; without `duet run` it spawns two ranks */
#include <stdio.h>
#include <stdlib.h>

#include "duet.h"

#define TRY(call)                      \
    do {                               \
        if ((code = (call))) goto out; \
    } while (0)

enum { CONV, BN, FC, AUX, BATCH = 32 /* batch of each rank */ };

static void describe(duet_module *m, void *context) {
    (void)context;
    duet_module_conv2d(m, "conv", 1, 8, 3, 1, 1, 1);
    duet_module_batch_norm(m, "bn", 8, 1e-5, 0.1);
    duet_module_linear(m, "fc", 8 * 14 * 14, duet_module_classes(m), 1);
    duet_module_linear(m, "aux", 8 * 14 * 14, duet_module_classes(m), 1);
}

/* The layer `aux` has no part in the loss, as happens when a model is changed. */
static duet_var *forward(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    x = duet_layer_relu(t, BN, duet_layer(t, CONV, x)); /* (n,8,28,28) */
    return duet_layer(t, FC, duet_flatten(t, duet_max_pool2d(t, x, 2, NULL)));
}

static const struct duet_model model = {"net", .describe = describe, .forward = forward};

enum { RIGHT, SAMPLES, LOSS, SUMS }; /* sums over an epoch */

/* An epoch of this rank's samples; without an optimizer it evaluates. Adds up the samples with the
 * right answer, all samples, and their losses. */
static int run(duet_tape *tape, duet_params *params, duet_optimizer *optimizer, duet_loader *loader,
               int epoch, double sums[SUMS]) {
    int code = duet_loader_start(loader, epoch); /* sampler.set_epoch(epoch) */
    sums[RIGHT] = sums[SAMPLES] = sums[LOSS] = 0;
    while (!code) {
        struct duet_batch b;
        int64_t right;
        double loss;
        TRY(duet_loader_next(loader, &b)); /* X.to(local_rank, non_blocking=True), and y */
        if (!b.n) break;
        TRY(duet_tape_begin(tape, params, b.n, optimizer ? DUET_TRAIN : DUET_EVALUATE));
        duet_var *scores = forward(tape, duet_input(tape, b.samples), NULL); /* model(X) */
        duet_var *l = duet_cross_entropy(tape, scores, b.answers, DUET_MEAN, NULL);
        if (optimizer)
            TRY(duet_backward(tape, l, NULL)); /* loss.backward(): averaged over the ranks */
        if (optimizer) TRY(duet_optimizer_step(optimizer)); /* optimizer.step() */
        TRY(duet_loss_read(tape, l, &loss, &right));        /* sums over the batch */
        sums[RIGHT] += (double)right, sums[SAMPLES] += b.n, sums[LOSS] += loss;
    }
out:
    return code;
}

static int work(int rank, void *context) {
    char *const *words = context;
    const struct duet_ddp_options options = {.find_unused_parameters = 1};
    const struct duet_optimizer_options sgd = {"sgd", .lr = 0.05, .momentum = 0.9};
    duet_group *group = NULL;
    duet_device *device = NULL;
    duet_params *params = NULL;
    duet_tape *tape = NULL;
    duet_ddp *ddp = NULL;
    duet_optimizer *optimizer = NULL;
    duet_dataset *sets[2] = {NULL}; /* for evaluation and for training */
    duet_loader *loaders[2] = {NULL};
    duet_tensor *total = NULL;
    double sums[SUMS];
    int code, local_rank;
    TRY(duet_group_init(&group, 0)); /* dist.init_process_group("nccl") */
    rank = duet_group_rank(group), local_rank = duet_group_local_rank(group);
    TRY(duet_device_open(&device, "auto", local_rank, 128 << 20)); /* set_device(local_rank) */
    TRY(duet_params_create_model(&params, device, &model, 10, 0));
    TRY(duet_convert_sync_batchnorm(params, group)); /* nn.SyncBatchNorm.convert_sync_batchnorm */
    TRY(duet_ddp_create(&ddp, group, params, &options)); /* DDP(model, device_ids=[local_rank]) */
    TRY(duet_tape_create(&tape, device));
    TRY(duet_optimizer_create(&optimizer, params, &sgd));
    TRY(duet_tensor_create(&total, device, DUET_F64, 1, (int[]){SUMS}, NULL));
    for (int train = 0; train < 2; train++) {
        TRY(duet_dataset_open(&sets[train], words[1], NULL, train));
        /* DataLoader(set, 32, sampler=DistributedSampler(set, shuffle=train)) */
        TRY(duet_loader_create(
            &loaders[train], sets[train],
            &(struct duet_loader_options){.batch_size = BATCH,
                                          .shuffle = train ? DUET_SHUFFLE : DUET_IN_ORDER,
                                          .workers = 1,
                                          .device = device, /* pin_memory=True */
                                          .rank = rank,
                                          .world_size = duet_group_size(group)}));
    }
    for (int epoch = 0; epoch < atoi(words[2]); epoch++) {
        TRY(run(tape, params, optimizer, loaders[1], epoch, sums));
        TRY(run(tape, params, NULL, loaders[0], 0, sums)); /* on all ranks */
        TRY(duet_tensor_write(total, sums));
        TRY(duet_all_reduce(group, total, DUET_SUM, NULL)); /* dist.all_reduce(correct) */
        TRY(duet_tensor_read(total, sums));
        if (rank == 0)
            printf("epoch %d: valid_loss %.4f  test acc %.4f\n", epoch, sums[LOSS] / sums[SAMPLES],
                   sums[RIGHT] / sums[SAMPLES]);
    }
    if (words[3] && rank == 0) TRY(duet_params_save(params, words[3])); /* torch.save on rank 0 */
    TRY(duet_barrier(group, NULL)); /* no rank may load before the file exists */
    if (words[3]) TRY(duet_params_load(params, words[3])); /* model.load_state_dict(torch.load()) */
out:
    for (int train = 0; train < 2; train++)
        duet_loader_free(loaders[train]), duet_dataset_free(sets[train]);
    duet_tensor_free(total), duet_optimizer_free(optimizer), duet_ddp_free(ddp),
        duet_tape_free(tape);
    duet_params_free(params), duet_devices_close(&device, 1), duet_group_destroy(&group);
    return code;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* a line reaches a pipe when it is printed */
    if (argc < 3 || atoi(argv[2]) < 1)
        return fprintf(stderr, "ddp_train DATASET EPOCHS [FILE]\n"), 2;
    int code = duet_spawn(2, work, argv);
    if (code) fprintf(stderr, "ddp_train: %s\n", duet_error());
    return duet_exit_status(code);
}
