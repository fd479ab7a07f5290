/* What do communication hooks that compress cost in accuracy, and what do they save?
 *
 *     comm_hooks [STEPS [BATCH [RANKS...]]]          default: 200 steps, batch 64 a rank, 2 and 4
 *
 * Each rank trains LeNet twice on the same batches of Fashion-MNIST, or of synthetic pictures where
 * that is not found: with a hook, and with float32 averages. It prints for each hook
 *
 *   - how far its averages of the first step, before which all parameters are equal, lie from those
 *     in float32: the 2-norm of the difference, divided by that of the float32 average
 *   - the mean loss of the last 20 steps
 *   - the bytes of gradients that a rank brings to each step, and the least time of a step
 *
 * The program uses duet.h alone. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "duet.h"

#define TRY(call)                      \
    do {                               \
        if ((code = (call))) goto out; \
    } while (0)

enum { W1, B1, W2, B2, W3, B3, W4, B4, PARAMS, LAST = 20 };
static const struct duet_param shapes[PARAMS] = {
    {"W1", 4, {20, 1, 3, 3}, NULL}, {"b1", 1, {20}, NULL},       {"W2", 4, {50, 20, 5, 5}, NULL},
    {"b2", 1, {50}, NULL},          {"W3", 2, {800, 128}, NULL}, {"b3", 1, {128}, NULL},
    {"W4", 2, {128, 10}, NULL},     {"b4", 1, {10}, NULL}};

typedef int hook_function(const struct duet_bucket *bucket, void *context);
static const struct {
    const char *name;
    hook_function *hook;
    int bytes; /* of a gradient on its way */
} hooks[] = {{"allreduce_hook", duet_allreduce_hook, 4},
             {"fp16_compress_hook", duet_fp16_compress_hook, 2},
             {"bf16_compress_hook", duet_bf16_compress_hook, 2}};
enum { HOOKS = sizeof hooks / sizeof *hooks };

/* What rank 0 leaves, in memory that the ranks share with the launcher. */
struct figures {
    double error, loss, plain_loss, least_s;
    size_t gradients;
};

struct job {
    int steps, batch, hook;
    struct figures *figures;
};

/* A model with its own ddp. */
struct model {
    duet_params *params;
    duet_tape *tape;
    duet_ddp *ddp;
    double losses, least_s; /* of the last steps; of a step */
};

static int open_model(struct model *m, duet_device *device, duet_group *group,
                      hook_function *hook) {
    static float values[800 * 128]; /* of the largest */
    duet_rng *rng = NULL;
    int code;
    *m = (struct model){.least_s = INFINITY};
    TRY(duet_rng_create(&rng, 0));
    TRY(duet_params_create(&m->params, device, shapes, PARAMS));
    for (int i = 0; i < PARAMS; i++) {
        duet_tensor *value = duet_params_value(m->params, i);
        size_t count = duet_tensor_count(value);
        double inputs =
            shapes[i].rank == 4 ? (double)count / shapes[i].shape[0] : shapes[i].shape[0];
        if (shapes[i].rank == 1) continue;
        duet_rng_normal(rng, values, count, 0, sqrt(2 / inputs));
        TRY(duet_tensor_write(value, values));
    }
    TRY(duet_tape_create(&m->tape, device));
    TRY(duet_ddp_create(&m->ddp, group, m->params, NULL));
    if (hook) TRY(duet_ddp_register_comm_hook(m->ddp, hook, NULL));
out:
    duet_rng_free(rng);
    return code;
}

static void close_model(struct model *m) {
    duet_ddp_free(m->ddp);
    duet_tape_free(m->tape);
    duet_params_free(m->params);
}

static duet_var *forward(duet_tape *t, const duet_tensor *X) {
    duet_var *h = duet_relu(t, duet_conv2d(t, duet_input(t, X), W1, B1, NULL));
    h = duet_relu(t, duet_conv2d(t, duet_avg_pool2d(t, h, 2, NULL), W2, B2, NULL));
    h = duet_flatten(t, duet_avg_pool2d(t, h, 2, NULL));
    return duet_matmul_add(t, duet_relu(t, duet_matmul_add(t, h, W3, B3)), W4, B4);
}

static int step(struct model *m, const duet_tensor *X, const duet_tensor *y, int counts) {
    double sum, start = duet_time();
    int n = duet_tensor_dim(y, 0), code;
    TRY(duet_tape_begin(m->tape, m->params, n, DUET_TRAIN));
    duet_var *loss = duet_cross_entropy(m->tape, forward(m->tape, X), y, DUET_MEAN, NULL);
    TRY(duet_backward(m->tape, loss, NULL));
    m->least_s = fmin(m->least_s, duet_time() - start);
    TRY(duet_loss_read(m->tape, loss, &sum, NULL));
    if (counts) m->losses += sum / n;
out:
    return code;
}

/* How far the averages of a step lie apart, by the size of those of `plain`. */
static int compare(const struct model *hooked, const struct model *plain, struct figures *f) {
    static float a[800 * 128], b[800 * 128];
    double apart = 0, all = 0;
    int code = DUET_OK;
    f->gradients = 0;
    for (int i = 0; i < PARAMS; i++) {
        duet_tensor *grad = duet_params_grad(plain->params, i);
        TRY(duet_tensor_read(duet_params_grad(hooked->params, i), a));
        TRY(duet_tensor_read(grad, b));
        for (size_t k = 0; k < duet_tensor_count(grad); k++) {
            double d = (double)a[k] - (double)b[k];
            apart += d * d, all += (double)b[k] * (double)b[k];
        }
        f->gradients += duet_tensor_count(grad);
    }
    f->error = sqrt(apart / all);
out:
    return code;
}

static int train(const struct job *job, duet_device *device, duet_loader *loader,
                 struct model *hooked, struct model *plain, struct figures *f) {
    duet_tensor *X = NULL, *y = NULL;
    int code = DUET_OK, steps = duet_loader_steps(loader);
    for (int s = 0; s < job->steps; s++) {
        struct duet_batch b;
        int counts = s >= job->steps - LAST;
        if (s % steps == 0) TRY(duet_loader_start(loader, s / steps));
        TRY(duet_loader_next(loader, &b));
        TRY(duet_tensor_create(&X, device, DUET_F32, 4, (int[]){b.n, 1, 28, 28}, b.X));
        TRY(duet_tensor_create(&y, device, DUET_I32, 1, &b.n, b.y));
        TRY(step(hooked, X, y, counts));
        TRY(step(plain, X, y, counts));
        if (!s) TRY(compare(hooked, plain, f));
        TRY(duet_sgd(hooked->params, 0.05, 1));
        TRY(duet_sgd(plain->params, 0.05, 1));
        duet_tensor_free(X), duet_tensor_free(y);
        X = y = NULL;
    }
    int counted = job->steps < LAST ? job->steps : LAST;
    f->loss = hooked->losses / counted;
    f->plain_loss = plain->losses / counted;
    f->least_s = hooked->least_s;
    if (!(f->loss > 0 && f->error < 0.01)) code = DUET_CHECK;
out:
    duet_tensor_free(X), duet_tensor_free(y);
    return code;
}

static int work(int rank, void *context) {
    const struct job *job = context;
    duet_group *group = NULL;
    duet_device *device = NULL;
    duet_dataset *set = NULL;
    duet_loader *loader = NULL;
    struct model hooked = {0}, plain = {0};
    struct figures f = {0};
    int code, n;
    TRY(duet_group_init(&group, 0));
    n = duet_group_size(group);
    TRY(duet_device_open(&device, "cpu", rank, 1 << 28));
    TRY(open_model(&hooked, device, group, hooks[job->hook].hook));
    TRY(open_model(&plain, device, group, NULL));
    if (duet_dataset_open(&set, "fashion-mnist", NULL, 1))
        TRY(duet_dataset_open(&set, "synthetic", NULL, 1));
    TRY(duet_loader_create(&loader, set,
                           &(struct duet_loader_options){.batch_size = job->batch,
                                                         .shuffle = DUET_SHUFFLE,
                                                         .drop_last = 1,
                                                         .rank = rank,
                                                         .world_size = n}));
    TRY(train(job, device, loader, &hooked, &plain, &f));
    if (!rank) *job->figures = f;
out:
    duet_loader_free(loader);
    duet_dataset_free(set);
    close_model(&hooked);
    close_model(&plain);
    duet_devices_close(&device, 1);
    duet_group_destroy(&group);
    return code;
}

static int measure(struct job *job, int ranks) {
    printf(
        "%d ranks                 error, first step    loss    (float32)    bytes     least ms\n",
        ranks);
    for (job->hook = 0; job->hook < HOOKS; job->hook++) {
        struct figures *f = job->figures;
        int code = duet_spawn(ranks, work, job);
        if (code) return code;
        printf("  %-22s %16.2e %10.6f %10.6f %9zu %10.2f\n", hooks[job->hook].name, f->error,
               f->loss, f->plain_loss, f->gradients * (size_t)hooks[job->hook].bytes,
               f->least_s * 1e3);
    }
    return DUET_OK;
}

int main(int argc, char **argv) {
    struct job job = {.steps = argc > 1 ? atoi(argv[1]) : 200,
                      .batch = argc > 2 ? atoi(argv[2]) : 64};
    int code = DUET_OK;
    job.figures =
        mmap(NULL, sizeof *job.figures, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (job.figures == MAP_FAILED) return 1;
    printf("# lenet, %d steps, batch %d a rank, rate 0.05\n", job.steps, job.batch);
    for (int i = 3; i < argc && !code; i++)
        code = measure(&job, atoi(argv[i]));
    if (argc < 4) code = measure(&job, 2);
    if (argc < 4 && !code) code = measure(&job, 4);
    if (code) fprintf(stderr, "comm_hooks: %s\n", duet_error());
    return duet_exit_status(code);
}
