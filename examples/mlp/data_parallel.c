/* DataParallel: one process trains on several devices. Run `./data_parallel 4`. */
#include "mlp.h"

int main(int argc, char **argv) {
    duet_device *devices[DUET_MAX_DEVICES] = {NULL};
    duet_params *params = NULL;
    duet_tape *tape = NULL;
    duet_data_parallel *model = NULL;
    duet_tensor *X = NULL, *y = NULL;
    double loss;
    int code, n = argc > 1 ? atoi(argv[1]) : 2;
    setvbuf(stdout, NULL, _IOLBF, 0); /* a line reaches a pipe when it is printed */
    TRY(duet_devices_open(devices, n, "auto", 64 << 20));
    if (n > 1) printf("Let's use %d devices!\n", n);
    TRY(duet_params_create_model(&params, devices[0], &mlp, CLASSES, 0));
    TRY(duet_data_parallel_create(&model, devices, n, params, mlp.forward, NULL, NULL));
    TRY(duet_tape_create(&tape, devices[0]));
    TRY(mlp_batch(devices[0], 0, BATCH, &X, &y));
    for (int step = 0; step < STEPS; step++) {
        TRY(duet_tape_begin(tape, params, BATCH, DUET_TRAIN));
        duet_var *scores = duet_data_parallel_call(tape, model, X);
        duet_var *l = duet_cross_entropy(tape, scores, y, DUET_MEAN, NULL);
        TRY(duet_backward(tape, l, NULL));
        TRY(duet_sgd(params, 0.5, 1));
        TRY(duet_loss_read(tape, l, &loss, NULL));
        printf("step %d: loss %.6f\n", step, loss / BATCH);
    }
out:
    if (code) fprintf(stderr, "%s\n", duet_error());
    duet_data_parallel_free(model);
    duet_tensor_free(X), duet_tensor_free(y), duet_tape_free(tape), duet_params_free(params);
    if (devices[0]) duet_devices_close(devices, n);
    return duet_exit_status(code);
}
