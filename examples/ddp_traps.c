/* Three common mistakes in DistributedDataParallel scripts, what each causes, and its repair:
 *
 *     ./ddp_traps set_epoch      every epoch serves the samples in the same order
 *     ./ddp_traps evaluate       rank 0 evaluates alone, and waits for ranks that never join
 *     ./ddp_traps prepare        rank 1 reads data that rank 0 has not prepared yet
 *     ./ddp_traps ... mended     the same without the mistake
 *     ./ddp_traps evaluate module     rank 0 evaluates alone, with the module that DDP wraps */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "duet.h"

#define TRY(call)                      \
    do {                               \
        if ((code = (call))) goto out; \
    } while (0)

enum { RANKS = 2, TIMEOUT_S = 2, SAMPLES = 4, K = 6 };

/* sampler.set_epoch(epoch) belongs before each epoch, which then shuffles anew. */
static int set_epoch(duet_group *group, int mended) {
    int code, rank = duet_group_rank(group);
    const struct duet_loader_options options = {
        .batch_size = 8, .shuffle = DUET_SHUFFLE, .rank = rank, .world_size = RANKS};
    duet_dataset *set = NULL;
    duet_loader *loader = NULL;
    TRY(duet_dataset_open(&set, "random", NULL, 1));
    TRY(duet_loader_create(&loader, set, &options));
    for (int epoch = 0; epoch < 2 && rank == 0; epoch++) {
        struct duet_batch b;
        TRY(duet_loader_start(loader, mended ? epoch : 0));
        TRY(duet_loader_next(loader, &b));
        printf("epoch %d begins with the labels", epoch);
        for (int i = 0; i < b.n; i++)
            printf(" %d%s", b.y[i], i + 1 < b.n ? "" : "\n");
    }
out:
    duet_loader_free(loader), duet_dataset_free(set);
    return code;
}

static void describe(duet_module *m, void *context) {
    (void)context;
    duet_module_linear(m, "fc", K, duet_module_classes(m), 1);
    duet_module_batch_norm(m, "bn", duet_module_classes(m), 1e-5, 0.1);
}

static const struct duet_model model = {"net", .sample = {K, 1, 1}, .describe = describe};

static int pass(duet_tape *tape, duet_params *params, const duet_tensor *x, const duet_tensor *y,
                enum duet_pass kind) {
    int code = duet_tape_begin(tape, params, SAMPLES, kind);
    if (code) return code;
    duet_var *scores = duet_layer(tape, 1, duet_layer(tape, 0, duet_input(tape, x)));
    return y ? duet_backward(tape, duet_cross_entropy(tape, scores, y, DUET_MEAN, NULL), NULL)
             : duet_tape_error(tape);
}

/* A forward of DDP is collective where there is a BatchNorm, since rank 0's running statistics go
 * to all ranks first. So all ranks evaluate, or one evaluates the module that DDP wraps. */
static int evaluate(duet_group *group, const char *way) {
    int mended = way && !strcmp(way, "mended"), module = way && !strcmp(way, "module");
    duet_device *device = NULL;
    duet_params *params = NULL;
    duet_tape *tape = NULL;
    duet_ddp *ddp = NULL;
    duet_tensor *x = NULL, *y = NULL;
    int code, rank = duet_group_rank(group);
    TRY(duet_device_open(&device, "auto", duet_group_local_rank(group), 128 << 20));
    TRY(duet_params_create_model(&params, device, &model, 10, 0));
    TRY(duet_ddp_create(&ddp, group, params, NULL));
    TRY(duet_tape_create(&tape, device));
    TRY(duet_tensor_create(&x, device, DUET_F32, 2, (int[]){SAMPLES, K}, NULL));
    TRY(duet_tensor_create(&y, device, DUET_I32, 1, (int[]){SAMPLES}, NULL));
    TRY(pass(tape, params, x, y, DUET_TRAIN));
    if (rank == 0 || mended)
        TRY(pass(tape, params, x, NULL, module ? DUET_EVALUATE_MODULE : DUET_EVALUATE));
    if (rank != 0 && !way) sleep(60); /* busy with other work */
    if (rank == 0) printf("evaluated\n");
out:
    duet_tensor_free(x), duet_tensor_free(y), duet_ddp_free(ddp), duet_tape_free(tape);
    duet_params_free(params), duet_devices_close(&device, 1);
    return code;
}

/* The first process prepares the data while the others wait: all come to one barrier, the others
 * before they look, the first when it is done. */
static int prepare(duet_group *group, int rank, int mended) {
    const char *file = "prepared.txt";
    int code = DUET_OK;
    FILE *f;
    if (mended && rank != 0) code = duet_barrier(group, NULL);
    if (rank == 0) {
        sleep(1); /* pretends to download and unpack */
        if ((f = fopen(file, "w"))) fclose(f);
    }
    if (mended && rank == 0) code = duet_barrier(group, NULL);
    printf("rank %d: the data is %sthere\n", rank, access(file, R_OK) ? "not " : "");
    return code;
}

static int work(int rank, void *context) {
    char **words = context;
    duet_group *group = NULL;
    int mended = words[2] != NULL, waits = !strcmp(words[1], "evaluate");
    int code = duet_group_init(&group, waits && !mended ? TIMEOUT_S : 0);
    if (!code)
        code = waits                            ? evaluate(group, words[2])
               : !strcmp(words[1], "set_epoch") ? set_epoch(group, mended)
                                                : prepare(group, rank, mended);
    duet_group_destroy(&group);
    return code;
}

static int is_known(const char *trap, const char *way) {
    int evaluates = !strcmp(trap, "evaluate");
    return (evaluates || !strcmp(trap, "set_epoch") || !strcmp(trap, "prepare")) &&
           (!way || !strcmp(way, "mended") || (evaluates && !strcmp(way, "module")));
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* a line reaches a pipe when it is printed */
    if (argc < 2 || !is_known(argv[1], argv[2])) {
        fprintf(stderr, "ddp_traps set_epoch|evaluate|prepare [mended], or evaluate module\n");
        return 2;
    }
    remove("prepared.txt"); /* left by an earlier run */
    int code = duet_spawn(RANKS, work, argv);
    if (code) fprintf(stderr, "ddp_traps: %s\n", duet_error());
    return duet_exit_status(code);
}
