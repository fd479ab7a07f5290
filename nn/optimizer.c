/* SGD: one launch a parameter, so that a parameter's value and gradient may lie in different orders. */
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

int sgd_step(struct sgd *sgd, struct param_set *set, const struct step_block *step) {
    for (int i = 0; i < set->count; i++) {
        struct param *p = &set->param[i];
        struct op_args args = {.in[0] = p->grad, .out[0] = p->value, .step = step};
        args.p.sgd = (struct sgd_args){.momentum = sgd->momentum, .weight_decay = sgd->weight_decay};
        if (sgd->buffers) {
            args.out[1] = p->value;
            args.out[1].data = sgd->buffers + p->value_offset;
        }
        CHECK(launch(device_compute(set->device), OP_SGD, &args));
    }
    return OK;
}
