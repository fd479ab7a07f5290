/* The inside of the library's public face, for the files of api/ alone. Contracts stand in
 * duet.h; here stands how the public objects are made of the internal ones:
 *
 *     duet_device, duet_var    are struct device and struct var under another name
 *     duet_tensor              a struct tensor and the device it lies on
 *     duet_params              a param_set, plain SGD, and a view of each value and gradient as a duet_tensor
 *     duet_tape                a tape whose batch is one segment, its step block and a log of one row */
#ifndef API_API_H
#define API_API_H

#include "base/error.h"
#include "duet.h"
#include "nn/optimizer.h"
#include "nn/tape.h"

struct duet_tensor {
    struct device *device;
    struct tensor t; /* PLAIN */
    int borrowed;    /* a view into a duet_params: not to be freed alone */
};

struct duet_params {
    struct param_set set;
    struct param_spec *specs; /* owned, names too */
    struct optimizer sgd;
    struct step_block *step;   /* device memory: the learning rate */
    struct duet_tensor *views; /* count values, then count gradients */
};

static inline struct device *device_of(const duet_device *device) {
    return (struct device *)device;
}
static inline struct var *var_of(duet_var *x) {
    return (struct var *)x;
}
static inline duet_var *public_var(struct var *x) {
    return (duet_var *)x;
}

/* ERR_USAGE unless the shape is one that a tensor may have; `what` begins the text. */
int api_check_shape(const char *what, int rank, const int *shape);

/* A tensor with memory of its own, contents undefined. */
int api_tensor_new(duet_tensor **out, struct device *device, enum dtype dtype, int rank,
                   const int *dims, enum mem_cause cause);

/* Enqueues zeros into a float tensor. */
int api_zero(struct device *device, const struct tensor *t);

/* ---- the tape ---- */

enum { API_LEAVES = 16 };

struct duet_tape {
    struct device *device;
    struct tape *tape;
    struct duet_params *params; /* of this pass; NULL: none */
    struct segments segments;
    struct step_block *step;    /* device memory */
    struct tensor losses, hits; /* device memory: one row, one column */
    uint64_t seed, passes;      /* passes: training passes begun */
    unsigned char *fired;       /* per parameter: its gradient was written by this backward */
    int fired_capacity;
    /* of this pass: the vars whose gradient stays as backward left it */
    struct var *leaves[API_LEAVES];
    int leaf_count;
    int error; /* the first failure of the wrapper itself; those of the ops are in the tape */
    char message[512];
};

/* Records a failure unless there was one before; returns code. */
int api_tape_fail(struct duet_tape *t, int code);

/* 1 if an op cannot go on: no tape, an earlier failure or a null operand. */
int api_stuck(struct duet_tape *t, const duet_var *x);

/* OK if `x` is a `dtype` tensor on the tape's device; `op` and `what` name it in the text. */
int api_operand(const struct duet_tape *t, const char *op, const char *what, const duet_tensor *x,
                enum dtype dtype);

#endif
