/* Views: detach, flatten and reshape, whose results are in the memory of their operand. */
#include "base/error.h"
#include "nn/tape/tape_internal.h"

/* The value without the node that made it. */
duet_var *duet_detach(duet_tape *t, duet_var *x) {
    if (tape_failed(t, x) || (!x->common && tape_blocked(t, x))) return NULL;
    duet_var *y = tape_view_var(t, x->value, x);
    if (y) y->common = x->common, y->needs_grad = 0;
    return y;
}

/* The strides of dims[rank], with as many elements as x, in the memory of x, which is strided; 0:
 * it is not a view. As in PyTorch's view(). */
static int strides_of_shape(const struct tensor *x, int rank, const int *dims, int *stride) {
    struct tensor runs = *x;
    int run = tensor_merge(x->rank, runs.dims, runs.stride, NULL) - 1;
    int left = runs.dims[run], below = runs.stride[run];
    if (!tensor_count(x)) return 0;
    for (int d = rank - 1; d >= 0; d--) {
        if (dims[d] > 1 && left == 1) {
            if (run-- == 0) return 0;
            left = runs.dims[run], below = runs.stride[run];
        }
        if (left % dims[d]) return 0;
        stride[d] = below;
        below *= dims[d], left /= dims[d];
    }
    return run == 0 && left == 1;
}

/* A strided x with different dimensions: a view of x if possible, else of a copy. */
static duet_var *strided_view(duet_tape *t, duet_var *x, int rank, const int *dims) {
    struct tensor lies = tensor_plain(x->value.data, DTYPE_F32, rank, dims);
    if (!strides_of_shape(&x->value, rank, dims, lies.stride))
        return tape_stuck(t, x) ? NULL : tape_view(t, x, rank, dims);
    struct tensor in_x = tensor_plain(NULL, DTYPE_F32, rank, dims);
    lies.strided = 1;
    return tape_part(t, x, &lies, &in_x, 0);
}

static duet_var *view(duet_tape *t, duet_var *x, int rank, const int *dims) {
    return x->value.strided ? strided_view(t, x, rank, dims) : tape_view(t, x, rank, dims);
}

duet_var *duet_flatten(duet_tape *t, duet_var *x) {
    if (tape_blocked(t, x)) return NULL;
    return view(t, x, 2, (int[]){x->value.dims[0], (int)tensor_sample_count(&x->value)});
}

/* Fills in the one -1 of a shape, and that of the rows. 0: `shape` does not fit x. */
static int complete_shape(const struct tensor *x, int rank, const int *shape, int *to) {
    int64_t known = 1, want = (int64_t)tensor_sample_count(x);
    int open = -1;
    if (!shape || rank < 1 || rank > MAX_RANK || (shape[0] != -1 && shape[0] != x->dims[0]))
        return 0;
    to[0] = x->dims[0];
    for (int i = 1; i < rank; i++) {
        to[i] = shape[i];
        if (shape[i] == -1 && open < 0)
            open = i;
        else if (shape[i] < 1 || known > want)
            return 0;
        else
            known *= shape[i];
    }
    if (open > 0) to[open] = (int)(want / known);
    return open > 0 ? want % known == 0 : want == known;
}

/* 1: dimensions of a sample become rows, (N,T,..) to (NT,..), or rows become dimensions: the order
 * of the numbers stays, in plain layout, and so do the samples that they belong to. There is no -1.
 * A batch of no samples has any shape. */
static int has_other_rows(const duet_tape *t, const struct tensor *x, int rank, const int *shape) {
    double count = shape && rank >= 1 && rank <= MAX_RANK;
    if (!count || !tape_rows_fit(t, shape[0]) || !tape_rows_fit(t, x->dims[0])) return 0;
    for (int i = 0; i < rank; i++) {
        if (i && shape[i] < 1) return 0;
        count *= shape[i];
    }
    return count == (double)tensor_count(x);
}

/* A constant or a parameter keeps no dimension; there is no -1. */
static duet_var *reshape_common(duet_tape *t, duet_var *x, int rank, const int *shape) {
    int64_t count = shape && rank >= 1 && rank <= MAX_RANK;
    for (int i = 0; count > 0 && i < rank && count <= INT32_MAX; i++)
        count *= shape[i];
    if (count < 1 || count != (int64_t)tensor_count(&x->value))
        return tape_refuse(t,
                           "reshape: the shape given, of %d dimensions, is invalid for a constant "
                           "or parameter of %s",
                           rank, SHAPE(&x->value));
    const struct tensor seen = tensor_plain(x->value.data, DTYPE_F32, rank, shape);
    duet_var *y = tape_var(t, seen, x->needs_grad);
    if (y) y->common = 1, y->param = x->param;
    return y;
}

duet_var *duet_reshape(duet_tape *t, duet_var *x, int rank, const int *shape) {
    int dims[MAX_RANK] = {0};
    if (tape_failed(t, x)) return NULL;
    if (x->common) return reshape_common(t, x, rank, shape);
    if (tape_blocked(t, x)) return NULL;
    if (complete_shape(&x->value, rank, shape, dims)) return view(t, x, rank, dims);
    if (has_other_rows(t, &x->value, rank, shape)) {
        x = to_plain(t, x);
        return x ? tape_view(t, x, rank, shape) : NULL;
    }
    return tape_refuse(
        t,
        "reshape: the shape given, of %d dimensions, is invalid for an input of %s: the first "
        "dimension stays, or has the same number of rows for each sample; one other may be -1",
        rank, SHAPE(&x->value));
}
