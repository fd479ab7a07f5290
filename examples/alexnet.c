/* AlexNet over two devices. Its authors split it this way in 2012 because it did not fit into 3 GB,
 * and the first figure of "Dive into Deep Learning" 13.5 shows it. Each device has half of the maps
 * of every layer. The halves meet where the figure has crossing lines: before conv3 and before each
 * fully connected layer.
 *
 *     device 0   conv1 48 - conv2 128 -.-- conv3 192 - conv4 192 - conv5 128 -.- 2048 -.- 2048 -.
 *                                      X                                      X        X    > 1000
 *     device 1   conv1 48 - conv2 128 -'-- conv3 192 - conv4 192 - conv5 128 -'- 2048 -'- 2048 -'
 *
 *     ./alexnet 4        with a quarter of the maps; 1: all of them, 62 million parameters
 *
 * The program draws this figure with its own numbers of maps. It trains the network on one device,
 * with both halves, and on two. The bits are the same, and the program prints what each device
 * held. Dropout and local response normalisation are left out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "duet.h"

#define TRY(call)                      \
    do {                               \
        if ((code = (call))) goto out; \
    } while (0)

enum { N = 2, SIDE = 224, CLASSES = 1000, STEPS = 2, LAYERS = 8 };

/* A layer of one half. `in` counts the maps that it reads. */
struct layer {
    const char *name;
    int out, in, kernel, stride, padding, pool; /* kernel 0: fully connected */
};
static const struct layer layers[LAYERS] = {
    {"conv1", 48, 3, 11, 4, 2, 1},   {"conv2", 128, 48, 5, 1, 2, 1},
    {"conv3", 192, 256, 3, 1, 1, 0}, {"conv4", 192, 192, 3, 1, 1, 0},
    {"conv5", 128, 192, 3, 1, 1, 1}, {"fc6", 2048, 256 * 36, 0, 0, 0, 0},
    {"fc7", 2048, 4096, 0, 0, 0, 0}, {"fc8", CLASSES / 2, 4096, 0, 0, 0, 0}};

struct half {
    duet_params *params; /* 2 i: the weight of layer i; 2 i + 1: its bias */
    duet_tape *tape;
    duet_tensor *x; /* the images; both devices read all of them */
};

static int is_shared(int layer) { /* reads the maps of both halves */
    return layer == 2 || layer >= 5;
}

static int outputs(int layer, int divisor) {
    return layer == LAYERS - 1 ? layers[layer].out : layers[layer].out / divisor;
}

/* Prints the figure: a line for each device, and between them where the halves meet. */
static void draw(int divisor) {
    char half[2][128], meet[128], word[32];
    int n = snprintf(meet, sizeof meet, "%11s", "");
    for (int d = 0; d < N; d++)
        snprintf(half[d], sizeof half[d], "device %d   ", d);
    for (int i = 0; i < LAYERS; i++) {
        int width = i == LAYERS - 1 ? CLASSES / 2 : outputs(i, divisor);
        if (layers[i].kernel)
            snprintf(word, sizeof word, "%s %d", layers[i].name, width);
        else
            snprintf(word, sizeof word, "%d", width);
        for (int d = 0; d < N; d++)
            snprintf(half[d] + n, sizeof half[d] - (size_t)n, "%s%s",
                     i == 0          ? ""
                     : !is_shared(i) ? " - "
                     : d             ? " -'- "
                                     : " -.- ",
                     word);
        n += snprintf(meet + n, sizeof meet - (size_t)n, "%s%*s",
                      i == 0          ? ""
                      : !is_shared(i) ? "   "
                                      : "  X  ",
                      (int)strlen(word), "");
    }
    *(strrchr(meet, 'X') + 1) = '\0';
    printf("%s\n%s\n%s\n", half[0], meet, half[1]);
}

static int make(struct half *h, duet_device *device, int divisor, duet_rng *rng, duet_tensor *x) {
    struct duet_param params[2 * LAYERS];
    static char names[2 * LAYERS][16];
    float *values[LAYERS] = {NULL};
    int code;
    for (int i = 0; i < LAYERS; i++) {
        int k = layers[i].kernel, in = i ? layers[i].in / divisor : 3, out = outputs(i, divisor);
        size_t count = (size_t)out * (size_t)in * (size_t)(k ? k * k : 1);
        snprintf(names[2 * i], sizeof names[0], "%s.weight", layers[i].name);
        snprintf(names[2 * i + 1], sizeof names[0], "%s.bias", layers[i].name);
        code = DUET_MEMORY;
        if (!(values[i] = malloc(count * sizeof(float)))) goto out;
        duet_rng_normal(rng, values[i], count, 0, 0.02);
        params[2 * i] = (struct duet_param){names[2 * i], k ? 4 : 2, {out, in, k, k}, values[i]};
        params[2 * i + 1] = (struct duet_param){names[2 * i + 1], 1, {out}, NULL};
    }
    TRY(duet_params_create(&h->params, device, params, 2 * LAYERS));
    TRY(duet_tape_create(&h->tape, device));
    TRY(duet_tensor_to(&h->x, x, device));
out:
    for (int i = 0; i < LAYERS; i++)
        free(values[i]);
    return code;
}

static void unmake(struct half *h) {
    duet_tensor_free(h->x), duet_tape_free(h->tape), duet_params_free(h->params);
}

/* The maps of both halves, on the device of half d. */
static duet_var *meet(struct half *const h[2], int d, duet_var *const maps[2]) {
    duet_var *both[2];
    for (int from = 0; from < 2; from++)
        both[from] = duet_var_to(h[d]->tape, h[from]->tape, maps[from]); /* maps.to(device) */
    return duet_cat(h[d]->tape, both, 2, 1);
}

static duet_var *layer(duet_tape *t, int i, duet_var *x) {
    const struct layer *l = &layers[i];
    const struct duet_conv how = {.stride = {l->stride, l->stride},
                                  .padding = {l->padding, l->padding}};
    x = l->kernel ? duet_conv2d(t, x, 2 * i, 2 * i + 1, &how)
                  : duet_linear(t, i == 5 ? duet_flatten(t, x) : x, 2 * i, 2 * i + 1);
    if (i < LAYERS - 1) x = duet_relu(t, x);
    return l->pool ? duet_max_pool2d(t, x, 3, &(struct duet_pool){.stride = {2, 2}}) : x;
}

static duet_var *forward(struct half *const h[2]) {
    duet_var *maps[2] = {duet_input(h[0]->tape, h[0]->x), duet_input(h[1]->tape, h[1]->x)};
    for (int i = 0; i < LAYERS; i++) {
        duet_var *in[2] = {maps[0], maps[1]};
        for (int d = 0; d < 2; d++)
            maps[d] = layer(h[d]->tape, i, is_shared(i) ? meet(h, d, in) : in[d]);
    }
    return meet(h, 0, maps); /* (N,1000) on device 0 */
}

/* Both halves on devices[0] or one on each. */
static int train(duet_device *const devices[2], int count, int divisor, duet_tensor *x,
                 duet_tensor *y, double losses[STEPS]) {
    struct half half[2] = {{0}}, *const h[2] = {&half[0], &half[1]};
    duet_rng *rng = NULL;
    uint64_t peak;
    int code;
    TRY(duet_rng_create(&rng, 0));
    for (int d = 0; d < 2; d++)
        TRY(make(h[d], devices[d % count], divisor, rng, x));
    for (int step = 0; step < STEPS; step++) {
        for (int d = 0; d < 2; d++)
            TRY(duet_tape_begin(h[d]->tape, h[d]->params, N, DUET_TRAIN));
        duet_var *loss = duet_cross_entropy(h[0]->tape, forward(h), y, DUET_MEAN, NULL);
        TRY(duet_backward(h[0]->tape, loss, NULL));
        for (int d = 0; d < 2; d++)
            TRY(duet_sgd(h[d]->params, 0.01, 1));
        TRY(duet_loss_read(h[0]->tape, loss, &losses[step], NULL));
    }
    for (int d = 0; d < count; d++) {
        TRY(duet_device_memory(devices[d], NULL, &peak));
        printf("%s: %.1f MiB at its peak\n", duet_device_name(devices[d]),
               (double)peak / (1 << 20));
    }
out:
    duet_rng_free(rng);
    unmake(h[0]), unmake(h[1]);
    return code;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* lines reach a pipe when they are printed */
    static float pictures[N * 3 * SIDE * SIDE];
    const int32_t labels[N] = {7, 993};
    double losses[2][STEPS];
    duet_rng *rng = NULL;
    int code = DUET_OK, divisor = argc > 1 ? atoi(argv[1]) : 4;
    if (divisor < 1 || 16 % divisor)
        return fprintf(stderr, "alexnet DIVISOR: 1, 2, 4, 8 or 16\n"), DUET_USAGE;
    TRY(duet_rng_create(&rng, 1));
    duet_rng_normal(rng, pictures, sizeof pictures / sizeof *pictures, 0, 1);
    for (int count = 1; count <= 2 && !code; count++) { /* separate devices for each run */
        duet_device *devices[2] = {NULL};
        duet_tensor *x = NULL, *y = NULL;
        code = duet_devices_open(devices, count, "auto", (uint64_t)2 << 30);
        if (!code && count == 1) draw(divisor);
        if (!code) printf(count == 1 ? "on one device\n" : "on two devices\n");
        const int shape[4] = {N, 3, SIDE, SIDE};
        if (!code) code = duet_tensor_create(&x, devices[0], DUET_F32, 4, shape, pictures);
        if (!code) code = duet_tensor_create(&y, devices[0], DUET_I32, 1, shape, labels);
        if (!code) code = train(devices, count, divisor, x, y, losses[count - 1]);
        duet_tensor_free(x), duet_tensor_free(y);
        if (devices[0]) duet_devices_close(devices, count);
    }
    if (code) goto out;
    for (int step = 0; step < STEPS; step++)
        printf("step %d: loss %.9f\n", step, losses[1][step] / N);
    int same = !memcmp(losses[0], losses[1], sizeof losses[0]);
    printf("one device and two: %s\n", same ? "the same bits" : "they DIFFER");
    if (!same) code = DUET_CHECK;
out:
    if (code)
        fprintf(stderr, "alexnet: %s\n", code == DUET_CHECK ? "the losses differ" : duet_error());
    duet_rng_free(rng);
    return duet_exit_status(code);
}
