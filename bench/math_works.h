/* What math_bench measures: every op of LeNet, the ConvNet and a wide mlp, with their shapes. */
#ifndef BENCH_MATH_WORKS_H
#define BENCH_MATH_WORKS_H

#include "device/op.h"

/* A line of the table: input C x H x W, output O (channels, or units of a linear layer), filter or
 * window k. */
struct work {
    const char *name;
    enum op op;
    int batch, c, h, w, o, k, stride, padding;
};

static const struct work works[] = {
    {"lenet input to N16", OP_TO_N16, 256, 1, 28, 28, 0, 0, 0, 0},
    {"lenet conv1 forward", OP_CONV2D_FORWARD, 256, 1, 28, 28, 20, 3, 1, 0},
    {"lenet relu1 forward", OP_RELU_FORWARD, 256, 20, 26, 26, 0, 0, 0, 0},
    {"lenet pool1 forward", OP_AVG_POOL_FORWARD, 256, 20, 26, 26, 0, 2, 2, 0},
    {"lenet conv2 forward", OP_CONV2D_FORWARD, 256, 20, 13, 13, 50, 5, 1, 0},
    {"lenet relu2 forward", OP_RELU_FORWARD, 256, 50, 9, 9, 0, 0, 0, 0},
    {"lenet pool2 forward", OP_AVG_POOL_FORWARD, 256, 50, 9, 9, 0, 2, 2, 0},
    {"lenet fc1 forward", OP_LINEAR_FORWARD, 256, 800, 1, 1, 128, 1, 1, 0},
    {"lenet relu3 forward", OP_RELU_FORWARD, 256, 128, 1, 1, 0, 0, 0, 0},
    {"lenet fc2 forward", OP_LINEAR_FORWARD, 256, 128, 1, 1, 10, 1, 1, 0},
    {"lenet logits to plain", OP_TO_PLAIN, 256, 10, 1, 1, 0, 0, 0, 0},
    {"lenet loss forward", OP_CROSS_ENTROPY_FORWARD, 256, 10, 1, 1, 0, 0, 0, 0},
    {"lenet loss backward", OP_CROSS_ENTROPY_BACKWARD, 256, 10, 1, 1, 0, 0, 0, 0},
    {"lenet gradient to N16", OP_TO_N16, 256, 10, 1, 1, 0, 0, 0, 0},
    {"lenet fc2 backward weight", OP_LINEAR_BACKWARD_WEIGHT, 256, 128, 1, 1, 10, 1, 1, 0},
    {"lenet fc2 backward data", OP_LINEAR_BACKWARD_DATA, 256, 128, 1, 1, 10, 1, 1, 0},
    {"lenet relu3 backward", OP_RELU_BACKWARD, 256, 128, 1, 1, 0, 0, 0, 0},
    {"lenet fc1 backward weight", OP_LINEAR_BACKWARD_WEIGHT, 256, 800, 1, 1, 128, 1, 1, 0},
    {"lenet fc1 backward data", OP_LINEAR_BACKWARD_DATA, 256, 800, 1, 1, 128, 1, 1, 0},
    {"lenet pool2 backward", OP_AVG_POOL_BACKWARD, 256, 50, 9, 9, 0, 2, 2, 0},
    {"lenet relu2 backward", OP_RELU_BACKWARD, 256, 50, 9, 9, 0, 0, 0, 0},
    {"lenet conv2 backward weight", OP_CONV2D_BACKWARD_WEIGHT, 256, 20, 13, 13, 50, 5, 1, 0},
    {"lenet conv2 backward data", OP_CONV2D_BACKWARD_DATA, 256, 20, 13, 13, 50, 5, 1, 0},
    {"lenet pool1 backward", OP_AVG_POOL_BACKWARD, 256, 20, 26, 26, 0, 2, 2, 0},
    {"lenet relu1 backward", OP_RELU_BACKWARD, 256, 20, 26, 26, 0, 0, 0, 0},
    {"lenet conv1 backward weight", OP_CONV2D_BACKWARD_WEIGHT, 256, 1, 28, 28, 20, 3, 1, 0},
    {"lenet sgd", OP_SGD, 129068, 1, 1, 1, 0, 0, 0, 0},
    {"lenet adadelta", OP_ADADELTA, 129068, 1, 1, 1, 0, 0, 0, 0},
    {"lenet adam", OP_ADAM, 129068, 1, 1, 1, 0, 0, 0, 0},
    {"lenet hash", OP_HASH, 129068, 1, 1, 1, 0, 0, 0, 0},
    {"convnet cn1 forward", OP_CONV2D_FORWARD, 128, 1, 28, 28, 16, 3, 1, 0},
    {"convnet cn1 backward weight", OP_CONV2D_BACKWARD_WEIGHT, 128, 1, 28, 28, 16, 3, 1, 0},
    {"convnet cn2 forward", OP_CONV2D_FORWARD, 128, 16, 26, 26, 32, 3, 1, 0},
    {"convnet cn2 backward data", OP_CONV2D_BACKWARD_DATA, 128, 16, 26, 26, 32, 3, 1, 0},
    {"convnet cn2 backward weight", OP_CONV2D_BACKWARD_WEIGHT, 128, 16, 26, 26, 32, 3, 1, 0},
    {"convnet max pool forward", OP_MAX_POOL_FORWARD, 128, 32, 24, 24, 0, 2, 2, 0},
    {"convnet max pool backward", OP_MAX_POOL_BACKWARD, 128, 32, 24, 24, 0, 2, 2, 0},
    {"convnet dropout1", OP_DROPOUT_FORWARD, 128, 4608, 1, 1, 0, 0, 0, 0},
    {"convnet fc1 forward", OP_LINEAR_FORWARD, 128, 4608, 1, 1, 64, 0, 1, 0},
    {"convnet fc1 backward data", OP_LINEAR_BACKWARD_DATA, 128, 4608, 1, 1, 64, 0, 1, 0},
    {"convnet fc1 backward weight", OP_LINEAR_BACKWARD_WEIGHT, 128, 4608, 1, 1, 64, 0, 1, 0},
    {"resnet conv 64 pad 1 forward", OP_CONV2D_FORWARD, 32, 64, 28, 28, 64, 3, 1, 1},
    {"resnet conv 64 pad 1 backward data", OP_CONV2D_BACKWARD_DATA, 32, 64, 28, 28, 64, 3, 1, 1},
    {"resnet conv 64 pad 1 backward weight", OP_CONV2D_BACKWARD_WEIGHT, 32, 64, 28, 28, 64, 3, 1,
     1},
    {"resnet conv stride 2 forward", OP_CONV2D_FORWARD, 32, 64, 28, 28, 128, 3, 2, 1},
    {"resnet conv stride 2 backward data", OP_CONV2D_BACKWARD_DATA, 32, 64, 28, 28, 128, 3, 2, 1},
    {"resnet conv stride 2 backward weight", OP_CONV2D_BACKWARD_WEIGHT, 32, 64, 28, 28, 128, 3, 2,
     1},
    {"mlp 4096x4096 forward", OP_LINEAR_FORWARD, 256, 4096, 1, 1, 4096, 0, 1, 0},
    {"mlp 4096x4096 backward data", OP_LINEAR_BACKWARD_DATA, 256, 4096, 1, 1, 4096, 0, 1, 0},
    {"mlp 4096x4096 backward weight", OP_LINEAR_BACKWARD_WEIGHT, 256, 4096, 1, 1, 4096, 0, 1, 0},
    {"mlp 4096x4096 (in,out) forward", OP_LINEAR_FORWARD, 256, 4096, 1, 1, 4096, 1, 1, 0},
    {"mlp 4096x4096 (in,out) backward data", OP_LINEAR_BACKWARD_DATA, 256, 4096, 1, 1, 4096, 1, 1,
     0},
    {"mlp 4096x4096 (in,out) backward weight", OP_LINEAR_BACKWARD_WEIGHT, 256, 4096, 1, 1, 4096, 1,
     1, 0},
    {"mlp sgd 1.6e7", OP_SGD, 4096 * 4096, 1, 1, 1, 0, 0, 0, 0},
    {"mlp hash 1.6e7", OP_HASH, 4096 * 4096, 1, 1, 1, 0, 0, 0, 0},
};

#endif
