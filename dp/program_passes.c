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

/* Where the sums of several passes lie between them. */
static int make_sums(struct duet_data_parallel *m, int passes) {
    struct param_set *set = &m->params[0]->set;
    if (passes == 1 || m->passes.sums) return OK;
    return device_alloc(set->device, (void **)&m->passes.sums, set->arena_count * sizeof(float),
                        MEM_GRADS);
}

int duet_data_parallel_accumulate(duet_data_parallel *m, int passes) {
    if (!m) return fail(ERR_USAGE, "DataParallel: none was given");
    if (passes < 1 || passes > MOST_PASSES)
        return fail(ERR_USAGE, "accumulate: %d passes: give 1 to %d", passes, (int)MOST_PASSES);
    CHECK(make_sums(m, passes));
    m->passes.of_next = passes;
    return OK;
}

int data_parallel_pass_of(struct duet_data_parallel *m, int done, int of_update) {
    m->passes.done = done;
    m->passes.of_update = of_update;
    m->passes.of_next = 1; /* a pass that no tape counts begins an update of its own */
    return make_sums(m, of_update);
}

void data_parallel_begin_pass(struct duet_data_parallel *m) {
    struct passes *p = &m->passes;
    if (p->done == p->of_update || p->of_next) p->done = 0;
    if (p->of_next) p->of_update = p->of_next;
    p->of_next = 0;
}

static struct tensor whole(const struct duet_data_parallel *m, float *arena) {
    const int count = (int)m->params[0]->set.arena_count;
    return tensor_plain(arena, DTYPE_F32, 1, &count);
}

/* A parameter has a gradient where a replica, in this pass or in one before it, has used it. */
static void mark_used(struct duet_data_parallel *m, int adds) {
    int count = m->params[0]->set.count;
    char *has_grad = m->passes.has_grad;
    if (!adds) memset(has_grad, 0, (size_t)count);
    for (int r = 0; r < m->used; r++)
        for (int i = 0; i < count; i++)
            has_grad[i] |= m->params[r]->has_grad[i];
    memcpy(m->params[0]->has_grad, has_grad, (size_t)count);
}

int data_parallel_end_pass(struct duet_data_parallel *m) {
    struct param_set *set = &m->params[0]->set;
    struct passes *p = &m->passes;
    int adds = p->done && p->zeroed == m->params[0]->zeroed;
    struct stream *stream = device_compute(set->device);
    struct tensor grads = whole(m, set->grads), sums = whole(m, p->sums);
    struct op_args add = {.in[0] = sums, .out[0] = grads};
    if (adds) CHECK(launch(stream, OP_ADD, &add));
    mark_used(m, adds);
    p->zeroed = m->params[0]->zeroed;
    p->done++;
    if (p->done == p->of_update) return OK;
    return copy_peer(stream, set->device, sums.data, set->device, grads.data, tensor_bytes(&sums));
}

/* ---- the gradient of the input ---- */

struct input_grads {
    const struct pieces *x;
    duet_var **leaf;                 /* of each replica */
    struct tensor rows[MAX_DEVICES]; /* of each replica */
    duet_tensor *zeros[MAX_DEVICES]; /* owned: of a replica whose outputs do not depend on x */
    duet_tensor *grad;
};

static int find_rows(struct duet_data_parallel *m, struct input_grads *g) {
    for (int r = 0; r < m->used; r++) {
        const struct tensor *part = &g->x->part[r].t;
        g->rows[r] = g->leaf[r]->grad;
        if (g->rows[r].data) continue;
        CHECK(duet_tensor_create(&g->zeros[r], (duet_device *)m->dp.group.device[r], DUET_F32,
                                 part->rank, part->dims, NULL));
        g->rows[r] = g->zeros[r]->t;
    }
    return OK;
}

/* The zeros were enqueued behind the backward, so its events do not cover them. Rows that no
 * replica has used keep zeros. */
static int gather_rows(struct duet_data_parallel *m, struct input_grads *g) {
    struct tensor used = g->grad->t;
    used.dims[0] = 0;
    for (int r = 0; r < m->used; r++)
        used.dims[0] += g->x->sizes[r];
    for (int r = 0; r < m->used; r++)
        CHECK(group_ready(&m->dp.group, r));
    CHECK(dp_gather(&m->dp, g->rows, g->x->sizes, &used));
    return stream_sync(m->dp.group.stream); /* the zeros are freed next */
}

static int gather_input_grad(struct duet_data_parallel *m, struct input_grads *g) {
    struct tensor whole = g->x->part[0].t;
    whole.dims[0] = g->x->rows;
    CHECK(duet_tensor_create(&g->grad, (duet_device *)m->dp.group.device[0], DUET_F32, whole.rank,
                             whole.dims, NULL));
    CHECK(find_rows(m, g));
    return gather_rows(m, g);
}

int duet_data_parallel_input_grad(duet_data_parallel *m, int i, duet_tensor **grad) {
    CHECK_OUT(grad);
    if (!m) return fail(ERR_USAGE, "DataParallel: none was given");
    if (!m->input_grad)
        return fail(ERR_USAGE, "DataParallel: x needs no gradient: set input_grad in options");
    if (!m->has_input_grad)
        return fail(ERR_USAGE, "DataParallel: no gradient of x without a backward before it");
    if (i < 0 || i >= m->inputs)
        return fail(ERR_USAGE, "DataParallel: no input %d: there are inputs 0 to %d", i,
                    m->inputs - 1);
    if (!m->leaf[i][0])
        return fail(ERR_USAGE,
                    "DataParallel: input %d is not float: only float inputs have a gradient", i);
    struct input_grads g = {.x = &m->x[i], .leaf = m->leaf[i]};
    int code = gather_input_grad(m, &g);
    for (int r = 0; r < m->used; r++)
        duet_tensor_free(g.zeros[r]);
    if (code)
        duet_tensor_free(g.grad);
    else
        *grad = g.grad;
    return code;
}
