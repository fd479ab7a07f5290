/* A model as a graph: a text that duet.export (python/) writes for a PyTorch model, and that a
 * person can read, edit or write.
 *
 *     duet 1
 *     input %x: f32[N, 1, 28, 28]
 *     parameter conv.weight: f32[8, 1, 3, 3]
 *     parameter fc.weight: f32[10, 8]
 *     %1: f32[N, 8, 28, 28] = conv2d(%x, conv.weight, none, padding=1)  # conv
 *     %2: f32[N, 8] = mean(%1, dims=[2, 3])
 *     %3: f32[N, 10] = linear(%2, fc.weight, none)  # fc
 *     return %3
 *
 * One line is one op, in single static assignment: each value has one name and one line, and only
 * later lines use it, so there are no cycles. Shapes are PyTorch's; N is the number of samples, and
 * 8N is eight times as many. The module that the op came from is after #. The values of
 * parameters, buffers and constants are in a safetensors file next to it.
 *
 * The texts that come with Duet (models/nets/) have no fixed size: D, H and W stand for the three
 * sizes of a sample and C for the classes, 3D is three times as many, and ? is a size that the op
 * knows.
 *
 *     graph_text.c        reads the text: declarations and lines
 *     graph_statement.c   reads a line that is an op
 *     graph_words.c       reads names, numbers and shapes
 *     graph_ops.c         the ops: what each is given, and the function of duet.h that it calls
 *     graph_operands.c    their operands
 *     graph_batch_norm.c  batch_norm, with what follows it
 *     graph_model.c       the model: what it registers, forward, and the check of all shapes */
#ifndef MODELS_GRAPH_H
#define MODELS_GRAPH_H

#include "data/dataset.h"
#include "duet.h"

struct model;
struct model_file;

enum {
    GRAPH_RANK = 8,
    GRAPH_OPERANDS = 64,
    GRAPH_LINES = 50000,     /* of a text; a ResNet-152 has 1300 */
    GRAPH_NONE = -(1 << 30), /* an operand that is left out */
    GRAPH_ANY = -1,          /* a size that the op knows */
};

#define GRAPH_LETTERS "DHWC"

struct graph_shape {
    int rank;
    int size[GRAPH_RANK];   /* of dimension i; of a multiple of N the factor */
    char batch[GRAPH_RANK]; /* 1: size[i] times N */
};

/* A value: an input, or what an op makes. Without N it is one of parameters. */
struct graph_value {
    struct graph_shape shape;
    int line, uses;
};

enum graph_kind { GRAPH_PARAMETER, GRAPH_BUFFER, GRAPH_CONSTANT };

/* A tensor of the file of weights. */
struct graph_tensor {
    char *name;
    enum graph_kind kind;
    int is_i64;
    struct graph_shape shape; /* without N */
    int index;                /* among the parameters, or among buffers and constants */
    int frozen;               /* a parameter: 1: it is not trained */
    int line, updated,
        beside_samples; /* 1: an update is of it; an op whose result has N reads it */
};

/* A setting of an op: a number, or a list of them. */
struct graph_setting {
    int count; /* -1: a single number */
    double number[GRAPH_RANK];
    char batch[GRAPH_RANK]; /* 1: number[i] times N */
};

struct graph_op;

struct graph_node {
    const struct graph_op *op;
    int y;       /* the value that it makes */
    int in_rows; /* 1: which has no N: each of its vars has one row for each segment */
    int operand_count;
    int *operands;                  /* a value; ~i: tensor i; GRAPH_NONE */
    struct graph_setting *settings; /* as many as the op has */
};

/* A buffer that gets a new value after each training pass. */
struct graph_update {
    int tensor, value;
};

struct graph {
    char *path; /* as it was given; owned, as are all lists */
    char name[64];
    const struct model_file *file; /* that it is of, or NULL; borrowed */
    struct graph_value *values;
    struct graph_tensor *tensors;
    struct graph_node *nodes;
    int *inputs;               /* the value of each */
    struct sample_part *parts; /* [input_count] what each has of a sample */
    int value_count, tensor_count, node_count, input_count;
    int value_room, tensor_room, node_room, input_room, part_room;
    int parameters, buffers; /* how many tensors are parameters; how many are not */
    int result;              /* the value that is returned */
    struct graph_update *updates;
    int update_count, update_room;
    /* Bytes that PyTorch's autograd keeps for backward: per sample, and for all together; -1: the
     * file does not say. */
    int64_t pytorch_sample, pytorch_shared;
    struct duet_model model; /* names this struct as its context */
};

/* Reads a text; errors call it `path`. ERR_USAGE: it is not a graph; the error names the line. */
int graph_parse(struct graph **out, const char *path, const char *text, size_t bytes);
/* The same for a text without fixed sizes: `sizes` are the values of GRAPH_LETTERS. */
int graph_parse_sized(struct graph **out, const char *path, const char *text, size_t bytes,
                      const int *sizes);
void graph_free(struct graph *g); /* NULL is fine */

/* The graph of a model; NULL: it has none. */
const struct graph *graph_of(const struct duet_model *model);

/* Classes of each label; with targets, the numbers of one. Labels of a sample, where it has more
 * than one; else 0. */
int graph_classes(const struct graph *g, int targets);
int graph_places(const struct graph *g);
/* The upper bound of the first i64 input, such as tokens; 0: there is none. */
int graph_below(const struct graph *g);

/* Runs the model of a graph for two samples on a dry device: every op checks its operands, and
 * every value must have the shape that its line says. */
int graph_check(const struct model *model);

/* ---- between the files ---- */

/* Operands: one letter each. v: a value with N; s: the same, of an op that is for samples; p: a
 * parameter, or a value of parameters; b: a buffer; a: any of them, and a constant. With ? behind
 * it may be none; * as the last one: as many more of the letter before it as are given. Where the
 * result has no N, v is what has none, too. Settings: their names with a space between; "stride=1"
 * may be left out, "eps" may not. One of the functions is there. */
struct graph_run;
struct graph_op {
    const char *name, *operands, *settings;
    duet_var *(*run)(struct graph_run *run, const struct graph_node *node);
    duet_var *(*one)(duet_tape *t, duet_var *x);
    duet_var *(*two)(duet_tape *t, duet_var *a, duet_var *b);
    duet_var *(*number)(duet_tape *t, duet_var *x, double number);
    int kind;     /* which of those that `run` serves */
    int in_place; /* 1: its setting says whether PyTorch's works in place */
};
/* NULL: there is no such op. */
const struct graph_op *graph_find_op(const char *name);
/* ERR_USAGE: there is none of this name, and what there are. */
int graph_unknown_op(const char *where, const char *name);
duet_var *graph_run_op(struct graph_run *run, const struct graph_node *node);

/* A pass. */
struct graph_run {
    duet_tape *tape;
    const struct graph *graph;
    struct {
        duet_var *var;
        int uses_left;
        int computed; /* 1 + its index as a parameter; 0: none */
    } * at;           /* [value_count] */
    int samples;      /* N */
    int in_rows;      /* 1: the node has no N: its vars have one row for each segment */
};

/* 1: it has a dimension with N. */
int graph_has_batch(const struct graph_shape *s);
int graph_same_shape(const struct graph_shape *a, const struct graph_shape *b);

/* Fills in g->model; the text is read. */
void graph_make_model(struct graph *g);

#endif
