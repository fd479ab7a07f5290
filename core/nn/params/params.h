/* The contents of a duet_params: the values and gradients of a model's parameters, its buffers, its
 * layers by number, and the objects that sum gradients or statistics over ranks. */
#ifndef NN_PARAMS_PARAMS_H
#define NN_PARAMS_PARAMS_H

#include "base/error.h"
#include "base/files/safetensors.h"
#include "nn/buffer.h"
#include "nn/optimizer/clip.h"
#include "nn/optimizer/optimizer.h"
#include "nn/tensor.h"

struct tape_exchange; /* nn/tape/tape.h */
struct tape_step;

/* Limits. Larger numbers are mistakes; up to these limits nothing overflows. */
enum {
    MOST_PARAMS = 1 << 16,     /* parameters of a model */
    MOST_WINDOW = 1 << 20,     /* size, stride or padding of a layer */
    MOST_SAMPLES = 0x7ffffff0, /* samples in a pass, whose groups of 16 an int counts */
};

/* ---- layers of a model ---- */

enum layer_kind { LAYER_CONV2D, LAYER_LINEAR, LAYER_BATCH_NORM, LAYER_DROPOUT, LAYER_DROPOUT2D };

/* A layer that models/module.c has registered. */
struct layer {
    enum layer_kind kind;
    char *name;               /* owned by the model */
    int weight, bias;         /* indices of parameters; -1: none */
    int buffers;              /* batch_norm: the index of running_mean, the first of three */
    int stride, padding;      /* conv2d */
    double p;                 /* dropout */
    double epsilon, momentum; /* batch_norm */
};

/* ---- sums over ranks ---- */

/* The functions that a pass calls if its parameters have a ddp; nn/ does not know ddp/, which
 * implements them. */
struct grad_reducer {
    /* Called before each pass, also in evaluation. `opens` is 1 in an update's first pass, when the
     * gradients may move. `reduces` is 1 in its last, after which gradients are summed. `step` is
     * the number for spans and errors; -1: the reducer counts. */
    int (*enter)(void *context, int32_t step, int opens, int reduces);
    /* The gradient of parameter `index` is complete. */
    int (*ready)(void *context, int index);
    /* Called after that backward. Later work on the compute stream reads the sums. */
    int (*finish)(void *context);
    /* Called before the next enqueued work reads the values of w and b (each may be NULL); with
     * backward 1, that work also writes their gradients. NULL: they are always in memory. */
    int (*use)(void *context, const struct param *w, const struct param *b, int backward);
    /* The duet_params owns the reducer and frees it with this; NULL: it does not own it. */
    void (*free)(void *context);
    int finds_unused; /* 1: parameters that the loss does not use also count as ready */
    void *context;
};

/* The connection of a batch_norm to the other ranks, which syncbn/ implements. */
struct norm_sync {
    const struct tape_exchange *exchange; /* NULL: the job has one rank */
    void (*free)(struct norm_sync *sync);
};

struct duet_params {
    struct param_set set;
    struct param_spec *specs; /* owned, and so are the names in it */
    struct optimizer sgd;
    struct grad_clip clip;     /* for duet_clip_grad_norm; zeroed before its first call */
    struct step_block *step;   /* in device memory; holds the learning rate */
    struct duet_tensor *views; /* the values of all parameters, then their gradients */
    /* [count] 0: PyTorch's grad None. The gradient is zero: the parameter had no part in the last
     * update's loss, or duet_zero_grad followed, and the program has not written to it. */
    char *has_grad;
    int in_use;      /* 1: gradient addresses are in use, so no parameter may be frozen */
    unsigned zeroed; /* calls of duet_zero_grad so far */
    const struct grad_reducer *reducer; /* NULL: gradients stay in this process */
    struct buffer_set buffers;          /* zeroed: no buffers */
    struct buffer_spec *buffer_specs;   /* owned, and so are the names in it */
    struct duet_tensor *buffer_views;
    struct norm_sync *sync;     /* NULL: a batch_norm normalises the samples of this process */
    const struct layer *layers; /* [layer_count] of a model; NULL: no layers */
    int layer_count;
    struct layer *own_layers; /* freed with the names in it; NULL: not owned */
};

/* A grad_hook of duet_params that tells the reducer, if one is set. */
int params_gradient_ready(void *params, int index);

/* Tells the reducer that a pass uses these parameters (struct grad_reducer). */
int params_use(const duet_params *params, const struct param *w, const struct param *b,
               int backward);

/* Called before the backward of an update's last pass from `root`. It sets has_grad for the
 * parameters that have a part in it. The gradients of the others become zero, and count as ready if
 * the reducer finds unused parameters. */
int params_leave_out_unused(duet_params *params, duet_tape *tape, duet_var *root);

/* ---- a pass (nn/pass.c) ---- */

enum { NO_STEP = -1 }; /* the reducer counts the steps itself */

/* duet_tape_begin in two parts, for callers with their own segments, step block and log, such as a
 * replica. pass_enter tells the parameters' reducer, if any, that a pass begins; `number` is the
 * step's, for spans and errors. It may move the gradients. pass_begin
 * begins the pass with these parameters, or with none if NULL. Their backward is duet_backward,
 * whose hook is pass_note_ready. */
int pass_enter(duet_params *params, const struct tape_step *step, int32_t number);
int pass_begin(duet_tape *t, duet_params *params, const struct tape_step *step);
int pass_note_ready(void *tape, int index);

/* ---- making, showing and keeping them ---- */

/* Makes parameters and buffers from a model's lists, whose names are copied. values[count] are the
 * initial values in host memory; NULL: zeros. `segments` is the largest number of segments in
 * gradients that accumulate over several passes; a program has one segment. With 0, fsdp/ provides
 * the memory for values and gradients. */
int params_create(duet_params **out, struct device *device, const struct param_spec *specs,
                  int count, float *const *values, int segments);
int params_register(duet_params *params, const struct buffer_spec *specs, int count);

/* Points the views to where values and gradients are now. The second: gradients alone. */
void params_show(struct duet_params *params);
void params_show_gradients(struct duet_params *params);

/* ERR_USAGE: a file with a parameter, buffer or layer of this name could not be written or read
 * back. The message begins with `what`. */
int name_check(const char *what, const char *name);

/* ERR_USAGE: two names are equal. `what` is "parameters". */
int names_check_differ(const char *what, const struct param_spec *params, int param_count,
                       const struct buffer_spec *buffers, int buffer_count);

/* Frees the buffers, also half-built ones; `count` of them were requested. */
void params_free_buffers(duet_params *params, int count);

/* A file's contents besides values and buffers: an optimizer's state, and texts. */
struct params_extra {
    struct duet_optimizer *optimizer;     /* NULL: none */
    int64_t updates;                      /* that it has made */
    const struct safetensors_pair *about; /* [pairs] */
    int pairs;
    int disposable; /* as in struct atomic_file */
};
extern const struct params_extra PARAMS_ONLY; /* PyTorch's text about the format */

/* Reads values and buffers, then writes the file. Among shards all ranks read, and one writes.
 * file: open for `path`; NULL: it is opened here. */
int params_write(struct duet_params *params, const char *path, struct atomic_file *file,
                 const struct params_extra *extra);

/* Reads all values and buffers, and the optimizer's state unless it is NULL: no parameter has had
 * more than `most` updates, and the optimizer has then made `updates` or the most of any parameter.
 * Everything is read before anything changes. */
int params_read(struct duet_params *params, struct duet_optimizer *optimizer,
                const struct safetensors *file, int64_t most, int64_t updates);

/* The version of a checkpoint's tensors and texts, which is the text "duet_checkpoint". */
#define CHECKPOINT_VERSION "1"
/* ERR_FAILED: the file is no checkpoint, or of another version. `what` begins the error text;
 * instead: what to give. */
int checkpoint_check(const struct safetensors *file, const char *what, const char *instead);

#endif
