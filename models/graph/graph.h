/* A model as a graph: a file that duet.export (python/) writes for a PyTorch model, and that a
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
 * Each line is one op, in single static assignment: each value has one name and one line, and only
 * later lines use it, so the graph has no cycles. Shapes are PyTorch's; N is the number of samples,
 * and 8N is eight times as many. The comment after # names the op's module. The values of
 * parameters, buffers and constants are in a safetensors file next to the graph.
 *
 * The graphs inside Duet (models/nets/) use symbols instead of fixed sizes. D, H and W are the
 * sizes of a sample, C is the number of classes, 3D is three times D, and ? is a size that the op
 * infers.
 *
 *     graph_text.c        reads the file: declarations and lines
 *     graph_statement.c   reads a line that is an op
 *     graph_words.c       reads names, numbers and shapes
 *     graph_ops.c         the ops: the arguments of each, and the function of duet.h that it calls
 *     graph_operands.c    their operands
 *     graph_batch_norm.c  batch_norm, fused with the ops that follow it
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
    GRAPH_LINES = 50000,     /* most lines of a file; a ResNet-152 has 1300 */
    GRAPH_NONE = -(1 << 30), /* an omitted operand */
    GRAPH_ANY = -1,          /* a size that the op infers */
};

#define GRAPH_LETTERS "DHWC"

struct graph_shape {
    int rank;
    int size[GRAPH_RANK];   /* size of dimension i, or its factor if it is a multiple of N */
    char batch[GRAPH_RANK]; /* 1: size[i] times N */
};

/* A value: an input, or the result of an op. A value without N is computed from parameters. */
struct graph_value {
    struct graph_shape shape;
    int line, uses;
};

enum graph_kind { GRAPH_PARAMETER, GRAPH_BUFFER, GRAPH_CONSTANT };

/* A tensor in the weights file. */
struct graph_tensor {
    char *name;
    enum graph_kind kind;
    int is_i64;
    struct graph_shape shape;          /* without N */
    int index;                         /* among parameters, or among buffers and constants */
    int frozen;                        /* 1: a parameter that is not trained */
    int line, updated, beside_samples; /* the last two: 1: an update targets it; an op with N reads
                                        * it */
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
    int y;       /* the value that the op makes */
    int in_rows; /* 1: that value has no N: its vars have one row per segment */
    int operand_count;
    int *operands;                  /* a value; ~i: tensor i; GRAPH_NONE */
    struct graph_setting *settings; /* one for each setting of the op */
};

/* A buffer that gets a new value after each training pass. */
struct graph_update {
    int tensor, value;
};

struct graph {
    char *path; /* as the user gave it; owned, as are all lists */
    char name[64];
    const struct model_file *file; /* the file of this graph, or NULL; borrowed */
    struct graph_value *values;
    struct graph_tensor *tensors;
    struct graph_node *nodes;
    int *inputs;               /* the value of each input */
    struct sample_part *parts; /* [input_count] each input's part of a sample */
    int value_count, tensor_count, node_count, input_count;
    int value_room, tensor_room, node_room, input_room, part_room;
    int parameters, buffers; /* numbers of tensors that are, and are not, parameters */
    int result;              /* the value that is returned */
    struct graph_update *updates;
    int update_count, update_room;
    /* Bytes that PyTorch's autograd keeps for backward, per sample and independent of samples; -1:
     * the file does not say. */
    int64_t pytorch_sample, pytorch_shared;
    struct duet_model model; /* its context is this struct */
};

/* Parses a graph; errors call it `path`. ERR_USAGE: it is not a graph; the error names the line. */
int graph_parse(struct graph **out, const char *path, const char *text, size_t bytes);
/* The same for a graph without fixed sizes: `sizes` are the values of GRAPH_LETTERS. */
int graph_parse_sized(struct graph **out, const char *path, const char *text, size_t bytes,
                      const int *sizes);
void graph_free(struct graph *g); /* NULL is fine */

/* The graph of a model, or NULL if it has none. */
const struct graph *graph_of(const struct duet_model *model);

/* Returns the number of classes, or with targets the length of a target. The second returns the
 * labels per sample if it has several, else 0. */
int graph_classes(const struct graph *g, int targets);
int graph_positions(const struct graph *g);
/* The upper bound of the first i64 input, such as tokens; 0: none. */
int graph_below(const struct graph *g);

/* Runs the model of a graph for two samples on a dry device: every op checks its operands, and
 * every value must have the shape that its line says. */
int graph_check(const struct model *model);

/* ---- between the files ---- */

/* Operands have one letter each. v is a value with N; s is the same, for an op that needs samples;
 * p is a parameter or a value computed from parameters; b is a buffer; a is any of these or a
 * constant. A ? after a letter makes it optional; a final * repeats the letter before it. If the
 * result has no N, a v has none either. Settings are names separated by spaces; "stride=1" has a
 * default, "eps" has none. Exactly one of the functions is set. */
struct graph_run;
struct graph_op {
    const char *name, *operands, *settings;
    duet_var *(*run)(struct graph_run *run, const struct graph_node *node);
    duet_var *(*one)(duet_tape *t, duet_var *x);
    duet_var *(*two)(duet_tape *t, duet_var *a, duet_var *b);
    duet_var *(*number)(duet_tape *t, duet_var *x, double number);
    int kind;     /* selects among the ops that `run` serves */
    int in_place; /* 1: a setting says whether PyTorch's op works in place */
};
/* NULL: no such op exists. */
const struct graph_op *graph_find_op(const char *name);
/* ERR_USAGE: no op has this name; the error suggests others. */
int graph_unknown_op(const char *where, const char *name);
duet_var *graph_run_op(struct graph_run *run, const struct graph_node *node);

/* A pass. */
struct graph_run {
    duet_tape *tape;
    const struct graph *graph;
    struct {
        duet_var *var;
        int uses_left;
        int computed; /* 1 + its index among the parameters; 0: none */
    } * at;           /* [value_count] */
    int samples;      /* the number of samples, N */
    int in_rows;      /* 1: the node has no N: its vars have one row per segment */
};

/* Returns 1 if a dimension contains N. */
int graph_has_batch(const struct graph_shape *s);
int graph_same_shape(const struct graph_shape *a, const struct graph_shape *b);

/* Fills in g->model after the text has been read. */
void graph_make_model(struct graph *g);

#endif
