/* Model parallelism: a model is split by layers over two devices of one process. It trains first
 * with whole batches, then with micro-batches in a pipeline. A comment at each call names
 * PyTorch's. The program checks that the split model has the bits of the whole one. If you name a
 * file, it records there when each device computed in the last step, for `duet report` to draw.
 *
 *     ./model_parallel 1 cpu-async one.json      one batch, on emulated devices
 *     ./model_parallel 4 cpu-async parts.json    in four micro-batches
 *     ./model_parallel 4 cuda                    on GPUs, without such a file
 *     duet run --nproc-per-node 2 ./model_parallel 4      with DDP: four devices */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "duet.h"

#define TRY(call)                      \
    do {                               \
        if ((code = (call))) goto out; \
    } while (0)

enum { WIDTH = 256, LAYERS = 8, CLASSES = 10, BATCH = 256, STEPS = 3, MOST_PARTS = 16 };
enum { PARAMS = 2 * LAYERS };

/* A model on one device, or in two halves on two: half h is on tape[h], where its first parameter
 * has the number first[h]. */
struct model {
    int halves;
    duet_device *device[2];
    duet_params *params[2];
    duet_tape *tape[2];
    duet_ddp *ddp[2]; /* NULL: the process is alone */
    int first[2];
};

/* ---- the model ---- */

static int make(struct model *m, duet_device *const devices[2], int halves, duet_group *group) {
    static float values[PARAMS][WIDTH * WIDTH];
    struct duet_param specs[PARAMS];
    static char names[PARAMS][16];
    duet_rng *rng = NULL;
    int code;
    *m = (struct model){halves, .device = {devices[0], devices[halves - 1]}};
    TRY(duet_rng_create(&rng, 0)); /* torch.manual_seed(0) */
    for (int i = 0; i < PARAMS; i++) {
        int out = i / 2 < LAYERS - 1 ? WIDTH : CLASSES, is_weight = i % 2 == 0;
        snprintf(names[i], sizeof names[i], "fc%d.%s", i / 2, is_weight ? "weight" : "bias");
        duet_rng_uniform(rng, values[i], (size_t)(is_weight ? out * WIDTH : out), -0.1, 0.1);
        specs[i] = (struct duet_param){names[i], 2 - i % 2, {out, WIDTH}, values[i]};
    }
    for (int h = 0; h < halves; h++) {
        int count = PARAMS / halves;
        TRY(duet_params_create(&m->params[h], m->device[h], &specs[h * count], count));
        TRY(duet_tape_create(&m->tape[h], m->device[h]));
        if (group) TRY(duet_ddp_create(&m->ddp[h], group, m->params[h], NULL)); /* DDP(model) */
    }
    if (halves == 1) m->tape[1] = m->tape[0], m->first[1] = PARAMS / 2;
out:
    duet_rng_free(rng);
    return code;
}

static void unmake(struct model *m) {
    for (int h = 0; h < m->halves; h++)
        duet_ddp_free(m->ddp[h]), duet_tape_free(m->tape[h]), duet_params_free(m->params[h]);
}

static duet_var *half(const struct model *m, int h, duet_var *x) {
    for (int layer = 0; layer < LAYERS / 2; layer++) {
        int w = m->first[h] + 2 * layer, is_last = h == 1 && layer == LAYERS / 2 - 1;
        x = duet_linear(m->tape[h], x, w, w + 1);
        if (!is_last) x = duet_relu(m->tape[h], x);
    }
    return x;
}

/* Forward of all micro-batches, then one backward through both halves, then the step. While device
 * 1 computes one micro-batch, device 0 has the next. */
static int step(const struct model *m, duet_tensor *const *X, duet_tensor *const *y, int parts,
                double *loss) {
    const duet_tensor *none[MOST_PARTS] = {NULL};
    duet_var *losses[MOST_PARTS];
    int code;
    for (int h = 0; h < m->halves; h++)
        TRY(duet_tape_begin(m->tape[h], m->params[h], BATCH / parts, DUET_TRAIN));
    for (int i = 0; i < parts; i++) { /* for s in x.split(BATCH // parts): */
        duet_var *x = half(m, 0, duet_input(m->tape[0], X[i]));
        x = duet_var_to(m->tape[1], m->tape[0], x); /* x.to('cuda:1') */
        losses[i] = duet_cross_entropy(m->tape[1], half(m, 1, x), y[i], DUET_SUM, NULL);
    }
    TRY(duet_backward_all(m->tape[1], losses, none, parts)); /* sum(losses).backward() */
    for (int h = 0; h < m->halves; h++)
        TRY(duet_sgd(m->params[h], 0.1, BATCH)); /* one optimizer for each device */
    *loss = 0;
    for (int i = 0; i < parts; i++) {
        double part;
        TRY(duet_loss_read(m->tape[1], losses[i], &part, NULL));
        *loss += part / BATCH;
    }
out:
    return code;
}

/* ---- the program ---- */

struct run {
    double loss[2][STEPS];                   /* losses of the whole model and of the split one */
    float weights[2][PARAMS][WIDTH * WIDTH]; /* after the last step */
    duet_device *devices[2];
    duet_tensor *X[2][MOST_PARTS], *y[2][MOST_PARTS]; /* [0]: the batch, [1]: cut into parts */
    duet_group *group;
    const char *timeline; /* the file for it; NULL: none */
};

/* Labels on the device of the loss, which is the last one of the model. */
static int batch(struct run *run, int rank, int parts, duet_device *last) {
    static float pictures[BATCH * WIDTH];
    static int32_t labels[BATCH];
    duet_rng *rng = NULL;
    int code, rows = BATCH / parts, n = parts > 1;
    TRY(duet_rng_create(&rng, 1 + (uint64_t)rank));
    duet_rng_normal(rng, pictures, BATCH * WIDTH, 0, 1);
    TRY(duet_rng_integers(rng, DUET_I32, labels, BATCH, 0, CLASSES));
    for (int i = 0; i < parts; i++) {
        duet_tensor_free(run->X[n][i]), duet_tensor_free(run->y[n][i]);
        run->X[n][i] = run->y[n][i] = NULL;
        TRY(duet_tensor_create(&run->X[n][i], run->devices[0], DUET_F32, 2, (int[]){rows, WIDTH},
                               pictures + i * rows * WIDTH));
        TRY(duet_tensor_create(&run->y[n][i], last, DUET_I32, 1, &rows, labels + i * rows));
    }
out:
    duet_rng_free(rng);
    return code;
}

static int train(struct run *run, int halves, int parts, const char *name) {
    struct model m = {0};
    int code, rank = run->group ? duet_group_rank(run->group) : 0, n = parts > 1;
    double *loss = run->loss[halves - 1];
    TRY(batch(run, rank, parts, run->devices[halves - 1]));
    TRY(make(&m, run->devices, halves, run->group));
    for (int i = 0; i < STEPS; i++) {
        for (int d = 0; d < 2 && run->timeline && i == STEPS - 1; d++)
            TRY(duet_device_profile(run->devices[d], 1));
        TRY(step(&m, run->X[n], run->y[n], parts, &loss[i]));
    }
    if (rank == 0) {
        printf("%-34s", name);
        for (int i = 0; i < STEPS; i++)
            printf(" %.9f", loss[i]);
        printf("\n");
    }
    if (run->timeline && halves == 2) TRY(duet_devices_timeline(run->devices, 2, run->timeline));
    for (int i = 0, count = PARAMS / halves; i < PARAMS; i++)
        TRY(duet_tensor_read(duet_params_value(m.params[i / count], i % count),
                             run->weights[halves - 1][i]));
out:
    unmake(&m);
    return code;
}

/* The whole model and the split one, with the batch in so many parts. */
static int compare(struct run *run, int parts) {
    int code;
    TRY(train(run, 1, parts, parts > 1 ? "whole, in micro-batches" : "whole"));
    TRY(train(run, 2, parts, parts > 1 ? "split, in micro-batches" : "split over two devices"));
    int same = !memcmp(run->loss[0], run->loss[1], sizeof run->loss[0]) &&
               !memcmp(run->weights[0], run->weights[1], sizeof run->weights[0]);
    if (!run->group || duet_group_rank(run->group) == 0)
        printf("  losses and weights: %s\n", same ? "the same bits" : "they DIFFER");
    if (!same) code = DUET_CHECK;
out:
    return code;
}

static int work(int rank, void *context) {
    static struct run run;
    char *const *words = context;
    const char *kind = words[2] ? words[2] : "cpu-async";
    duet_group *group = NULL;
    int code, parts = atoi(words[1]);
    TRY(duet_group_init(&group, 0));
    if (duet_group_size(group) > 1) run.group = group;
    if (words[2] && !run.group) run.timeline = words[3];
    for (int d = 0; d < 2; d++) /* dev0 = rank * 2, dev1 = rank * 2 + 1 */
        TRY(duet_device_open(&run.devices[d], kind, 2 * rank + d, 256 << 20));
    TRY(compare(&run, 1));
    if (parts > 1) TRY(compare(&run, parts));
out:
    for (int n = 0; n < 2; n++)
        for (int i = 0; i < MOST_PARTS; i++)
            duet_tensor_free(run.X[n][i]), duet_tensor_free(run.y[n][i]);
    for (int d = 0; d < 2; d++)
        duet_devices_close(&run.devices[d], 1);
    duet_group_destroy(&group);
    return code;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* a line reaches a pipe when it is printed */
    int parts = argc > 1 ? atoi(argv[1]) : 0;
    if (parts < 1 || parts > MOST_PARTS || BATCH % parts)
        return fprintf(stderr,
                       "model_parallel PARTS [KIND [TIMELINE]]: 1, 2, 4, 8 or 16 micro-batches\n"),
               2;
    int code = duet_spawn(1, work, argv);
    if (code) fprintf(stderr, "model_parallel: %s\n", duet_error());
    return duet_exit_status(code);
}
