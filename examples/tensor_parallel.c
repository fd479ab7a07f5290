/* Tensor parallelism splits layers. In this MLP both linear layers are split over two devices, the
 * first by its outputs and the second by its inputs.
 *
 *     column parallel   y = [x A0, x A1]      each device has some of the outputs: no sum
 *     row parallel      z = y0 B0 + y1 B1     each device has some of the inputs: one sum
 *
 * So a pair of layers has two collectives in forward. The first copies x to all devices
 * (broadcast); its backward sums the parts of dL/dx (all_reduce). The second sums z over the
 * devices (all_reduce); its backward sends dL/dz to all. gather_output joins the columns
 * (all_gather); its backward splits dL/dy. Each is a duet_var_to followed by duet_add or duet_cat,
 * so backward needs no extra line.
 *
 * A sum in two parts is rounded differently from the whole sum, so the program compares z within a
 * bound. The columns are ordinary dot products, so they must agree bit for bit. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "duet.h"

#define TRY(call)                      \
    do {                               \
        if ((code = (call))) goto out; \
    } while (0)

enum { DEVICES = 2, N = 32, IN = 64, HIDDEN = 128, OUT = 10, PART = HIDDEN / DEVICES };

struct shard {
    duet_device *device;
    duet_params *params; /* 0: A (rows of fc1.weight), 1: its bias, 2: B (columns of fc2.weight) */
    duet_tape *tape;
};

/* Forward of both layers; *columns is the output of the first one as one tensor on device 0. */
static duet_var *forward(const struct shard s[], duet_var *x, duet_var **columns) {
    duet_tape *t0 = s[0].tape;
    duet_var *z = NULL, *parts[DEVICES];
    for (int d = 0; d < DEVICES; d++) {
        duet_tape *t = s[d].tape;
        duet_var *y = duet_linear(t, duet_var_to(t, t0, x), 0, 1); /* column parallel: (N,PART) */
        parts[d] = duet_var_to(t0, t, y);
        y = duet_linear(t, duet_relu(t, y), 2, DUET_NO_BIAS); /* row parallel: (N,OUT) */
        y = duet_var_to(t0, t, y);
        z = z ? duet_add(t0, z, y) : y; /* reduce; the loss is on device 0 */
    }
    *columns = duet_cat(t0, parts, DEVICES, 1); /* gather_output=True */
    return z;
}

/* The greatest difference relative to the greatest element. */
static double difference(const float *a, const float *b, int count) {
    double most = 0, scale = 0;
    for (int i = 0; i < count; i++) {
        most = fmax(most, fabs((double)a[i] - b[i]));
        scale = fmax(scale, fabs((double)b[i]));
    }
    return most / scale;
}

static int read_var(duet_tape *t, duet_var *x, float *values) {
    duet_tensor *copy;
    int code = duet_var_value(&copy, t, x);
    if (!code) code = duet_tensor_read(copy, values);
    duet_tensor_free(copy);
    return code;
}

static int read_grad(duet_tape *t, duet_var *x, float *values) {
    duet_tensor *copy;
    int code = duet_var_grad(&copy, t, x);
    if (!code) code = duet_tensor_read(copy, values);
    duet_tensor_free(copy);
    return code;
}

static float A[HIDDEN * IN], a[HIDDEN], B[OUT * HIDDEN], pictures[N * IN];
static int32_t labels[N];

/* The compared parts of the model: output of both layers, and the gradients. */
struct result {
    double loss;
    float columns[N * HIDDEN], z[N * OUT], dA[HIDDEN * IN], dx[N * IN];
};

/* The model in `shards` parts, which are 1 or DEVICES. */
static int run(duet_device *const *devices, int shards, struct result *r) {
    struct shard s[DEVICES] = {{0}};
    duet_tensor *X = NULL, *y = NULL;
    static float part[OUT * HIDDEN];
    int code, size = HIDDEN / shards;
    for (int d = 0; d < shards; d++) {
        for (int i = 0; i < OUT; i++)
            memcpy(part + i * size, B + i * HIDDEN + d * size, (size_t)size * sizeof *B);
        const struct duet_param params[3] = {{"fc1.weight", 2, {size, IN}, A + d * size * IN},
                                             {"fc1.bias", 1, {size}, a + d * size},
                                             {"fc2.weight", 2, {OUT, size}, part}};
        s[d].device = devices[d];
        TRY(duet_params_create(&s[d].params, devices[d], params, 3));
        TRY(duet_tape_create(&s[d].tape, devices[d]));
    }
    TRY(duet_tensor_create(&X, devices[0], DUET_F32, 2, (int[]){N, IN}, pictures));
    TRY(duet_tensor_create(&y, devices[0], DUET_I32, 1, (int[]){N}, labels));
    for (int d = 0; d < shards; d++)
        TRY(duet_tape_begin(s[d].tape, s[d].params, N, DUET_TRAIN));
    duet_tape *t = s[0].tape;
    duet_var *x = duet_leaf(t, X), *columns, *z;
    if (shards == 1) {
        columns = duet_linear(t, x, 0, 1);
        z = duet_linear(t, duet_relu(t, columns), 2, DUET_NO_BIAS);
    } else {
        z = forward(s, x, &columns);
    }
    duet_var *loss = duet_cross_entropy(t, z, y, DUET_MEAN, NULL);
    TRY(duet_backward(t, loss, NULL));
    TRY(duet_loss_read(t, loss, &r->loss, NULL));
    TRY(read_var(t, columns, r->columns));
    TRY(read_var(t, z, r->z));
    TRY(read_grad(t, x, r->dx));
    for (int d = 0; d < shards; d++)
        TRY(duet_tensor_read(duet_params_grad(s[d].params, 0), r->dA + d * size * IN));
out:
    for (int d = 0; d < shards; d++)
        duet_tape_free(s[d].tape), duet_params_free(s[d].params);
    duet_tensor_free(X), duet_tensor_free(y);
    return code;
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* a line reaches a pipe when it is printed */
    static struct result whole, split;
    duet_device *devices[DEVICES] = {NULL};
    duet_rng *rng = NULL;
    int code;
    TRY(duet_devices_open(devices, DEVICES, "auto", 64 << 20));
    TRY(duet_rng_create(&rng, 0));
    duet_rng_normal(rng, A, HIDDEN * IN, 0, 0.1), duet_rng_normal(rng, a, HIDDEN, 0, 0.1);
    duet_rng_normal(rng, B, OUT * HIDDEN, 0, 0.1), duet_rng_normal(rng, pictures, N * IN, 0, 1);
    TRY(duet_rng_integers(rng, DUET_I32, labels, N, 0, OUT));
    TRY(run(devices, 1, &whole));
    TRY(run(devices, DEVICES, &split));
    int same = !memcmp(whole.columns, split.columns, sizeof whole.columns);
    double errors[3] = {difference(split.z, whole.z, N * OUT),
                        difference(split.dA, whole.dA, HIDDEN * IN),
                        difference(split.dx, whole.dx, N * IN)};
    printf("loss %.6f whole, %.6f split over %d devices\n", whole.loss / N, split.loss / N,
           DEVICES);
    printf("columns, put together: %s\n", same ? "the same bits" : "they DIFFER");
    printf("sums in parts, and gradients: %s\n",
           fmax(errors[0], fmax(errors[1], errors[2])) < 1e-5 ? "within 1e-5" : "they DIFFER");
    if (!same || !(fmax(errors[0], fmax(errors[1], errors[2])) < 1e-5)) code = DUET_CHECK;
out:
    if (code) fprintf(stderr, "tensor_parallel: %s\n", duet_error());
    duet_rng_free(rng);
    if (devices[0]) duet_devices_close(devices, DEVICES);
    return duet_exit_status(code);
}
