/* SGD: one launch for each run of parameters whose gradients lie in the same order as their values. A model whose
 * backward pass ends with its first layer is a single run, in DDP too after gradients were laid anew; at worst a run
 * is one parameter. The pads inside a run are zero in values, gradients and momentum alike, and 0 - rate 0 is 0: they
 * stay so. The update of an element knows nothing of its neighbours, so the bits are those of single launches. */
#include "nn/optimizer.h"

#include <string.h>

#include "base/error.h"

int sgd_init(struct sgd *sgd, const struct param_set *set, double momentum, double weight_decay) {
    memset(sgd, 0, sizeof *sgd);
    sgd->device = set->device;
    sgd->momentum = (float)momentum;
    sgd->weight_decay = (float)weight_decay;
    if (momentum == 0) return OK;
    CHECK(device_alloc(set->device, (void **)&sgd->buffers, set->arena_count * sizeof(float), MEM_OPTIMIZER));
    int dims[1] = {(int)set->arena_count};
    struct op_args args = {.out[0] = tensor_plain(sgd->buffers, DTYPE_F32, 1, dims)};
    return launch(device_compute(set->device), OP_FILL, &args);
}

void sgd_free(struct sgd *sgd) {
    if (!sgd) return;
    if (sgd->device) device_free(sgd->device, sgd->buffers);
    memset(sgd, 0, sizeof *sgd);
}

/* Does the gradient of b lie as far behind a's as its value does? */
static int in_step(const struct param *a, const struct param *b) {
    return b->value_offset - a->value_offset == b->grad_offset - a->grad_offset;
}

int sgd_step(struct sgd *sgd, struct param_set *set, const struct step_block *step) {
    for (int i = set->count - 1; i >= 0;) { /* values lie in reverse order of registration */
        const struct param *first = &set->param[i], *last = first;
        while (--i >= 0 && in_step(last, &set->param[i])) last = &set->param[i];
        int count = (int)(last->value_offset + last->count - first->value_offset);
        struct op_args args = {.in[0] = tensor_plain(first->grad.data, DTYPE_F32, 1, &count),
                               .out[0] = tensor_plain(first->value.data, DTYPE_F32, 1, &count),
                               .step = step};
        if (sgd->buffers) args.out[1] = tensor_plain(sgd->buffers + first->value_offset, DTYPE_F32, 1, &count);
        args.p.sgd = (struct sgd_args){.momentum = sgd->momentum, .weight_decay = sgd->weight_decay};
        CHECK(launch(device_compute(set->device), OP_SGD, &args));
    }
    return OK;
}
