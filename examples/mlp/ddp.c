/* DistributedDataParallel: one process per device. Run `duet run --nproc-per-node 4 ./ddp`. Started
 * directly, ./ddp spawns two processes. */
#include "mlp.h"

static int work(int rank, void *context) {
    duet_group *group = NULL;
    duet_ddp *ddp = NULL;
    duet_tensor *total = NULL;
    (void)context;
    duet_device *devices[1] = {NULL};
    duet_params *params = NULL;
    duet_tape *tape = NULL;
    duet_tensor *X = NULL, *y = NULL;
    double loss;
    int code, n;
    TRY(duet_group_init(&group, 0));
    rank = duet_group_rank(group), n = BATCH / duet_group_size(group);
    TRY(duet_device_open(devices, "auto", duet_group_local_rank(group), 64 << 20));
    TRY(duet_params_create_model(&params, devices[0], &mlp, CLASSES, 0));
    TRY(duet_ddp_create(&ddp, group, params, NULL));
    TRY(duet_tape_create(&tape, devices[0]));
    TRY(mlp_batch(devices[0], rank * n, n, &X, &y));
    TRY(duet_tensor_create(&total, devices[0], DUET_F64, 1, (int[]){1}, NULL));
    for (int step = 0; step < STEPS; step++) {
        TRY(duet_tape_begin(tape, params, n, DUET_TRAIN));
        duet_var *scores = mlp.forward(tape, duet_input(tape, X), NULL);
        duet_var *l = duet_cross_entropy(tape, scores, y, DUET_MEAN, NULL);
        TRY(duet_backward(tape, l, NULL));
        TRY(duet_sgd(params, 0.5, 1));
        TRY(duet_loss_read(tape, l, &loss, NULL));
        TRY(duet_tensor_write(total, &loss));
        TRY(duet_all_reduce(group, total, DUET_SUM, NULL));
        TRY(duet_tensor_read(total, &loss));
        if (rank == 0) printf("step %d: loss %.6f\n", step, loss / BATCH);
    }
out:
    duet_tensor_free(total), duet_ddp_free(ddp);
    duet_tensor_free(X), duet_tensor_free(y), duet_tape_free(tape), duet_params_free(params);
    duet_devices_close(devices, 1), duet_group_destroy(&group);
    return code;
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* a line reaches a pipe when it is printed */
    int code = duet_spawn(2, work, NULL);
    if (code) fprintf(stderr, "%s\n", duet_error());
    return duet_exit_status(code);
}
