/* The operands of an op. An operand without N is a parameter, a constant or computed from these. In
 * an op on samples it is the same for each sample; an op whose result has no N takes it as rows
 * (nn/tape/rows.c). */
#include "base/error.h"
#include "models/graph/graph_args.h"
#include "nn/params/params.h"

struct param *graph_computed(struct graph_run *r, int what) {
    if (!r->at[what].computed) {
        if (!r->in_rows) tape_swap_rows(r->tape);
        r->at[what].computed = 1 + tape_computed(r->tape, r->at[what].var);
        if (!r->in_rows) tape_swap_rows(r->tape);
    }
    return tape_param_at(r->tape, "value", r->at[what].computed - 1, 0);
}

/* A tensor for each row, or for all samples. */
static duet_var *stored(struct graph_run *r, const struct graph_tensor *from) {
    duet_tape *t = r->tape;
    const int trained = from->kind == GRAPH_PARAMETER;
    struct param *p = trained ? &t->step.params->param[from->index] : NULL;
    const struct tensor *x = trained ? &p->value : &t->buffers->buffer[from->index].value;
    int dims[GRAPH_RANK + 1] = {t->segments.count};
    if (!r->in_rows && trained) return duet_parameter(t, from->index);
    if (!r->in_rows)
        return duet_constant(t, &(duet_tensor){.device = t->device, .t = *x, .borrowed = 1});
    for (int i = 0; i < x->rank; i++)
        dims[i + 1] = x->dims[i];
    return tape_expand(t, x, p, x->rank + 1, dims);
}

duet_var *value(struct graph_run *r, const struct graph_node *n, int i) {
    int what = i < n->operand_count ? n->operands[i] : GRAPH_NONE;
    if (what == GRAPH_NONE || r->tape->error) return NULL;
    if (what < 0) return stored(r, &r->graph->tensors[~what]);
    if (r->in_rows || graph_has_batch(&r->graph->values[what].shape)) return r->at[what].var;
    const struct param *p = graph_computed(r, what);
    return p ? duet_parameter(r->tape, p->index) : NULL;
}

int tensor(struct graph_run *r, const struct graph_node *n, int i) {
    int what = n->operands[i];
    if (what == GRAPH_NONE) return DUET_NO_BIAS;
    if (what < 0) return r->graph->tensors[~what].index;
    const struct param *p = graph_computed(r, what);
    return p ? p->index : DUET_NO_BIAS;
}

/* x with this many dimensions; new ones have size 1 and follow that of the rows. */
static duet_var *widen(struct graph_run *r, duet_var *x, int rank) {
    int dims[GRAPH_RANK + 1];
    if (!x || !r->in_rows || x->value.rank >= rank || rank > GRAPH_RANK) return x;
    for (int k = 0; k < rank; k++) {
        int at = k - rank + x->value.rank;
        dims[k] = !k ? x->value.dims[0] : at > 0 ? x->value.dims[at] : 1;
    }
    return duet_reshape(r->tape, x, rank, dims);
}

duet_var *beside_result(struct graph_run *r, const struct graph_node *n, int i) {
    return widen(r, value(r, n, i), r->graph->values[n->y].shape.rank + 1);
}

/* Within rows a vector is a row or a column. */
duet_var *run_matmul(struct graph_run *r, const struct graph_node *n) {
    duet_var *a = value(r, n, 0), *b = value(r, n, 1);
    int dims[GRAPH_RANK + 1], rank = result_shape(r, n, dims);
    if (!a || !b || !r->in_rows) return duet_matmul(r->tape, a, b);
    if (b->value.rank == 2)
        b = duet_reshape(r->tape, b, 3, (int[]){b->value.dims[0], b->value.dims[1], 1});
    a = widen(r, a, b && b->value.rank > 3 ? b->value.rank : 3);
    duet_var *y = duet_matmul(r->tape, a, widen(r, b, a ? a->value.rank : 3));
    return y ? duet_reshape(r->tape, y, rank, dims) : NULL;
}
