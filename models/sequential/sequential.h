/* A model without C: what Python's print(model) says of an nn.Sequential.
 *
 *     Sequential(
 *       (0): Conv2d(1, 20, kernel_size=(3, 3), stride=(1, 1))
 *       (1): ReLU()
 *       (2): Sequential(
 *         (0): Flatten(start_dim=1, end_dim=-1)
 *         (1): Linear(in_features=13520, out_features=10, bias=True)
 *       )
 *     )
 *
 * Parameters and buffers have the names of its state_dict: 0.weight, 2.1.bias. The text holds all
 * there is to know of the layers but their weights, which --init-from reads. It becomes a struct
 * duet_model (duet.h), so it is trained like every other model.
 *
 *     sequential.c        reads the text
 *     sequential_args.c   reads the words of a layer's arguments
 *     sequential_kinds.c  the arguments of each kind of layer
 *     sequential_model.c  the model: shapes, layers, forward */
#ifndef MODELS_SEQUENTIAL_H
#define MODELS_SEQUENTIAL_H

#include "data/sample_shape.h"
#include "duet.h"

struct model_file;

enum { SEQUENTIAL_NAME = 256, SEQUENTIAL_DEPTH = 16 };

enum sequential_kind {
    SEQ_CONV2D,
    SEQ_LINEAR,
    SEQ_BATCH_NORM1D,
    SEQ_BATCH_NORM2D,
    SEQ_LAYER_NORM,
    SEQ_GROUP_NORM,
    SEQ_RELU,
    SEQ_TANH,
    SEQ_SIGMOID,
    SEQ_SILU,
    SEQ_LEAKY_RELU,
    SEQ_ELU,
    SEQ_HARDTANH,
    SEQ_RELU6,
    SEQ_GELU,
    SEQ_SOFTPLUS,
    SEQ_IDENTITY,
    SEQ_MAX_POOL2D,
    SEQ_AVG_POOL2D,
    SEQ_ZERO_PAD2D,
    SEQ_CONSTANT_PAD2D,
    SEQ_ADAPTIVE_AVG_POOL2D,
    SEQ_ADAPTIVE_MAX_POOL2D,
    SEQ_DROPOUT,
    SEQ_DROPOUT2D,
    SEQ_FLATTEN,
    SEQ_UNFLATTEN,
    SEQ_SOFTMAX,
    SEQ_LOG_SOFTMAX,
    SEQ_KINDS
};

/* One layer. What its kind has not is 0. */
struct sequential_item {
    enum sequential_kind kind;
    char name[SEQUENTIAL_NAME]; /* its path: "2.1" */
    int line;                   /* of the text, from 1 */
    int in, out;                /* channels or features */
    int kernel, stride, padding;
    int ceil_mode; /* of MaxPool2d */
    int sides[4];  /* of ZeroPad2d, ConstantPad2d: left, right, top, bottom */
    double value;  /* of ConstantPad2d */
    int bias;
    int height, width; /* of the output: of an adaptive pool, where 0 leaves it; of Unflatten */
    double eps, momentum, p;
    double a, b;        /* of activations: negative_slope, alpha; min_val and max_val */
    int tanh;           /* GELU: 1: approximate='tanh' */
    int rank, shape[3]; /* LayerNorm: normalized_shape */
    int groups, affine; /* GroupNorm; of both norms: 1: there are weights */
    int layer;          /* its number for duet_layer; -1: it is none */
};

struct sequential {
    char *path; /* as it was given; owned */
    char *text; /* the whole text, ended by a zero byte; owned */
    size_t bytes;
    char name[64];                 /* of the model: the file's, without folders */
    struct sequential_item *items; /* in order, owned */
    int count, room;
    const struct model_file *file; /* that it is of, or NULL; borrowed */
    struct duet_model model;       /* names this struct as its context */
};

/* Reads a text. ERR_USAGE: it is no such model; the error names its line. `path` is what errors
 * call it. */
int sequential_parse(struct sequential **out, const char *path, const char *text, size_t bytes);
void sequential_free(struct sequential *s); /* NULL is fine */

/* The sequential behind a model, or NULL where it is none. */
const struct sequential *sequential_of(const struct duet_model *model);

/* ---- between the files ---- */

/* Where line number `line` of the text begins; *length: without the spaces at its ends. */
const char *sequential_line(const struct sequential *s, int line, int *length);

/* An error of the text in `line`, which is shown. */
int sequential_fail(const struct sequential *s, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Reads "Kind(arguments)" into *item, whose line and name are set. */
int sequential_read_layer(const struct sequential *s, const char *text, size_t length,
                          struct sequential_item *item);

/* Fills in s->model; s->items are read. */
void sequential_make_model(struct sequential *s);

#endif
