/* The optimizer's part of a checkpoint of a program (nn/checkpoint.c) or of the command
 * (train/files/checkpoint.c): the number of updates of each parameter, and each part of the state
 * as a tensor, such as "optimizer.exp_avg.W1". */
#ifndef NN_PARAMS_OPTIMIZER_ITEMS_H
#define NN_PARAMS_OPTIMIZER_ITEMS_H

#include "base/files/safetensors.h"
#include "nn/params/optimizer.h"

enum { OPTIMIZER_PARTS = 2, OPTIMIZER_PREFIX = 40 };

/* The items in host memory. A zeroed struct has allocated nothing. */
struct optimizer_items {
    int64_t *updates; /* [parameters] */
    float *device;    /* the state as on the device */
    float *part;      /* all parts in sequence, or one part */
    struct safetensors_item *items;
    int count;
    char prefix[OPTIMIZER_PARTS][OPTIMIZER_PREFIX];
};

/* Allocates memory for the state of `o`; free it with `o`, also after an error. ERR_MEMORY. */
int optimizer_items_make(struct optimizer_items *s, const duet_optimizer *o);
void optimizer_items_free(struct optimizer_items *s);

/* Copies the state from the device, after so many updates, and makes the items. */
int optimizer_items_read(struct optimizer_items *s, duet_optimizer *o, int64_t updates);

/* Reads the state from a checkpoint, in which no parameter has more than `most` updates; `o` does
 * not change. ERR_FAILED: the file has no such state. */
int optimizer_items_load(struct optimizer_items *s, const duet_optimizer *o,
                         const struct safetensors *file, int64_t most);
/* Puts the loaded state into `o`, with `updates` updates, or the most of any parameter. */
int optimizer_items_put(const struct optimizer_items *s, duet_optimizer *o, int64_t updates);

#endif
