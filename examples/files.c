/* A data set with one file per sample, which a loader's workers read. In PyTorch it is a Dataset
 * whose __getitem__ opens a file, used by DataLoader(num_workers=N):
 *
 *     ./files FOLDER 0 1 2 4       makes missing files, then runs one epoch for each N
 *
 * The program prints how long the training loop waited for its batches. Choose the smallest number
 * of workers beyond which the wait no longer falls. With 0 the loop reads the files itself, so it
 * waits for all of the reading. More workers than free cores slow down training. The samples, their
 * order and the loss do not depend on N. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "duet.h"

#define TRY(call)                      \
    do {                               \
        if ((code = (call))) goto out; \
    } while (0)

enum { SAMPLES = 1024, K = 784, CLASSES = 10, BATCH = 64, HIDDEN = 256 };

/* FOLDER/17.txt has a label and 784 numbers. */
static void path_of(const char *folder, int i, char path[512]) {
    snprintf(path, 512, "%.480s/%d.txt", folder, i);
}

static int make_files(const char *folder) {
    static float numbers[K];
    char path[512];
    int code;
    duet_rng *rng;
    struct stat there;
    path_of(folder, SAMPLES - 1, path);
    if (!stat(path, &there)) return DUET_OK;
    mkdir(folder, 0777);
    if ((code = duet_rng_create(&rng, 0))) return code;
    for (int i = 0; i < SAMPLES && !code; i++) {
        path_of(folder, i, path);
        FILE *file = fopen(path, "w");
        if (!file) {
            fprintf(stderr, "files: %s: cannot be written\n", path);
            code = DUET_USAGE;
            break;
        }
        duet_rng_normal(rng, numbers, K, 0, 1);
        fprintf(file, "%d\n", numbers[0] > 0 ? i % 5 : 5 + i % 5);
        for (int k = 0; k < K; k++)
            fprintf(file, "%.6f\n", (double)numbers[k]);
        if (fclose(file)) code = DUET_FAILED;
    }
    duet_rng_free(rng);
    return code;
}

/* __getitem__: several workers call it at once. */
static int read_sample(void *context, int i, void *sample, void *answer) {
    float *numbers = sample;
    char path[512], word[64] = "";
    path_of(context, i, path);
    FILE *file = fopen(path, "r");
    if (!file) return DUET_FAILED;
    int read = fgets(word, sizeof word, file) != NULL;
    *(int32_t *)answer = (int32_t)strtol(word, NULL, 10);
    for (int k = 0; k < K && read; k++) {
        read = fgets(word, sizeof word, file) != NULL;
        numbers[k] = strtof(word, NULL);
    }
    fclose(file);
    return read ? DUET_OK : DUET_FAILED;
}

static void describe(duet_module *m, void *context) {
    (void)context;
    duet_module_linear(m, "fc1", K, HIDDEN, 1);
    duet_module_linear(m, "fc2", HIDDEN, CLASSES, 1);
}

static const struct duet_model net = {"net", .sample = {K, 1, 1}, .describe = describe};

/* Trains one epoch from the same start; measures its time, and the time it waited for batches. */
static int epoch(duet_device *device, const duet_dataset *set, int workers) {
    duet_params *params = NULL;
    duet_tape *tape = NULL;
    duet_loader *loader = NULL;
    duet_tensor *X = NULL, *y = NULL;
    double loss = 0, waited = 0, start = duet_time();
    int code, n = 1;
    TRY(duet_params_create_model(&params, device, &net, CLASSES, 0));
    TRY(duet_tape_create(&tape, device));
    TRY(duet_loader_create(&loader, set,
                           &(struct duet_loader_options){
                               .batch_size = BATCH, .shuffle = DUET_SHUFFLE, .workers = workers}));
    TRY(duet_loader_start(loader, 0));
    while (1) {
        struct duet_batch b;
        double before = duet_time();
        TRY(duet_loader_next(loader, &b));
        waited += duet_time() - before;
        if (!b.n) break;
        n = b.n;
        duet_tensor_free(X), duet_tensor_free(y), y = NULL;
        TRY(duet_tensor_create(&X, device, DUET_F32, 2, (int[]){n, K}, b.X));
        TRY(duet_tensor_create(&y, device, DUET_I32, 1, &n, b.y));
        TRY(duet_tape_begin(tape, params, n, DUET_TRAIN));
        duet_var *h = duet_relu(tape, duet_layer(tape, 0, duet_input(tape, X)));
        duet_var *l = duet_cross_entropy(tape, duet_layer(tape, 1, h), y, DUET_MEAN, NULL);
        TRY(duet_backward(tape, l, NULL));
        TRY(duet_sgd(params, 0.1, 1));
        TRY(duet_loss_read(tape, l, &loss, NULL));
    }
    printf("num_workers %2d: epoch %.3f s, of which it waited %.3f s; last loss %.9f\n", workers,
           duet_time() - start, waited, loss / n);
out:
    duet_tensor_free(X), duet_tensor_free(y), duet_loader_free(loader);
    duet_tape_free(tape), duet_params_free(params);
    return code;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* a line reaches a pipe when it is printed */
    duet_device *device = NULL;
    duet_dataset *set = NULL;
    int code;
    if (argc < 3) return fprintf(stderr, "files FOLDER NUM_WORKERS...\n"), DUET_USAGE;
    if ((code = make_files(argv[1]))) return duet_exit_status(code);
    const struct duet_data data = {.count = SAMPLES,
                                   .rank = 1,
                                   .shape = {K},
                                   .type = DUET_F32,
                                   .classes = CLASSES,
                                   .read = read_sample,
                                   .context = argv[1]};
    TRY(duet_devices_open(&device, 1, "auto", 64 << 20));
    TRY(duet_dataset_create(&set, &data));
    for (int i = 2; i < argc; i++)
        TRY(epoch(device, set, atoi(argv[i])));
out:
    if (code) fprintf(stderr, "files: %s\n", duet_error());
    duet_dataset_free(set);
    if (device) duet_devices_close(&device, 1);
    return duet_exit_status(code);
}
