/* What does it save a program that its loader brings batches to the device ahead?
 *
 *     uploads [KIND [BATCH [STEPS [ROUNDS]]]]     default: cpu-async, 1024, 40 steps, 7 rounds
 *
 * Trains an MLP on synthetic pictures in two ways, round by round in turn: with tensors that the
 * program makes of each batch, and with those of a loader that has a device. It prints the
 * milliseconds of a step, the median over the rounds and their range, and of them those that the
 * program spends getting its batch; then the ratio of the steps, round by round. Both ways must end
 * with the same weights to the bit. The program uses duet.h alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/quantile.h"
#include "duet.h"

#define TRY(call)                      \
    do {                               \
        if ((code = (call))) goto out; \
    } while (0)

enum { PIXELS = 784, HIDDEN = 256, CLASSES = 10, MOST_ROUNDS = 99 };
static const struct duet_param shapes[] = {{"W1", 2, {HIDDEN, PIXELS}, NULL},
                                           {"b1", 1, {HIDDEN}, NULL},
                                           {"W2", 2, {CLASSES, HIDDEN}, NULL},
                                           {"b2", 1, {CLASSES}, NULL}};

struct job {
    duet_device *device;
    duet_dataset *set;
    int batch, steps;
    float start[HIDDEN * PIXELS];
};

struct result {
    double step_ms, batch_ms;
    float weights[CLASSES * HIDDEN];
};

static int step(duet_tape *tape, duet_params *params, const duet_tensor *x, const duet_tensor *y,
                int n) {
    int code;
    TRY(duet_tape_begin(tape, params, n, DUET_TRAIN));
    duet_var *h = duet_linear(tape, duet_flatten(tape, duet_input(tape, x)), 0, 1);
    duet_var *scores = duet_linear(tape, duet_relu(tape, h), 2, 3);
    TRY(duet_backward(tape, duet_cross_entropy(tape, scores, y, DUET_MEAN, NULL), NULL));
    TRY(duet_sgd(params, 0.1, 1));
out:
    return code;
}

static int train(const struct job *job, int ahead, struct result *out) {
    const struct duet_loader_options options = {
        .batch_size = job->batch, .workers = 2, .device = ahead ? job->device : NULL};
    duet_params *params = NULL;
    duet_tape *tape = NULL;
    duet_loader *loader = NULL;
    duet_tensor *X = NULL, *y = NULL;
    double start = 0, batches = 0;
    int code, epoch = 0;
    TRY(duet_params_create(&params, job->device, shapes, 4));
    TRY(duet_tensor_write(duet_params_value(params, 0), job->start));
    TRY(duet_tensor_write(duet_params_value(params, 2), job->start));
    TRY(duet_tape_create(&tape, job->device));
    TRY(duet_loader_create(&loader, job->set, &options));
    TRY(duet_loader_start(loader, 0));
    for (int i = -2; i < job->steps; i++) { /* two that do not count */
        struct duet_batch b;
        if (i == 0) {
            TRY(duet_device_sync(job->device));
            start = duet_time(), batches = 0;
        }
        double before = duet_time();
        TRY(duet_loader_next(loader, &b));
        if (!b.n) { /* the same epoch once more would be warned of */
            TRY(duet_loader_start(loader, ++epoch));
            TRY(duet_loader_next(loader, &b));
        }
        if (!ahead) {
            duet_tensor_free(X), duet_tensor_free(y), y = NULL;
            TRY(duet_tensor_create(&X, job->device, DUET_F32, 4, (int[]){b.n, 1, 28, 28}, b.X));
            TRY(duet_tensor_create(&y, job->device, DUET_I32, 1, &b.n, b.y));
        }
        batches += duet_time() - before;
        TRY(step(tape, params, ahead ? b.samples : X, ahead ? b.answers : y, b.n));
    }
    TRY(duet_device_sync(job->device));
    out->step_ms = (duet_time() - start) * 1000 / job->steps;
    out->batch_ms = batches * 1000 / job->steps;
    TRY(duet_tensor_read(duet_params_value(params, 2), out->weights));
out:
    duet_tensor_free(X), duet_tensor_free(y), duet_loader_free(loader), duet_tape_free(tape);
    duet_params_free(params);
    return code;
}

static void print_way(const char *name, const struct result *r, int rounds) {
    double step[MOST_ROUNDS], batch[MOST_ROUNDS];
    for (int i = 0; i < rounds; i++)
        step[i] = r[i].step_ms, batch[i] = r[i].batch_ms;
    sort_values(step, (size_t)rounds);
    printf("%-22s %7.3f (%.3f to %.3f) %7.3f\n", name, step[rounds / 2], step[0], step[rounds - 1],
           quantile(batch, rounds, 0.5));
}

static int report(const struct result *by_hand, const struct result *ahead, int rounds) {
    double ratio[MOST_ROUNDS];
    printf("ms                        a step (range)           its batch\n");
    print_way("made by the program", by_hand, rounds);
    print_way("brought by the loader", ahead, rounds);
    for (int i = 0; i < rounds; i++) {
        ratio[i] = ahead[i].step_ms / by_hand[i].step_ms;
        if (!memcmp(by_hand[i].weights, ahead[i].weights, sizeof ahead[i].weights)) continue;
        fprintf(stderr, "uploads: round %d: the weights differ\n", i);
        return DUET_CHECK;
    }
    double middle = quantile(ratio, rounds, 0.5);
    printf("a step with the loader's takes %.3f of the other's time (%.3f to %.3f)\n", middle,
           ratio[0], ratio[rounds - 1]);
    return DUET_OK;
}

int main(int argc, char **argv) {
    static struct result by_hand[MOST_ROUNDS], ahead[MOST_ROUNDS];
    static struct job job;
    const char *kind = argc > 1 ? argv[1] : "cpu-async";
    int code, rounds = argc > 4 ? atoi(argv[4]) : 7;
    duet_rng *rng = NULL;
    job.batch = argc > 2 ? atoi(argv[2]) : 1024;
    job.steps = argc > 3 ? atoi(argv[3]) : 40;
    if (rounds < 1 || rounds > MOST_ROUNDS || job.steps < 1)
        return fprintf(stderr, "uploads [KIND [BATCH [STEPS [ROUNDS, 1 to 99]]]]\n"), 2;
    TRY(duet_rng_create(&rng, 0));
    duet_rng_uniform(rng, job.start, HIDDEN * PIXELS, -0.05, 0.05);
    TRY(duet_device_open(&job.device, kind, 0, 512 << 20));
    TRY(duet_dataset_open(&job.set, "synthetic", NULL, 1));
    for (int i = 0; i < rounds; i++) {
        TRY(train(&job, i % 2, i % 2 ? &ahead[i] : &by_hand[i]));
        TRY(train(&job, !(i % 2), i % 2 ? &by_hand[i] : &ahead[i]));
    }
    TRY(report(by_hand, ahead, rounds));
out:
    if (code && *duet_error()) fprintf(stderr, "uploads: %s\n", duet_error());
    duet_dataset_free(job.set), duet_rng_free(rng);
    duet_devices_close(&job.device, 1);
    return duet_exit_status(code);
}
