/* The private part of the public library, for the files of api/ alone. The contracts are in duet.h;
 * tensors, tape and parameters are in nn/: nn/tensor.h, nn/tape/tape_internal.h, nn/params.h. */
#ifndef API_API_H
#define API_API_H

#include "base/error.h"
#include "base/random.h"
#include "data/dataset.h"
#include "data/safetensors.h"
#include "duet.h"
#include "nn/optimizer/optimizer.h"
#include "nn/params.h"
#include "nn/tape/tape_internal.h"

struct duet_rng {
    struct rng engine;
};

struct duet_dataset {
    struct dataset set;
    int rank; /* dimensions of a sample, as the program gave them */
};

struct duet_optimizer {
    struct duet_params *params;
    struct optimizer optimizer;
    double lr;
    int64_t updates; /* so far */
    int left_out;    /* 1: a parameter had no gradient in one of them */
};

/* Parameters and buffers from the lists that a model keeps, whose names are copied. values[count]:
 * host arrays to start from; NULL: zeros. segments: of the batches whose gradients may be added up
 * over several passes; a program's are one. */
int api_params_create(duet_params **out, struct device *device, const struct param_spec *specs,
                      int count, float *const *values, int segments);
int api_params_register(duet_params *params, const struct buffer_spec *specs, int count);

/* The views of values and gradients, where they are now. */
void api_params_show(struct duet_params *params);

/* An optimizer, and its update with the step block that lies in params->step; `now` is its host
 * copy. Parameters without a gradient are left alone. */
int api_optimizer_create(duet_optimizer **out, duet_params *params,
                         const struct optimizer_config *config);
int api_optimizer_update(duet_optimizer *optimizer, const struct step_block *now);

/* ERR_USAGE: a file could not have a parameter, a buffer or a layer of this name, or would not find
 * it there again. The error text begins with `what`. */
int api_check_name(const char *what, const char *name);

/* ERR_USAGE: two of the names are equal. `what`: "parameters". */
int api_check_names_differ(const char *what, const char *const *names, int count);

/* Frees the buffers, also half-built ones; `count` of them were asked for. */
void api_free_buffers(duet_params *params, int count);

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

#endif
