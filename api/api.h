/* The private part of the public library, for the files of api/ alone. The contracts are in duet.h;
 * this header says how the public objects are made of the internal ones:
 *
 *     duet_device, duet_var   struct device and struct var under other names
 *     duet_tensor             a struct tensor and the device it is on
 *     duet_params             a param_set, plain SGD, and a duet_tensor per value and gradient
 *     duet_optimizer          an optimizer, its step block, the number of updates
 *     duet_tape               a tape whose batch is one segment, its step block, a one-row log; or,
 *                             for a model's forward function, the tape of a replica */
#ifndef API_API_H
#define API_API_H

#include "base/error.h"
#include "base/random.h"
#include "data/dataset.h"
#include "data/safetensors.h"
#include "duet.h"
#include "nn/optimizer.h"
#include "nn/tape.h"

struct api_layer;
struct model;

struct duet_tensor {
    struct device *device;
    struct tensor t; /* in the layout PLAIN */
    int borrowed;    /* 1: belongs to a duet_params, and duet_tensor_free leaves it alone */
    int view;        /* 1: its memory is that of another tensor */
    int views;       /* how many views keep its memory alive */
    int freed;       /* 1: the caller has freed it; it goes with the last of its views */
    struct duet_tensor *base; /* of a view: the tensor whose memory it is; NULL: a duet_params' */
    char *has_grad; /* of a gradient and its views: the mark in its duet_params; NULL: of others */
};

struct duet_rng {
    struct rng engine;
};

struct duet_params {
    struct param_set set;
    struct param_spec *specs; /* owned, and so are the names in it */
    struct optimizer sgd;
    struct step_block *step;   /* in device memory; holds the learning rate */
    struct duet_tensor *views; /* the values of all parameters, then their gradients */
    /* [count] 0: PyTorch's grad None. The parameter had no part in the last update's loss, or
     * duet_zero_grad came since, and the program has not written to its gradient, which is zero. */
    char *has_grad;
    unsigned zeroed;                   /* calls of duet_zero_grad so far */
    const struct api_reducer *reducer; /* NULL: gradients are those of this process */
    struct buffer_set buffers;         /* zeroed: there are none */
    struct buffer_spec *buffer_specs;  /* owned, and so are the names in it */
    struct duet_tensor *buffer_views;
    struct api_sync *sync;          /* NULL: a batch_norm normalises the samples of this process */
    const struct api_layer *layers; /* [layer_count] of a model; NULL: there are none */
    int layer_count;
    struct api_layer *own_layers; /* freed with the names in it; NULL: they are another's */
};

struct duet_dataset {
    struct dataset set;
};

struct duet_optimizer {
    struct duet_params *params;
    struct optimizer optimizer;
    struct step_block *step; /* in device memory */
    double lr;
    int64_t updates; /* so far */
    int left_out;    /* 1: a parameter had no gradient in one of them */
};

/* Sets *out to NULL, as a result that is not there yet. ERR_USAGE: out itself is NULL. */
#define CHECK_OUT(out)                                                              \
    do {                                                                            \
        if (!(out)) return fail(ERR_USAGE, "no place for the result: out is NULL"); \
        *(out) = NULL;                                                              \
    } while (0)

static inline struct device *device_of(const duet_device *device) {
    return (struct device *)device;
}
static inline struct var *var_of(duet_var *x) {
    return (struct var *)x;
}
static inline duet_var *public_var(struct var *x) {
    return (duet_var *)x;
}

/* ERR_USAGE: no tensor can have this shape. The error text begins with `what`. */
int api_check_shape(const char *what, int rank, const int *shape);

/* Makes a tensor with memory of its own; its contents are undefined. */
int api_tensor_new(duet_tensor **out, struct device *device, enum dtype dtype, int rank,
                   const int *dims, enum mem_cause cause);

/* 1: the two share some memory, but not all of it: no op may take both, unless it only reads. */
int api_overlap(const struct tensor *a, const struct tensor *b);

/* The program writes numbers of its own to the tensor. */
static inline void api_written(const duet_tensor *tensor) {
    if (tensor && tensor->has_grad) *tensor->has_grad = 1;
}

/* Enqueues the filling of a float tensor with zeros. */
int api_zero(struct device *device, const struct tensor *t);

/* ERR_USAGE: a file could not have a parameter, a buffer or a layer of this name, or would not find
 * it there again. The error text begins with `what`. */
int api_check_name(const char *what, const char *name);

/* ERR_USAGE: two of the names are equal. `what`: "parameters". */
int api_check_names_differ(const char *what, const char *const *names, int count);

/* Frees the buffers, also half-built ones; `count` of them were asked for. */
void api_free_buffers(duet_params *params, int count);

/* Frees the layers, if they are its own. */
void api_free_layers(duet_params *params);

/* Buffer i as a file has it. `arena`: a host copy of all buffers. */
struct safetensors_item api_buffer_item(const duet_params *params, int i, const void *arena);

/* What a file has beside values and buffers: tensors, the 8-byte ones first, and texts. */
struct api_extra {
    const struct safetensors_item *items; /* [count] */
    int count;
    const struct safetensors_pair *about; /* [pairs] */
    int pairs;
};
int api_params_write(struct duet_params *params, const char *file, const struct api_extra *extra);

/* Reads all values and buffers; after an error none of them has changed. */
int api_params_read(struct duet_params *params, const struct safetensors *file);

/* Parameter i of this pass. If there is none, or its rank is not the one that the layer needs
 * (0: any will do), the tape keeps the error and the result is NULL. */
struct param *api_param_at(duet_tape *tape, const char *layer, int i, int rank);

/* ---- layers of a model ---- */

enum api_layer_kind {
    LAYER_CONV2D,
    LAYER_LINEAR,
    LAYER_BATCH_NORM,
    LAYER_LAYER_NORM,
    LAYER_GROUP_NORM,
    LAYER_DROPOUT,
    LAYER_DROPOUT2D
};

/* A layer that models/module.c has registered. */
struct api_layer {
    enum api_layer_kind kind;
    char *name;               /* owned by the model */
    int weight, bias;         /* indices of parameters; -1: there is none */
    int buffers;              /* batch_norm: the index of running_mean, the first of three */
    int stride, padding;      /* conv2d */
    double p;                 /* dropout */
    double epsilon, momentum; /* of norms; batch_norm alone */
    int dims;                 /* layer_norm: how many of the last dimensions */
    int groups;               /* group_norm */
};

/* ---- who sums gradients over ranks ---- */

/* What the tape calls where its parameters have a ddp; api/ knows none: ddp/program.c is behind
 * these functions. */
struct api_reducer {
    /* Before each pass, in evaluation too. opens 1: it is an update's first, and the gradients may
     * be moved; reduces 1: its last, behind which gradients are summed. */
    int (*enter)(void *context, int opens, int reduces);
    /* Before the backward of its last pass from `root`: what becomes of unused parameters. */
    int (*before)(void *context, struct tape *tape, struct var *root);
    /* The gradient of parameter `index` is complete. */
    int (*ready)(void *context, int index);
    /* Behind that backward: later work on the compute stream reads the sums. */
    int (*finish)(void *context);
    int finds_unused; /* 1: `before` has zeroed the gradients of unused parameters */
    void *context;
};

/* How a batch_norm reaches the other ranks; syncbn/program.c is behind it. */
struct api_sync {
    struct tape_exchange exchange; /* segments 0: there is one rank */
    void (*free)(struct api_sync *sync);
};

/* ---- the tape ---- */

/* Larger numbers than these are mistakes, and smaller ones overflow nowhere. */
enum {
    API_PARAMS = 1 << 16,     /* parameters of a model */
    API_WINDOW = 1 << 20,     /* size, stride and padding of a layer */
    API_SAMPLES = 0x7ffffff0, /* samples of a pass: groups of 16 of them are counted in an int */
};

enum { API_LEAVES = 16, API_ROOTS = 16 }; /* leaves in a pass, roots of a backward, at most */

struct duet_tape {
    struct device *device;
    struct tape *tape;
    struct duet_params *owner;  /* the parameters of this pass; NULL: none, or a model's */
    struct param_set *params;   /* the same; NULL: none */
    int passes_of_update;       /* training passes whose gradients are added up; 1: none */
    int pass_of_update;         /* of this one among them, from 0 */
    int passes_of_next;         /* what the next pass makes of passes_of_update; 0: nothing */
    int went_back;              /* 1: this pass has had its backward */
    struct segments segments;   /* the batch of this pass, one segment */
    struct step_block *step;    /* in device memory */
    struct tensor losses, hits; /* the log of duet_loss_read, (1,1) each, in device memory */
    uint64_t seed;              /* of dropout */
    uint64_t passes;            /* training passes begun so far */
    unsigned char *fired;       /* [parameter]: 1 if this backward has written its gradient */
    int fired_capacity;         /* room in `fired` */
    /* The rest of a model, where the tape is that of a replica (models/module.c). */
    const struct api_layer *layers; /* [layer_count] */
    int layer_count;
    struct buffer_set *buffers; /* NULL: none */
    double dropout;             /* the probability of all its dropout layers; < 0: their own */
    int sync_bn;                /* 1: every batch_norm is synchronised */
    const struct model *model;  /* NULL: a tape of the program's own. For models/ alone */
    int inside_model;           /* 1: the pass belongs to the replica, which begins and ends it */
    int inside_forward;         /* 1: the same, while a function of a duet_data_parallel runs */
    struct var *leaves[API_LEAVES]; /* the vars of this pass that duet_leaf made */
    int leaf_count;
    int error; /* the code of the wrapper's first failure; the tape keeps those of the ops */
    char message[512]; /* the text of `error` */
};

/* Keeps `code` and its text as the failure of this pass, unless it already has one. Returns
 * `code`. */
int api_tape_fail(struct duet_tape *t, int code);

/* 1 if an op must return NULL: there is no tape, no operand, or an earlier failure. */
int api_stuck(struct duet_tape *t, const duet_var *x);

/* ERR_USAGE: `x` is not a tensor of type `dtype` on the tape's device. The error text names it by
 * `op` and `what`. */
int api_operand(const struct duet_tape *t, const char *op, const char *what, const duet_tensor *x,
                enum dtype dtype);

#endif
