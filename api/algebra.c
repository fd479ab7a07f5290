/* Arithmetic of two vars, sums, means, embeddings and reshape: each checks what the command's
 * models must not do, and calls the internal op. */
#include "api/api.h"
#include "nn/tape_internal.h"

/* In a model's forward function the batch may be that of several devices, so nothing may mix its
 * samples: the bits would depend on how many devices there are. 1: refused. */
static int mixes_samples(duet_tape *t, const char *op) {
    if (!t->inside_model) return 0;
    api_tape_fail(t,
                  fail(ERR_USAGE,
                       "%s: it would mix the samples of a batch, which lie on several devices: in "
                       "a model's forward keep the dimension of samples",
                       op));
    return 1;
}

static int rank_of(duet_var *x) {
    return var_of(x)->value.rank;
}

/* In a model's forward the first dimension of both operands is that of samples. Where only one has
 * a dimension more, another one would be taken for it. */
typedef struct var *binary(struct tape *t, struct var *a, struct var *b);

static duet_var *of_two(duet_tape *t, const char *op, duet_var *a, duet_var *b, binary *f) {
    if (api_stuck(t, a) || api_stuck(t, b)) return NULL;
    if (rank_of(a) != rank_of(b) && mixes_samples(t, op)) return NULL;
    return public_var(f(t->tape, var_of(a), var_of(b)));
}

duet_var *duet_add(duet_tape *t, duet_var *a, duet_var *b) {
    return of_two(t, "add", a, b, add);
}

duet_var *duet_subtract(duet_tape *t, duet_var *a, duet_var *b) {
    return of_two(t, "subtract", a, b, subtract);
}

duet_var *duet_multiply(duet_tape *t, duet_var *a, duet_var *b) {
    return of_two(t, "multiply", a, b, multiply);
}

/* Of two matrices the rows of both are samples. */
duet_var *duet_matmul(duet_tape *t, duet_var *a, duet_var *b) {
    if (api_stuck(t, a) || api_stuck(t, b)) return NULL;
    if (rank_of(b) < 3 && mixes_samples(t, "matmul")) return NULL;
    return of_two(t, "matmul", a, b, matmul);
}

typedef struct var *sum_function(struct tape *t, struct var *x, int dim);

static duet_var *over_all(duet_tape *t, const char *op, duet_var *x, sum_function *f) {
    if (api_stuck(t, x) || mixes_samples(t, op)) return NULL;
    return public_var(f(t->tape, var_of(x), DIM_ALL));
}

/* Dimension `dim` of x, where negative ones count from the last one, -1; below 0: there is none. */
static int dimension_of(duet_tape *t, const char *op, duet_var *x, int dim) {
    int rank = var_of(x)->value.rank, at = dim < 0 && dim >= -rank ? dim + rank : dim;
    if (at < 0 || at >= rank) {
        api_tape_fail(t, fail(ERR_USAGE,
                              "%s: Dimension out of range (expected to be in range of [%d, %d], "
                              "but got %d): check the model",
                              op, -rank, rank - 1, dim));
        return -1;
    }
    return at;
}

static duet_var *over_one(duet_tape *t, const char *op, duet_var *x, int dim, sum_function *f) {
    if (api_stuck(t, x)) return NULL;
    int at = dimension_of(t, op, x, dim);
    if (at < 0 || (at == 0 && mixes_samples(t, op))) return NULL;
    return public_var(f(t->tape, var_of(x), at));
}

/* The same for what joins or cuts within samples. */
static int inner_dimension(duet_tape *t, const char *op, duet_var *x, int dim) {
    int at = dimension_of(t, op, x, dim);
    if (at == 0)
        api_tape_fail(t,
                      fail(ERR_USAGE,
                           "%s: dimension 0 is that of the samples: give another one, or join and "
                           "cut tensors by duet_tensor_cat and duet_tensor_rows",
                           op));
    return at > 0 ? at : -1;
}

duet_var *duet_narrow(duet_tape *t, duet_var *x, int dim, int start, int length) {
    if (api_stuck(t, x)) return NULL;
    int at = inner_dimension(t, "narrow", x, dim);
    return at < 0 ? NULL : public_var(narrow(t->tape, var_of(x), at, start, length));
}

duet_var *duet_cat(duet_tape *t, duet_var *const *vars, int count, int dim) {
    struct var *x[MAX_CAT];
    if (!t || t->error) return NULL;
    if (!vars || count < 1 || count > MAX_CAT) {
        api_tape_fail(t, fail(ERR_USAGE, "cat: %d vars: give an array of 1 to %d", count, MAX_CAT));
        return NULL;
    }
    for (int i = 0; i < count; i++) {
        if (api_stuck(t, vars[i])) return NULL;
        x[i] = var_of(vars[i]);
    }
    int at = inner_dimension(t, "cat", vars[0], dim);
    return at < 0 ? NULL : public_var(cat(t->tape, x, count, at));
}

typedef struct var *dims_function(struct tape *t, struct var *x, const int *dims, int count,
                                  int keepdim);

static duet_var *over_several(duet_tape *t, const char *op, duet_var *x, const int *dims, int count,
                              int keepdim, dims_function *f) {
    unsigned chosen;
    if (api_stuck(t, x)) return NULL;
    if (count < 0 || count > MAX_RANK || (count && !dims)) {
        api_tape_fail(t, fail(ERR_USAGE, "%s: %d dimensions: give 0, for all, to %d of them", op,
                              dims ? count : 0, MAX_RANK));
        return NULL;
    }
    if (api_tape_fail(t, tape_find_dims(op, &var_of(x)->value, dims, count, &chosen)) ||
        (chosen & 1 && mixes_samples(t, op)))
        return NULL;
    return public_var(f(t->tape, var_of(x), dims, count, keepdim != 0));
}

duet_var *duet_sum_dims(duet_tape *t, duet_var *x, const int *dims, int count, int keepdim) {
    return over_several(t, "sum", x, dims, count, keepdim, sum_dims);
}

duet_var *duet_mean_dims(duet_tape *t, duet_var *x, const int *dims, int count, int keepdim) {
    return over_several(t, "mean", x, dims, count, keepdim, mean_dims);
}

/* The first dimension, which is that of samples, stays where it is in a model's forward. */
duet_var *duet_permute(duet_tape *t, duet_var *x, const int *order) {
    if (api_stuck(t, x)) return NULL;
    if (!order) {
        api_tape_fail(t, fail(ERR_USAGE, "permute: no order was given"));
        return NULL;
    }
    if (order[0] && order[0] != -rank_of(x) && mixes_samples(t, "permute")) return NULL;
    return public_var(permute(t->tape, var_of(x), order, rank_of(x)));
}

duet_var *duet_transpose(duet_tape *t, duet_var *x, int dim0, int dim1) {
    if (api_stuck(t, x)) return NULL;
    int rank = rank_of(x), first0 = !dim0 || dim0 == -rank, first1 = !dim1 || dim1 == -rank;
    if (first0 != first1 && mixes_samples(t, "transpose")) return NULL;
    return public_var(transpose(t->tape, var_of(x), dim0, dim1));
}

duet_var *duet_sum(duet_tape *t, duet_var *x) {
    return over_all(t, "sum", x, sum_of);
}

duet_var *duet_mean(duet_tape *t, duet_var *x) {
    return over_all(t, "mean", x, mean_of);
}

duet_var *duet_sum_dim(duet_tape *t, duet_var *x, int dim) {
    return over_one(t, "sum", x, dim, sum_of);
}

duet_var *duet_mean_dim(duet_tape *t, duet_var *x, int dim) {
    return over_one(t, "mean", x, dim, mean_of);
}

static int check_embedding(const duet_tape *t, const duet_tensor *index, int w) {
    int count = t->params ? t->params->count : 0;
    CHECK(api_operand(t, "embedding", "index", index, DTYPE_I32));
    if (w < 0 || w >= count)
        return fail(ERR_USAGE, "embedding: parameter %d: the pass was begun with %d of them", w,
                    count);
    const struct tensor *table = &t->params->param[w].value;
    if (table->rank != 2)
        return fail(ERR_USAGE, "embedding: %s is a table of rank %d: must be 2",
                    t->params->param[w].spec->name, table->rank);
    if (tensor_count(&index->t) <= (size_t)INT32_MAX / (size_t)table->dims[1]) return OK;
    return fail(ERR_USAGE, "embedding: %zu rows: a tensor has at most 2^31 - 1 elements",
                tensor_count(&index->t));
}

duet_var *duet_embedding(duet_tape *t, const duet_tensor *index, int w) {
    if (!t || t->error) return NULL;
    if (tape_error(t->tape) || api_tape_fail(t, check_embedding(t, index, w))) return NULL;
    return public_var(embedding(t->tape, &index->t, &t->params->param[w]));
}

/* Fills in the one -1 of a shape, and that of the samples. 0: `shape` is no shape for x. */
static int complete_shape(const struct tensor *x, int rank, const int *shape, int *to) {
    int64_t known = 1, want = (int64_t)tensor_sample_count(x);
    int open = -1;
    if (!shape || rank < 2 || rank > MAX_RANK || (shape[0] != -1 && shape[0] != x->dims[0]))
        return 0;
    for (int i = 1; i < rank; i++) {
        to[i - 1] = shape[i];
        if (shape[i] == -1 && open < 0)
            open = i;
        else if (shape[i] < 1 || known > want)
            return 0;
        else
            known *= shape[i];
    }
    if (open > 0) to[open - 1] = (int)(want / known);
    return open > 0 ? want % known == 0 : want == known;
}

duet_var *duet_reshape(duet_tape *t, duet_var *x, int rank, const int *shape) {
    int of_sample[MAX_RANK];
    if (api_stuck(t, x)) return NULL;
    if (!complete_shape(&var_of(x)->value, rank, shape, of_sample)) {
        api_tape_fail(t,
                      fail(ERR_USAGE,
                           "reshape: the shape of rank %d is invalid for %d samples of %zu "
                           "numbers: the first dimension stays, and one other may be -1",
                           rank, var_of(x)->value.dims[0], tensor_sample_count(&var_of(x)->value)));
        return NULL;
    }
    return public_var(reshape(t->tape, var_of(x), rank, of_sample));
}
