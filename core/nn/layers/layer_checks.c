/* The checks that every layer makes first: the parameter exists, the sizes are valid for a layer,
 * and the result fits into a tensor. */
#include "base/error.h"
#include "nn/tape/tape_internal.h"

struct param *tape_param_at(duet_tape *t, const char *layer, int i, int rank) {
    int count = t->step.params ? t->step.params->count : 0;
    if (i < 0 || i >= tape_param_count(t))
        return tape_refuse(t, "%s: parameter %d: the pass was begun with %d parameters", layer, i,
                           count);
    struct param *p = i < count ? &t->step.params->param[i] : tape_computed_at(t, i - count);
    if (!rank || p->value.rank == rank) return p;
    return tape_refuse(t, "%s: %s is %s: must have %d dimensions", layer, p->spec->name,
                       SHAPE(&p->value), rank);
}

struct param *tape_bias_at(duet_tape *t, const char *layer, int i, int *wrong) {
    struct param *bias = i == DUET_NO_BIAS ? NULL : tape_param_at(t, layer, i, 1);
    *wrong = i != DUET_NO_BIAS && !bias;
    return bias;
}

int tape_beyond(duet_tape *t, const char *layer, const char *what, int value, int least) {
    if (value >= least && value <= MOST_WINDOW) return 0;
    tape_fail(t,
              fail(ERR_USAGE, "%s: %s %d: give %d to %d", layer, what, value, least, MOST_WINDOW));
    return 1;
}

int tape_too_large(duet_tape *t, const char *layer, const duet_var *x, int64_t outputs,
                   int64_t rows, int64_t columns) {
    int64_t samples = x->value.dims[0] ? x->value.dims[0] : 1;
    if (rows <= INT32_MAX && columns <= INT32_MAX && rows * columns <= INT32_MAX / outputs &&
        rows * columns * outputs <= INT32_MAX / samples)
        return 0;
    tape_fail(t, fail(ERR_USAGE,
                      "%s: %lld x %lld x %lld outputs for %lld samples: a tensor has at most "
                      "2^31 - 1 elements: give a smaller batch",
                      layer, (long long)outputs, (long long)rows, (long long)columns,
                      (long long)samples));
    return 1;
}

int tape_operand(const struct duet_tape *t, const char *op, const char *what, const duet_tensor *x,
                 enum dtype dtype) {
    if (!x) return fail(ERR_USAGE, "%s: no %s was given", op, what);
    if (x->device != t->device)
        return fail(ERR_USAGE,
                    "%s: %s is on %s, but the tape is on %s: bring it over with duet_tensor_to", op,
                    what, device_name(x->device), device_name(t->device));
    if (x->t.dtype != dtype)
        return fail(ERR_USAGE, "%s: %s is of type %s: must be %s", op, what, dtype_name(x->t.dtype),
                    dtype_name(dtype));
    return OK;
}

/* Backward counts the uses of a parameter by its index in the set. */
static int check_param(const duet_tape *t, const char *layer, const struct param *p) {
    const struct param_set *set = t->step.params;
    if (p->from || (set && p >= set->param && p < set->param + set->count)) return OK;
    return fail(ERR_FAILED, "%s: a parameter that is not in the set given to tape_begin", layer);
}

int tape_check_params(duet_tape *t, const char *layer, const struct param *w,
                      const struct param *b) {
    CHECK(tape_fail(t, check_param(t, layer, w)));
    if (b) CHECK(tape_fail(t, check_param(t, layer, b)));
    return tape_fail(t, params_use(t->owner, w, b, 0));
}

/* The bias that a layer adds to its outputs; zeros if it has none. */
struct tensor tape_bias(duet_tape *t, const struct param *b, int outputs) {
    if (b) return b->value;
    struct op_args args = {.out[0] = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, 1, &outputs)};
    if (!t->error) tape_fail(t, launch(t->stream, OP_FILL, &args));
    return args.out[0];
}
