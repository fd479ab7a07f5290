/* Values that are computed only from parameters, buffers and constants, such as a weight divided by
 * its norm ("values of parameters").
 *
 * Such a value is the same for all samples, but its gradient is a sum over them, and sums go by
 * segments (docs/design.md section 2). So it is computed once for each segment, and ops treat these
 * rows like samples. Layers use row 0 as a parameter, and its gradient from segment s becomes that
 * of row s. Backward then gives each parameter one gradient per segment, and these are folded like
 * those of any other use. So single, DP and DDP have equal bits. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "nn/tape/tape_internal.h"

struct computed_param {
    struct param param;
    struct param_spec spec;
};

void tape_swap_rows(duet_tape *t) {
    const struct segments segments = t->segments;
    t->segments = t->rows.other;
    t->rows.other = segments;
    t->rows.inside = !t->rows.inside;
}

struct param *tape_computed_at(const duet_tape *t, int i) {
    return &t->rows.computed[i]->param;
}

static int grow(duet_tape *t) {
    if (t->rows.count < t->rows.capacity) return OK;
    void *list = realloc(t->rows.computed, (size_t)(t->rows.count + 1) * sizeof *t->rows.computed);
    if (list) t->rows.computed = list;
    struct computed_param *more = list ? malloc(sizeof *more) : NULL;
    if (!more) return fail(ERR_MEMORY, "tape: out of host memory");
    t->rows.computed[t->rows.capacity++] = more;
    return OK;
}

/* Layers and their backwards read the memory of x, so it stays as long as a node's operands. */
int tape_computed(duet_tape *t, duet_var *x) {
    if (!(x = to_plain(t, x)) || tape_stuck(t, x) || tape_fail(t, grow(t)) ||
        tape_fail(t, tape_grow_params(t, tape_param_count(t) + 1)))
        return -1;
    const int index = tape_param_count(t), rank = x->value.rank > 1 ? x->value.rank - 1 : 1;
    const int *dims = x->value.rank > 1 ? x->value.dims + 1 : &(int){1};
    struct computed_param *c = t->rows.computed[t->rows.count++];
    const struct tensor row = tensor_plain(x->value.data, DTYPE_F32, rank, dims);
    c->spec = (struct param_spec){.name = "(computed)", .rank = rank, .frozen = !x->needs_grad};
    memcpy(c->spec.dims, dims, (size_t)rank * sizeof *dims);
    c->param = (struct param){
        .spec = &c->spec, .index = index, .value = row, .count = tensor_count(&row), .from = x};
    x->saved = 1;
    return index;
}
