/* A model is a list of parameters and a forward function. It knows neither devices nor strategies:
 * the same description trains as single, DP and DDP, which makes the comparison fair.
 *
 * Every model is a struct duet_model of duet.h, whether it is in this folder, passed by a user's
 * program to duet_command, or read from a file. */
#ifndef MODELS_MODEL_H
#define MODELS_MODEL_H

#include "base/random.h"
#include "data/sample_shape.h"
#include "duet.h"
#include "nn/buffer.h"
#include "nn/tape/tape.h"

struct layer;
struct model_build;
struct safetensors;
struct safetensors_item;
struct safetensors_pair;

enum { MODEL_HIDDEN_MAX = 16 }; /* hidden layers of an mlp */

/* The loss. For labels it is cross entropy (of scores or log-probabilities), for targets one of the
 * others. It is never DUET_NLL: see log_probabilities. */
const char *loss_name(enum duet_loss loss); /* "cross-entropy", "mse", ..: as --loss takes it */
static inline int loss_of_targets(enum duet_loss loss) {
    return loss != DUET_CROSS_ENTROPY;
}

struct model {
    const char *name;
    int channels, height, width; /* shape of one sample */
    int classes;                 /* numbers per sample in forward's output */
    int positions;               /* labels per sample, each with `classes` scores; 0: one label */
    int normalised;              /* 1: inputs are (x - mean) / std, float32 */
    float mean, std;
    int param_count;
    struct param_spec *params; /* registration order; owned, with their names */
    int buffer_count;
    struct buffer_spec *buffers; /* registration order; owned, with their names; NULL: none */
    enum duet_loss loss;
    /* 1: forward ends in log_softmax, and the loss is nll; 0: it ends in scores */
    int log_probabilities;
    double dropout;   /* < 0: the model's own probabilities; else replaces all of them */
    int ignored;      /* 1 + the label that stands for DUET_IGNORED in the data; 0: none */
    int init_d2l;     /* 1: initial values as "Dive into Deep Learning" draws them */
    int sync_bn;      /* 1: every BatchNorm of the model is a SyncBatchNorm */
    int norms;        /* 1: it has a BatchNorm, perhaps without running statistics */
    int hidden_count; /* mlp: number of hidden layers */
    int hidden[MODEL_HIDDEN_MAX]; /* mlp: their widths */
    uint64_t activation_bytes;    /* described: bytes kept per sample until backward */
    /* As in struct duet_model. */
    void (*init_more)(const duet_module *, duet_rng *, float *const *values, void *context);
    duet_var *(*forward)(duet_tape *tape, duet_var *x, void *context);
    void *context;
    struct duet_init *inits; /* [param_count], owned */
    int layer_count;
    struct graph *net;         /* for nets.c: the graph, used as context; owned */
    struct layer *layers;      /* duet_layer looks them up by index; owned */
    struct model_build *build; /* while it is being described; else NULL */
};

struct model_options {
    int sync_bn;                  /* 1: every BatchNorm is synchronised (SyncBatchNorm) */
    int init_d2l;                 /* 1: the chapter's initial values */
    double dropout;               /* < 0: not given */
    int hidden_count;             /* length of hidden[]; 0: not given */
    int hidden[MODEL_HIDDEN_MAX]; /* mlp: widths of the hidden layers */
    /* From the data set; 0: not given, which means model_sample and 10 classes. */
    struct sample_shape sample;
    int classes; /* or the length of a target */
    enum duet_loss loss;
    /* The model `described`: how many elements its parameters and its buffers have, and the bytes
     * per sample that stay on the device until backward. params 0: not given. */
    int64_t params, buffers;
    uint64_t activation_bytes;
    int tokens, token_classes;    /* per sample, and outputs per token; 0: not given */
    const struct duet_model *own; /* this program's model; NULL: the program is duet itself */
};

/* The most classes (a float represents all smaller integers) and parameters of a model. */
enum { MODEL_MAX_CLASSES = 1 << 24, MODEL_MAX_PARAMETERS = 1 << 30 };

/* Opens the program's own model, or "lenet", "convnet", "mlp" and so on. Its layers adapt to the
 * samples of options->sample and the number of classes. ERR_USAGE: an unknown model (the error
 * lists the known ones), a sample that the model cannot take, or a number beyond the limits
 * above. */
int model_open(struct model *model, const char *name, const struct model_options *options);
int model_is_known(const char *name); /* 1: Duet has a model of this name */
/* 1: the model serves only for estimates (nets.c). */
int model_is_outline(const char *name);
/* The shape of a model's samples; 1x28x28 for an unknown model. */
struct sample_shape model_sample(const char *name, const struct model_options *options);
/* The number of classes of random data for the model; 0: any. */
int model_classes(const char *name, const struct model_options *options);
/* Labels per sample; 0: one. */
int model_positions(const char *name, const struct model_options *options);
void model_free(struct model *model);            /* zeroed is fine */
size_t model_count(const struct model *model);   /* elements of all parameters */
size_t model_trained(const struct model *model); /* elements of parameters that are not frozen */
/* The number of hashes per step in the proof of equal bits: the value and the gradient of each
 * parameter, and the value of each buffer. */
int model_hashes(const struct model *model);

int model_label_classes(const struct model *model); /* classes of each label */
/* A tensor over `memory` with the answers that the loss compares with n outputs: labels I32 (n), or
 * (n,positions) if a sample has several; targets F32 (n,classes). */
struct tensor model_answers(const struct model *model, void *memory, int n);

/* Runs the model's forward function on a tape that was begun with its parameters: x PLAIN
 * (N,channels,height,width) -> scores or log-probabilities PLAIN (N,classes). NULL on failure,
 * which the tape keeps. */
duet_var *model_forward(const struct model *model, duet_tape *tape, struct buffer_set *buffers,
                        duet_var *x);

/* The model's loss, with reduction MEAN over the global batch. `answers` is from model_answers,
 * with at least as many rows as `output`. */
duet_var *model_loss(const struct model *model, duet_tape *tape, duet_var *output,
                     const struct tensor *answers);

/* Host copies of all parameters: param_count arrays, row-major, in one block, which the caller
 * frees with model_values_free (NULL is fine). alloc makes zeros; init draws from `seed`. */
int model_values_alloc(const struct model *model, float ***values);
int model_values_init(const struct model *model, uint64_t seed, float ***values);
void model_values_free(float **values);

size_t model_buffer_bytes(const struct model *model); /* size of all buffers, as in nn/buffer.h */

#endif
