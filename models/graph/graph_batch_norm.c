/* batch_norm in a graph, fused with a following relu and with an addition between them. */
#include <string.h>

#include "base/error.h"
#include "models/graph/graph_args.h"

/* Returns 1 if only node `n` uses the value `y`, and its op is `name`. */
static int feeds(const struct graph *g, int y, const struct graph_node *n, const char *name) {
    if (n == g->nodes + g->node_count || strcmp(n->op->name, name) || g->values[y].uses != 1)
        return 0;
    return n->operands[0] == y || (n->operand_count == 2 && n->operands[1] == y);
}

/* The running statistics, of `channels` numbers: the kernels need them next to each other, followed
 * by the count of batches. */
static int find_statistics(const struct graph_run *r, const struct graph_node *n, int channels,
                           struct norm_config *config) {
    const int *operand = &n->operands[3];
    int given = 0, fits = 1;
    for (int i = 0; i < 3; i++)
        given += operand[i] != GRAPH_NONE;
    if (!given) return OK;
    for (int i = 0; given == 3 && i < 3; i++) {
        const struct graph_tensor *b = &r->graph->tensors[~operand[i]];
        fits =
            fits && b->index == r->graph->tensors[~operand[0]].index + i &&
            (i < 2 ? !b->is_i64 && b->shape.rank == 1 && b->shape.size[0] == channels : b->is_i64);
    }
    if (given < 3 || !fits)
        return fail(ERR_USAGE,
                    "batch_norm: its buffers must be running_mean and running_var, f32[%d], and "
                    "num_batches_tracked, i64[], declared in this order, or none",
                    channels);
    *config =
        norm_config_default(&r->tape->buffers->buffer[r->graph->tensors[~n->operands[3]].index]);
    return OK;
}

/* A relu that follows at once, and an addition between them, are done in the same pass over x; an
 * addition that broadcasts is not. */
duet_var *run_batch_norm(struct graph_run *r, const struct graph_node *n) {
    const struct graph *g = r->graph;
    duet_tape *t = r->tape;
    struct param *w = tape_param_at(t, "batch_norm", tensor(r, n, 1), 1),
                 *b = tape_param_at(t, "batch_norm", tensor(r, n, 2), 1);
    struct norm_config config = {0};
    if (t->error || tape_fail(t, find_statistics(r, n, w->value.dims[0], &config))) return NULL;
    config.epsilon = number(n, 0);
    config.momentum = number(n, 1);
    config.synchronised = t->sync_bn;
    config.eval = !number(n, 2);
    const struct graph_node *next = n + 1;
    int nodes = 1; /* that are done at once */
    if (feeds(g, n->y, next, "relu")) nodes = 2;
    if (feeds(g, n->y, next, "add") && feeds(g, next->y, next + 1, "relu")) {
        int other = next->operands[next->operands[0] == n->y];
        if (other >= 0 && graph_same_shape(&g->values[n->y].shape, &g->values[other].shape))
            nodes = 3, config.residual = r->at[other].var;
    }
    config.relu = nodes > 1;
    duet_var *y = batch_norm(t, value(r, n, 0), w, b, &config);
    for (int i = 1; i < nodes; i++)
        r->at[n[i].y].var = y;
    return y;
}
