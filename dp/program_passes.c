/* What a backward of duet_data_parallel leaves: gradients that are added up over several passes,
 * and the gradient of the input. Both are on the first device.
 *
 *     pass      each replica            device 0
 *     0         backward -- reduce -->  gradients                       -- copy --> sums
 *     1         backward -- reduce -->  gradients, += sums              -- copy --> sums
 *     last      backward -- reduce -->  gradients, += sums: complete
 *
 * So there is a reduce in every pass, as in PyTorch, where each backward adds to .grad: the passes
 * of an update may have different numbers of samples, and so of replicas. */
#include <string.h>

#include "dp/program.h"

enum { MOST_PASSES = 1 << 20 };

/* ---- several passes ---- */

int duet_data_parallel_accumulate(duet_data_parallel *dp, int passes) {
    if (!dp) return fail(ERR_USAGE, "DataParallel: none was given");
    if (passes < 1 || passes > MOST_PASSES)
        return fail(ERR_USAGE, "accumulate: %d passes: give 1 to %d", passes, (int)MOST_PASSES);
    struct param_set *set = &dp->params[0]->set;
    if (passes > 1 && !dp->passes.sums)
        CHECK(device_alloc(set->device, (void **)&dp->passes.sums, set->arena_count * sizeof(float),
                           MEM_GRADS));
    dp->passes.of_next = passes;
    return OK;
}

void data_parallel_begin_pass(struct duet_data_parallel *dp) {
    struct passes *p = &dp->passes;
    if (p->done == p->of_update || p->of_next) p->done = 0;
    if (p->of_next) p->of_update = p->of_next;
    p->of_next = 0;
}

static struct tensor whole(const struct duet_data_parallel *dp, float *arena) {
    const int count = (int)dp->params[0]->set.arena_count;
    return tensor_plain(arena, DTYPE_F32, 1, &count);
}

int data_parallel_end_pass(struct duet_data_parallel *dp) {
    struct param_set *set = &dp->params[0]->set;
    struct passes *p = &dp->passes;
    struct stream *stream = device_compute(set->device);
    struct tensor grads = whole(dp, set->grads), sums = whole(dp, p->sums);
    struct op_args add = {.in[0] = sums, .out[0] = grads};
    if (p->done) CHECK(launch(stream, OP_ADD, &add));
    p->done++;
    if (p->done == p->of_update) return OK;
    return copy_peer(stream, set->device, sums.data, set->device, grads.data, tensor_bytes(&sums));
}

/* ---- the gradient of the input ---- */

struct input_grads {
    struct tensor rows[MAX_DEVICES]; /* of each replica */
    duet_tensor *zeros[MAX_DEVICES]; /* owned: of a replica whose output does not depend on x */
    duet_tensor **grad;
};

static int find_rows(struct duet_data_parallel *dp, struct input_grads *g) {
    for (int r = 0; r < dp->used; r++) {
        const struct tensor *part = &dp->x.part[r].t;
        g->rows[r] = dp->leaf[r]->grad;
        if (g->rows[r].data) continue;
        CHECK(duet_tensor_create(&g->zeros[r], (duet_device *)dp->group.device[r], DUET_F32,
                                 part->rank, part->dims, NULL));
        g->rows[r] = g->zeros[r]->t;
    }
    return OK;
}

static int gather_rows(struct duet_data_parallel *dp, void *what) {
    const struct input_grads *g = what;
    int dims[MAX_RANK];
    memcpy(dims, dp->x.part[0].t.dims, sizeof dims);
    for (int r = 1; r < dp->count; r++)
        dims[0] += dp->sizes[r];
    CHECK(api_tensor_new(g->grad, dp->group.device[0], DTYPE_F32, dp->x.part[0].t.rank, dims,
                         MEM_ACTIVATIONS));
    return gather(&dp->group, g->rows, dp->sizes, &(*g->grad)->t);
}

int duet_data_parallel_input_grad(duet_data_parallel *dp, duet_tensor **grad) {
    CHECK_OUT(grad);
    if (!dp) return fail(ERR_USAGE, "DataParallel: none was given");
    if (!dp->input_grad)
        return fail(ERR_USAGE, "DataParallel: x needs no gradient: set input_grad in options");
    if (!dp->has_input_grad)
        return fail(ERR_USAGE, "DataParallel: no gradient of x without a backward before it");
    struct input_grads g = {.grad = grad};
    int code = find_rows(dp, &g);
    if (!code) code = data_parallel_led_by(dp, 0, gather_rows, &g);
    for (int r = 0; r < dp->used; r++)
        duet_tensor_free(g.zeros[r]); /* waits for the gather */
    if (!code) return OK;
    duet_tensor_free(*grad);
    *grad = NULL;
    return code;
}
