/* LeNet as "Dive into Deep Learning" 13.5 writes it from scratch: 129,068 numbers in eight tensors.
 *
 *     (N,1,28,28) conv 3x3 -> (20,26,26) relu, average 2x2 -> (20,13,13)
 *                 conv 5x5 -> (50,9,9)   relu, average 2x2 -> (50,4,4) = 800
 *                 800 @ W3 -> 128 relu @ W4 -> 10 scores; the loss is cross entropy
 *
 * W3 and W4 are (in, out), as X @ W reads them. Weights start as 0.01 * randn, biases as 0. For
 * other samples W1 adapts to the channels, W3 to the size of the 50 maps after the second pool, W4
 * to the classes. */
#include "models/models.h"

enum { W1, B1, W2, B2, W3, B3, W4, B4 };

enum { SMALLEST = 14 }; /* the side at which the second pool leaves one pixel */

/* The side after the two convolutions and pools: 28 -> 26 -> 13 -> 9 -> 4. */
static int side_left(int side) {
    return ((side - 2) / 2 - 4) / 2;
}

static void describe_lenet(duet_module *m, void *context) {
    (void)context;
    const int *in = duet_module_sample(m), classes = duet_module_classes(m);
    const int left = 50 * side_left(in[1]) * side_left(in[2]);
    const struct duet_init randn = {DUET_NORMAL, 0, 0.01f}, zeros = {DUET_CONSTANT, 0, 0};
    module_needs_pixels(m, SMALLEST);
    duet_module_parameter(m, "W1", 4, (int[]){20, in[0], 3, 3}, randn);
    duet_module_parameter(m, "b1", 1, (int[]){20}, zeros);
    duet_module_parameter(m, "W2", 4, (int[]){50, 20, 5, 5}, randn);
    duet_module_parameter(m, "b2", 1, (int[]){50}, zeros);
    duet_module_parameter(m, "W3", 2, (int[]){left, 128}, randn);
    duet_module_parameter(m, "b3", 1, (int[]){128}, zeros);
    duet_module_parameter(m, "W4", 2, (int[]){128, classes}, randn);
    duet_module_parameter(m, "b4", 1, &classes, zeros);
}

static duet_var *lenet_forward(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    /* (N,20,13,13) */
    duet_var *h1 = duet_avg_pool2d(t, duet_relu(t, duet_conv2d(t, x, W1, B1, NULL)), 2, NULL);
    /* (N,50,4,4) */
    duet_var *h2 = duet_avg_pool2d(t, duet_relu(t, duet_conv2d(t, h1, W2, B2, NULL)), 2, NULL);
    /* (N,128) */
    duet_var *h3 = duet_relu(t, duet_matmul_add(t, duet_flatten(t, h2), W3, B3));
    return duet_matmul_add(t, h3, W4, B4); /* (N,10) */
}

const struct duet_model lenet_model = {
    .name = "lenet", .describe = describe_lenet, .forward = lenet_forward};
