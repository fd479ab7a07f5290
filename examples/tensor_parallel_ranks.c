/* Tensor parallelism over ranks, as in Megatron-LM: tensor_parallel.c with one process per device.
 * Rank r has some of the outputs of the first layer, and the matching inputs of the second.
 *
 *     column parallel   y = to_group(x) A_r     backward: all_reduce of dL/dx
 *     row parallel      z = all_reduce(y B_r)   backward: every rank already has dL/dz
 *
 *     ./tensor_parallel_ranks                                   two ranks
 *     duet run --nproc-per-node 4 ./tensor_parallel_ranks */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "duet.h"

#define TRY(call)                      \
    do {                               \
        if ((code = (call))) goto out; \
    } while (0)

enum { N = 32, IN = 64, HIDDEN = 128, OUT = 10, STEPS = 5 };

static float A[HIDDEN * IN], a[HIDDEN], B[OUT * HIDDEN], part[OUT * HIDDEN], pictures[N * IN];
static int32_t labels[N];

/* Both layers, with the hidden units first .. first + size - 1. */
static int make_params(duet_params **params, duet_device *device, int first, int size) {
    for (int i = 0; i < OUT; i++)
        memcpy(part + i * size, B + i * HIDDEN + first, (size_t)size * sizeof *B);
    const struct duet_param shapes[3] = {{"fc1.weight", 2, {size, IN}, A + first * IN},
                                         {"fc1.bias", 1, {size}, a + first},
                                         {"fc2.weight", 2, {OUT, size}, part}};
    return duet_params_create(params, device, shapes, 3);
}

/* group NULL: the whole model. *columns: the first layer's output, of all ranks. */
static duet_var *forward(duet_tape *t, duet_group *group, duet_var *x, duet_var **columns) {
    duet_var *y = duet_linear(t, group ? duet_var_to_group(t, group, x) : x, 0, 1);
    *columns = group ? duet_var_all_gather(t, group, y) : y; /* gather_output=True, to be printed */
    y = duet_linear(t, duet_relu(t, y), 2, DUET_NO_BIAS);
    return group ? duet_var_all_reduce(t, group, y) : y;
}

struct result {
    double losses[STEPS];
    float columns[N * HIDDEN], dx[N * IN];
};

static int read_and_free(duet_tensor *tensor, float *values) {
    int code = duet_tensor_read(tensor, values);
    duet_tensor_free(tensor);
    return code;
}

static int train(duet_group *group, duet_device *device, struct result *r) {
    int code, size = HIDDEN / (group ? duet_group_size(group) : 1),
              first = group ? duet_group_rank(group) * size : 0;
    duet_params *params = NULL;
    duet_tape *t = NULL;
    duet_tensor *X = NULL, *y = NULL, *value;
    duet_var *columns;
    TRY(make_params(&params, device, first, size));
    TRY(duet_tape_create(&t, device));
    TRY(duet_tensor_create(&X, device, DUET_F32, 2, (int[]){N, IN}, pictures));
    TRY(duet_tensor_create(&y, device, DUET_I32, 1, (int[]){N}, labels));
    for (int step = 0; step < STEPS; step++) {
        TRY(duet_tape_begin(t, params, N, DUET_TRAIN));
        duet_var *x = duet_leaf(t, X), *z = forward(t, group, x, &columns);
        duet_var *loss = duet_cross_entropy(t, z, y, DUET_MEAN, NULL);
        TRY(duet_backward(t, loss, NULL));
        TRY(duet_loss_read(t, loss, &r->losses[step], NULL));
        if (step == 0) {
            TRY(duet_var_value(&value, t, columns));
            TRY(read_and_free(value, r->columns));
            TRY(duet_var_grad(&value, t, x));
            TRY(read_and_free(value, r->dx));
        }
        TRY(duet_sgd(params, 0.5, 1));
    }
out:
    duet_tensor_free(X), duet_tensor_free(y), duet_tape_free(t), duet_params_free(params);
    return code;
}

/* The greatest difference, relative to the greatest element. */
static double apart(const float *x, const float *y, int count) {
    double most = 0, scale = 0;
    for (int i = 0; i < count; i++) {
        most = fmax(most, fabs((double)x[i] - y[i]));
        scale = fmax(scale, fabs((double)y[i]));
    }
    return most / scale;
}

static int work(int rank, void *context) {
    static struct result whole, split;
    duet_group *group = NULL;
    duet_device *device = NULL;
    duet_rng *rng = NULL;
    double far = 0;
    int code;
    (void)context;
    TRY(duet_group_init(&group, 0));
    if (HIDDEN % duet_group_size(group)) {
        fprintf(stderr, "tensor_parallel_ranks: %d ranks: give a number that divides %d\n",
                duet_group_size(group), HIDDEN);
        code = DUET_USAGE;
        goto out;
    }
    TRY(duet_device_open(&device, "auto", duet_group_local_rank(group), 64 << 20));
    TRY(duet_rng_create(&rng, 0)); /* the same numbers on every rank */
    duet_rng_normal(rng, A, HIDDEN * IN, 0, 0.1), duet_rng_normal(rng, a, HIDDEN, 0, 0.1);
    duet_rng_normal(rng, B, OUT * HIDDEN, 0, 0.1), duet_rng_normal(rng, pictures, N * IN, 0, 1);
    TRY(duet_rng_integers(rng, DUET_I32, labels, N, 0, OUT));
    TRY(train(NULL, device, &whole));
    TRY(train(group, device, &split));
    for (int i = 0; i < STEPS; i++)
        far = fmax(far, fabs(split.losses[i] - whole.losses[i]) / whole.losses[i]);
    far = fmax(far, apart(split.dx, whole.dx, N * IN));
    int same = !memcmp(split.columns, whole.columns, sizeof whole.columns);
    if (rank == 0)
        printf("loss %.6f to %.6f whole, %.6f to %.6f over %d ranks\ncolumns, put together: %s\n"
               "losses, and the gradient of x: %s\n",
               whole.losses[0] / N, whole.losses[STEPS - 1] / N, split.losses[0] / N,
               split.losses[STEPS - 1] / N, duet_group_size(group),
               same ? "the same bits" : "they DIFFER", far < 1e-5 ? "within 1e-5" : "they DIFFER");
    if (!same || !(far < 1e-5)) code = DUET_CHECK;
out:
    duet_rng_free(rng);
    if (device) duet_devices_close(&device, 1);
    duet_group_destroy(&group);
    return code;
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* a line reaches a pipe when it is printed */
    int code = duet_spawn(2, work, NULL);
    if (code && *duet_error()) fprintf(stderr, "tensor_parallel_ranks: %s\n", duet_error());
    return duet_exit_status(code);
}
