/* The results of a backward of duet_data_parallel: gradients added up over several passes, and the
 * gradient of the input. Both are on the first device.
 *
 *     pass      each replica            device 0
 *     0                                                       backward -- reduce --> gradients
 *     1, ..     gradients -- copy --> sums;  backward -- reduce --> gradients, += sums
 *
 * Every pass has a reduce, as in PyTorch, where each backward adds to .grad, because the passes of
 * an update may have different numbers of samples and so of replicas. .grad is added to the sum
 * only when a backward is about to overwrite it, so the sum includes a program's own changes to
 * .grad. */
#include <string.h>

#include "dp/dp.h"

/* ---- several passes ---- */

/* The sums' memory during a backward. */
static int make_sums(struct duet_data_parallel *m) {
    struct param_set *set = &m->params[0]->set;
    if (m->passes.sums) return OK;
    return device_alloc(set->device, (void **)&m->passes.sums, set->grad_count * sizeof(float),
                        MEM_GRADS);
}

static int is_zeroed(const struct duet_data_parallel *m) {
    return m->passes.zeroed != m->params[0]->zeroed;
}

/* A tape that was begun with the parameters knows the gradients of all its passes. For other tapes
 * this model knows only its own passes: not every pass of an update needs to use it, so the number
 * of the pass does not tell whose gradients are there. */
const char *data_parallel_kept_of(const struct duet_data_parallel *m, const duet_tape *t) {
    const struct passes *p = &m->passes;
    if (m->shares) return NULL; /* the replicas hold the sums */
    if (t->owner == m->params[0] && memchr(t->has_grad, 1, (size_t)t->owner->set.count))
        return t->has_grad;
    return p->tape == t && p->update == t->update && !is_zeroed(m) ? p->has_grad : NULL;
}

static struct tensor whole(const struct duet_data_parallel *m, float *arena) {
    const int count = (int)m->params[0]->set.grad_count;
    return tensor_plain(arena, DTYPE_F32, 1, &count);
}

/* A gradient that is not kept still belongs to an earlier update. */
int data_parallel_save_sums(struct duet_data_parallel *m, const char *kept) {
    struct param_set *set = &m->params[0]->set;
    char *has_grad = m->passes.has_grad;
    if (!kept) {
        memset(has_grad, 0, (size_t)set->count);
        return OK;
    }
    CHECK(make_sums(m));
    memmove(has_grad, kept, (size_t)set->count);
    CHECK(param_set_zero_unused(set, kept));
    struct tensor grads = whole(m, set->grads);
    return copy_peer(device_compute(set->device), set->device, m->passes.sums, set->device,
                     grads.data, tensor_bytes(&grads));
}

/* A parameter has a gradient if a replica has used it in this pass or an earlier one. */
static void mark_used(struct duet_data_parallel *m) {
    int count = m->params[0]->set.count;
    char *has_grad = m->passes.has_grad;
    for (int r = 0; r < m->used; r++)
        for (int i = 0; i < count; i++)
            has_grad[i] |= m->params[r]->has_grad[i];
    memcpy(m->params[0]->has_grad, has_grad, (size_t)count);
}

int data_parallel_add_sums(struct duet_data_parallel *m, const char *kept) {
    struct param_set *set = &m->params[0]->set;
    struct passes *p = &m->passes;
    const struct tensor grads = whole(m, set->grads);
    struct op_args add = {.in = {grads, whole(m, p->sums)}, .out[0] = grads};
    m->has_input_grad = m->input_grad;
    if (kept) CHECK(launch(device_compute(set->device), OP_ADD_FORWARD, &add));
    mark_used(m);
    p->zeroed = m->params[0]->zeroed;
    p->tape = NULL;
    return OK;
}

/* ---- the gradient of the input ---- */

struct input_grads {
    const struct pieces *x;
    duet_var **leaf;                 /* of each replica */
    struct tensor rows[MAX_DEVICES]; /* of each replica */
    duet_tensor *zeros[MAX_DEVICES]; /* owned: for a replica whose outputs do not depend on x */
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

/* The zeros were enqueued after the backward, so its events do not cover them. Rows that no replica
 * has used keep zeros. */
static int gather_rows(struct duet_data_parallel *m, struct input_grads *g) {
    struct tensor used = g->grad->t;
    used.dims[0] = 0;
    for (int r = 0; r < m->used; r++)
        used.dims[0] += g->x->sizes[r];
    for (int r = 0; r < m->used; r++)
        CHECK(device_group_ready(&m->dp.group, r));
    CHECK(dp_gather(&m->dp, g->rows, g->x->sizes, &used));
    return stream_sync(m->dp.group.stream); /* the zeros are freed next */
}

static int gather_input_grad(struct duet_data_parallel *m, struct input_grads *g) {
    struct tensor whole = g->x->part[0].t;
    whole.dims[0] = g->x->rows;
    CHECK(duet_tensor_create(&g->grad, (duet_device *)m->dp.group.device[0], DUET_F32, whole.rank,
                             whole.dims, NULL));
    CHECK(find_rows(m, g));
    CHECK(gather_rows(m, g));
    return data_parallel_turn_back(m, &g->grad);
}

int duet_data_parallel_input_grad(duet_data_parallel *m, int i, duet_tensor **grad) {
    CHECK_OUT(grad);
    if (!m) return fail(ERR_USAGE, "DataParallel: the module is NULL");
    if (!m->input_grad)
        return fail(ERR_USAGE, "DataParallel: x needs no gradient: set input_grad in options");
    if (!m->has_input_grad)
        return fail(ERR_USAGE, "DataParallel: no gradient of x without a backward before it");
    if (i < 0 || i >= m->inputs)
        return fail(ERR_USAGE, "DataParallel: input %d: expected 0 to %d", i, m->inputs - 1);
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
