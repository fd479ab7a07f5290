/* PyTorch's tutorial on a ConvNet for MNIST. One of its scripts trains in one process, and in the
 * other several processes share each batch of 128. A comment at each call names PyTorch's call. The
 * program prints what `duet train --log-loss` writes, bit for bit.
 *
 *     ./convnet_mnist >losses.csv              one epoch, one process
 *     ./convnet_mnist --epochs 2 4             two epochs, four processes
 *     ./convnet_mnist 4 fashion-mnist          four processes, another data set
 *     ./convnet_mnist 4 fashion-mnist 6 plain  six steps without dropout and shuffle: within
 *                              rounding the losses are the same for any number of processes
 *     mpirun -np 4 --host m0:2,m1:2 ./convnet_mnist --num-machines 2 --num-processes 2
 *                              on two machines; MPI knows the tutorial's --machine-id */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "duet.h"

#define TRY(call)                      \
    do {                               \
        if ((code = (call))) goto out; \
    } while (0)

enum { RANKS, DATASET, STEPS, PLAIN, EPOCHS, MACHINES, MACHINE, WORDS }; /* command line */
enum { CN1, CN2, DP1, FC1, DP2, FC2, BATCH = 128 };

/* class ConvNet(nn.Module): def __init__(self) */
static void describe(duet_module *m, void *context) {
    (void)context;
    duet_module_conv2d(m, "cn1", 1, 16, 3, 1, 0, 1); /* nn.Conv2d(1, 16, 3, 1) */
    duet_module_conv2d(m, "cn2", 16, 32, 3, 1, 0, 1);
    duet_module_dropout2d(m, "dp1", 0.10);     /* nn.Dropout2d(0.10): whole planes */
    duet_module_linear(m, "fc1", 4608, 64, 1); /* nn.Linear(4608, 64) */
    duet_module_dropout(m, "dp2", 0.25);       /* Dropout2d of rows drops single numbers, too */
    duet_module_linear(m, "fc2", 64, 10, 1);
}

/* def forward(self, x) */
static duet_var *forward(duet_tape *t, duet_var *x, void *context) {
    int plain = *(const int *)context;
    x = duet_relu(t, duet_layer(t, CN1, x));                              /* (n,16,26,26) */
    x = duet_max_pool2d(t, duet_relu(t, duet_layer(t, CN2, x)), 2, NULL); /* (n,32,12,12) */
    if (!plain) x = duet_layer(t, DP1, x);
    x = duet_relu(t, duet_layer(t, FC1, duet_flatten(t, x))); /* (n,64) */
    if (!plain) x = duet_layer(t, DP2, x);
    return duet_log_softmax(t, duet_layer(t, FC2, x));
}

static int work(int rank, void *context) {
    const struct duet_model model = {"convnet", .describe = describe, .forward = forward};
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
    duet_tensor *sum = NULL;
    struct duet_optimizer_options adadelta = {"adadelta", .lr = 0.5, .rho = 0.9, .eps = 1e-6};
    struct duet_batch b;
    TRY(duet_group_init(&group, 0)); /* dist.init_process_group() */
    n = duet_group_size(group);
    if (n != atoi(words[RANKS]) * atoi(words[MACHINES]) && atoi(words[MACHINES]) > 1) {
        if (rank == 0)
            fprintf(stderr,
                    "convnet_mnist: %d processes run, not %s on each of %s machines: start "
                    "them all at once: mpirun --host MACHINE0:%s,MACHINE1:%s ...\n",
                    n, words[RANKS], words[MACHINES], words[RANKS], words[RANKS]);
        code = 2;
        goto out;
    }
    TRY(duet_device_open(&device, "auto", rank, 256 << 20));
    TRY(duet_params_create_model(&params, device, &model, 10, 0)); /* torch.manual_seed(0) */
    TRY(duet_tape_create(&tape, device));
    if (n > 1) TRY(duet_ddp_create(&ddp, group, params, NULL)); /* DDP(model) */
    TRY(duet_optimizer_create(&optimizer, params, &adadelta));  /* optim.Adadelta(.., lr=0.5) */
    TRY(duet_dataset_open(&set, words[DATASET], NULL, 1));      /* datasets.MNIST(train=True) */
    /* DataLoader(set, 128 // n, sampler=DistributedSampler(set, n, rank)) */
    TRY(duet_loader_create(&loader, set,
                           &(struct duet_loader_options){
                               .batch_size = BATCH / n,
                               .shuffle = plain ? DUET_IN_ORDER : DUET_SHUFFLE,
                               .workers = 1,
                               .device = device, /* pin_memory=True */
                               .rank = rank,
                               .world_size = n,
                               .mean = {0.1302},
                               .std = {0.3069}})); /* transforms.Normalize((0.1302,), (0.3069,)) */
    TRY(duet_tensor_create(&sum, device, DUET_F64, 1, (int[]){1}, NULL));
    const int steps_of_epoch = duet_loader_steps(loader);
    steps = words[STEPS] ? atoi(words[STEPS]) : atoi(words[EPOCHS]) * steps_of_epoch;
    if (rank == 0) printf("step,epoch,loss\n");
    for (int i = 0; i < steps; i++) {
        int epoch = i / steps_of_epoch;
        if (i % steps_of_epoch == 0) TRY(duet_loader_start(loader, epoch)); /* set_epoch(epoch) */
        TRY(duet_loader_next(loader, &b)); /* X.to(device, non_blocking=True), and y */
        TRY(duet_tape_begin(tape, params, b.n, DUET_TRAIN));
        duet_var *scores = forward(tape, duet_input(tape, b.samples), &plain); /* model(X) */
        duet_var *nll =
            duet_nll_loss(tape, scores, b.answers, DUET_MEAN, NULL); /* F.nll_loss(.., y) */
        TRY(duet_backward(tape, nll, NULL)); /* loss.backward(): averaged over the processes */
        TRY(duet_optimizer_step(optimizer)); /* optimizer.step() */
        TRY(duet_loss_read(tape, nll, &loss, NULL));
        TRY(duet_tensor_write(sum, &loss));
        TRY(duet_all_reduce(group, sum, DUET_SUM, NULL)); /* PyTorch's prints each rank's own */
        TRY(duet_tensor_read(sum, &loss));
        if (rank == 0) printf("%d,%d,%.9g\n", i, epoch, loss / (b.n * n)); /* print(loss.item()) */
    }
    if (rank == 0) fprintf(stderr, "Finished training in %.1f secs\n", duet_time() - start);
out:
    duet_tensor_free(sum), duet_loader_free(loader), duet_dataset_free(set),
        duet_optimizer_free(optimizer);
    duet_ddp_free(ddp), duet_tape_free(tape), duet_params_free(params);
    duet_devices_close(&device, 1), duet_group_destroy(&group);
    return code;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* a line reaches a pipe when it is printed */
    const char *words[WORDS] = {"1", "mnist", NULL, NULL, "1", "1", "0"}; /* defaults */
    static const char *const names[WORDS] = {[RANKS] = "--num-processes",
                                             [EPOCHS] = "--epochs",
                                             [MACHINES] = "--num-machines",
                                             [MACHINE] = "--machine-id"};
    for (int w = 0; argc > 2 && w < WORDS; w++) {
        if (!names[w] || strcmp(argv[1], names[w])) continue;
        words[w] = argv[2], argc -= 2, argv += 2;
        w = -1; /* the next word may be any of them */
    }
    for (int i = 1; i < argc && i <= PLAIN + 1; i++)
        words[i - 1] = argv[i];
    if (atoi(words[RANKS]) < 1 || atoi(words[EPOCHS]) < 1 || atoi(words[MACHINES]) < 1 ||
        (words[STEPS] && atoi(words[STEPS]) < 1))
        return fprintf(stderr, "convnet_mnist [--epochs N] [--num-machines M] [RANKS [DATASET "
                               "[STEPS [plain]]]]\n"),
               2;
    int code = duet_spawn(atoi(words[RANKS]), work, words);
    if (code) fprintf(stderr, "convnet_mnist: %s\n", duet_error());
    return duet_exit_status(code);
}
