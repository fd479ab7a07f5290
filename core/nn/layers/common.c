/* Vars that are the same for all samples: constants, such as a mask, and parameters used as values,
 * such as a class token, positions or a learned scale.
 *
 * Such a var has no batch dimension. When an op combines it with a var that has one, each sample
 * gets a copy (expand.c), and ordinary arithmetic follows. */
#include "base/error.h"
#include "nn/tape/tape_internal.h"

static duet_var *common(duet_tape *t, const struct tensor *value, struct param *p) {
    duet_var *x = tape_var(t, *value, param_trains(p));
    if (!x) return NULL;
    x->common = 1;
    x->param = p;
    return x;
}

duet_var *duet_constant(duet_tape *t, const duet_tensor *x) {
    if (!t || t->error || tape_fail(t, tape_operand(t, "constant", "x", x, DTYPE_F32))) return NULL;
    return common(t, &x->t, NULL);
}

duet_var *duet_parameter(duet_tape *t, int i) {
    if (!t || t->error) return NULL;
    struct param *p = tape_param_at(t, "parameter", i, 0);
    return p ? common(t, &p->value, p) : NULL;
}

/* ---- a copy for each sample ---- */

duet_var *tape_for_samples(duet_tape *t, const char *op, duet_var *x, int rank, int rows) {
    if (tape_failed(t, x) || !x->common) return tape_failed(t, x) ? NULL : x;
    const struct tensor *v = &x->value;
    int dims[MAX_RANK] = {rows, 1, 1, 1, 1, 1, 1, 1}, skip = v->rank == rank;
    if (v->rank > rank || (skip && v->dims[0] != 1))
        return tape_refuse(t,
                           "%s: a constant or parameter of %s for samples of %d dimensions: it has "
                           "no batch dimension, so its first size must be 1",
                           op, SHAPE(v), rank);
    for (int i = skip; i < v->rank; i++)
        dims[rank - v->rank + i] = v->dims[i];
    return tape_expand(t, v, x->param, rank, dims);
}

int tape_for_all_samples(duet_tape *t, const char *op, duet_var **x, int n) {
    int rank = 0, rows = 0;
    for (int i = 0; i < n; i++)
        if (x[i] && !x[i]->common && x[i]->value.rank > rank)
            rank = x[i]->value.rank, rows = x[i]->value.dims[0];
    for (int i = 0; i < n && rank; i++)
        if (x[i] && !(x[i] = tape_for_samples(t, op, x[i], rank, rows))) return -1;
    return rank;
}

/* ---- expand ---- */

static int bad_expand(const duet_tape *t, const struct tensor *x, int has_samples, int rank,
                      const int *shape) {
    int bad =
        !shape || rank < 1 || rank > MAX_RANK || x->rank > rank ||
        (has_samples && x->rank != rank) ||
        (shape[0] != -1 && (has_samples ? shape[0] != x->dims[0] : !tape_rows_fit(t, shape[0])));
    for (int i = 1; !bad && i < rank; i++) {
        int at = i - rank + x->rank, own = at < 0 ? 0 : x->dims[at];
        bad = shape[i] == -1 ? !own : shape[i] < 1 || (own > 1 && own != shape[i]);
    }
    return bad;
}

duet_var *duet_expand(duet_tape *t, duet_var *x, int rank, const int *shape) {
    int dims[MAX_RANK];
    if (tape_failed(t, x) || (!x->common && tape_stuck(t, x))) return NULL;
    if (bad_expand(t, &x->value, !x->common, rank, shape))
        return tape_refuse(t,
                           "expand: a tensor of %s does not expand to this shape of %d dimensions: "
                           "the first must be %d samples or -1, and only a size of 1 can grow",
                           SHAPE(&x->value), rank, t->segments.n);
    int rows = shape[0] == -1 ? t->segments.n : shape[0];
    x = to_plain(t, tape_for_samples(t, "expand", x, rank, rows));
    if (!x) return NULL;
    for (int i = 0; i < rank; i++)
        dims[i] = i == 0 || shape[i] == -1 ? x->value.dims[i] : shape[i];
    return tape_broadcast(t, "expand", x, rank, dims);
}
