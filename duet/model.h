/* duet/model.h: you describe a model once. Then the whole command `duet` can run it, or your own
 * training loop can use its parameters.
 *
 * Describe the model, write its forward function, and hand both to duet_command. The program is
 * then the command `duet` with this model: train, compare, profile, every option, and the proof of
 * equal bits.
 *
 *     enum { FC1, FC2 };                               // the layers, in the order of describe
 *
 *     static void describe(duet_module *m, void *context) {
 *         duet_module_linear(m, "fc1", 784, 100, 1);
 *         duet_module_linear(m, "fc2", 100, duet_module_classes(m), 1);
 *     }
 *     static duet_var *forward(duet_tape *t, duet_var *x, void *context) {
 *         return duet_layer(t, FC2, duet_relu(t, duet_layer(t, FC1, duet_flatten(t, x))));
 *     }
 *     int main(int argc, char **argv) {
 *         const struct duet_model model = {
 *             .name = "mynet", .describe = describe, .forward = forward};
 *         return duet_command(argc, argv, &model);
 *     }
 *
 * Duet's own models are written this way: models/convnet.c with layers, models/lenet.c with
 * parameters only. */
#ifndef DUET_MODEL_H
#define DUET_MODEL_H

#include "core.h"

#ifdef __cplusplus
extern "C" {
#endif

enum duet_loss { DUET_CROSS_ENTROPY, DUET_MSE, DUET_SMOOTH_L1, DUET_BCE_WITH_LOGITS, DUET_NLL };

struct duet_model {
    const char *name; /* the name that --model takes */
    /* The shape of a sample: channels, height, width; zeros stand for 1, 28, 28. Random data has
     * this shape; any other data set has its own, which describe can query. */
    int sample[3];
    double mean, std; /* inputs are (x - mean) / std; std 0: pixels from 0 to 1, unchanged */
    /* Lists the parameters, buffers and layers. Every call must list the same. */
    void (*describe)(duet_module *module, void *context);
    /* Changes the initial values after the initialisers below have drawn them: values[i] is
     * parameter i, row-major. May be NULL. */
    void (*init)(const duet_module *module, duet_rng *rng, float *const *values, void *context);
    /* x is (N,channels,height,width). Returns (N,classes): scores, or log-probabilities if loss is
     * DUET_NLL. Several threads may call it at once, each with its own tape. */
    duet_var *(*forward)(duet_tape *tape, duet_var *x, void *context);
    enum duet_loss loss;
    void *context; /* passed to these functions; may be NULL */
    /* The program's own data, on which the command trains unless --dataset names another set; test
     * may be NULL. All processes of a job run main and make the data set, but only the first reads
     * samples; the others share its memory. */
    const struct duet_data *train, *test;
};

/* For describe: the channels, height and width of a sample, and the number of classes. */
const int *duet_module_sample(const duet_module *module);
int duet_module_classes(const duet_module *module);

/* Registers a layer with PyTorch's name, parameters, buffers and initial values: NAME.weight and,
 * with bias 1, NAME.bias. A batch_norm also has NAME.running_mean, NAME.running_var and
 * NAME.num_batches_tracked. Returns the layer's number for duet_layer; the first is 0. */
int duet_module_conv2d(duet_module *module, const char *name, int in, int out, int kernel,
                       int stride, int padding, int bias);
int duet_module_linear(duet_module *module, const char *name, int in, int out, int bias);
int duet_module_batch_norm(duet_module *module, const char *name, int channels, double eps,
                           double momentum); /* PyTorch's defaults: 1e-5, 0.1; below 0: None */
int duet_module_dropout(duet_module *module, const char *name, double p); /* set by --dropout */
int duet_module_dropout2d(duet_module *module, const char *name, double p);

/* The initial values of a parameter that belongs to no layer. DUET_WEIGHT and DUET_BIAS are those
 * of PyTorch's Linear and Conv2d; a is the fan-in, the number of inputs that an output sums. */
enum duet_init_kind {
    DUET_CONSTANT, /* a */
    DUET_NORMAL,   /* mean a, standard deviation b */
    DUET_UNIFORM,  /* from a to b */
    DUET_WEIGHT,
    DUET_BIAS
};
struct duet_init {
    enum duet_init_kind kind;
    double a, b;
};

/* Registers a parameter and returns its index. All parameters, including those of layers, count
 * from 0. Values are drawn in the order of registration. After the first failure the functions
 * above do nothing and return -1, so describe needs no checks. */
int duet_module_parameter(duet_module *module, const char *name, int rank, const int *shape,
                          struct duet_init init);

/* The number of elements of parameter i; 0: no parameter i exists. */
size_t duet_module_count(const duet_module *module, int i);

/* In forward: layer number `layer` applied to x, the relu of the result, and the relu of the result
 * plus `residual`. If the layer is a batch_norm, the last two need only one pass over memory. */
duet_var *duet_layer(duet_tape *tape, int layer, duet_var *x);
duet_var *duet_layer_relu(duet_tape *tape, int layer, duet_var *x);
duet_var *duet_layer_add_relu(duet_tape *tape, int layer, duet_var *x, duet_var *residual);
int duet_layer_count(const duet_tape *tape);

/* For a forward that changes from step to step: 1, 2, 3 ... in training, 0 in an evaluation. */
int64_t duet_tape_training(const duet_tape *tape);

/* Runs the command `duet` with this model as the default of --model. Call it first in main, and
 * return its result. It starts this program again for each process of a job. In these processes
 * main runs up to this call, with other arguments in argv. */
int duet_command(int argc, char **argv, const struct duet_model *model);

/* For a program with its own training loop: makes the model's parameters and buffers on the device,
 * for samples of model->sample and `classes` classes, with the initial values of
 * torch.manual_seed(seed). Use them like those of duet_params_create, even in a duet_ddp or a
 * duet_data_parallel. In a pass with these parameters, model->forward or any other forward function
 * may call duet_layer. `model` is not used after the call.
 *
 *     duet_params_create_model(&params, device, &model, 10, 0);
 *     duet_tape_begin(tape, params, n, DUET_TRAIN);
 *     duet_var *scores = model.forward(tape, duet_input(tape, X), model.context); */
int duet_params_create_model(duet_params **out, duet_device *device, const struct duet_model *model,
                             int classes, uint64_t seed);

#ifdef __cplusplus
}
#endif
#endif
