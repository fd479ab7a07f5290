/* The tensors of a file of parameters or of a checkpoint, in host memory. One list of them serves
 * to write a file and to read it back; a program's duet_params and the command's models use it.
 *
 *     "W1", "1.running_mean"     values and buffers
 *     "optimizer.step"           how many updates each parameter has had, I64
 *     "optimizer.exp_avg.W1"     each part of an optimizer's state, with its parameter's shape */
#ifndef NN_PARAMS_STATE_H
#define NN_PARAMS_STATE_H

#include "base/files/safetensors.h"
#include "nn/params/optimizer.h"

enum { OPTIMIZER_PARTS = 2, OPTIMIZER_PREFIX = 40 };

struct state {
    duet_params *params;
    duet_optimizer *optimizer;      /* NULL: its state is not in the file */
    struct safetensors_item *items; /* [count] in the order above; their data is below */
    int count;
    float *values;    /* of all parameters, in registration order */
    void *buffers;    /* laid out as in nn/buffer.h */
    int64_t *updates; /* [parameters] */
    float *parts;     /* the optimizer's state, part by part */
    float *mixed;     /* the same as on the device: the parts of an element are adjacent */
    char prefix[OPTIMIZER_PARTS][OPTIMIZER_PREFIX];
};

/* Allocates zeroed memory and lists the tensors. Free it also after an error. ERR_MEMORY. */
int state_make(struct state *s, duet_params *params, duet_optimizer *optimizer);
void state_free(struct state *s);

/* Copies everything from the device, after so many updates. Among shards it is collective. */
int state_take(struct state *s, int64_t updates);
/* Reads the tensors from a file, in which no parameter has had more than `most` updates. The device
 * does not change. ERR_FAILED: the file lacks one. */
int state_read(struct state *s, const struct safetensors *file, int64_t most);
/* Copies everything to the device. The optimizer then has had `updates` updates, or the most of any
 * parameter. */
int state_put(struct state *s, int64_t updates);

#endif
