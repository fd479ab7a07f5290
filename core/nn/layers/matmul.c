/* torch.matmul: products of two vars, in layout PLAIN.
 *
 * Every product of tensors becomes `count` products of matrices, the only shapes that the op knows;
 * the views cost nothing. */
#include <string.h>

#include "base/error.h"
#include "nn/tape/tape_internal.h"

/* y (count, rows, columns) = a (count, rows, depth) times b (count, depth, columns). */
struct matmul_shape {
    int count, rows, depth, columns;
    int rank, dims[MAX_RANK]; /* shape of y as the caller sees it */
};

static int mismatch(const struct tensor *a, const struct tensor *b) {
    return fail(ERR_USAGE,
                "matmul: mat1 and mat2 shapes cannot be multiplied (%s and %s): check the model",
                SHAPE(a), SHAPE(b));
}

static int matmul_shape_of(const struct tensor *a, const struct tensor *b, struct matmul_shape *s) {
    int b_vector = b->rank == 1, batched = b->rank > 2;
    memset(s, 0, sizeof *s);
    s->depth = a->dims[a->rank - 1];
    s->count = 1;
    for (int i = 0; batched && i < a->rank - 2; i++)
        s->count *= a->dims[i];
    s->rows = 1;
    for (int i = batched ? a->rank - 2 : 0; i < a->rank - 1; i++)
        s->rows *= a->dims[i];
    s->columns = b_vector ? 1 : b->dims[b->rank - 1];
    for (int i = 0; i < a->rank - 1; i++)
        s->dims[s->rank++] = a->dims[i];
    if (!b_vector) s->dims[s->rank++] = s->columns;
    if (!s->rank) s->dims[s->rank++] = 1; /* the product of two vectors is one number */
    if ((int64_t)s->count * s->rows <= INT32_MAX / s->columns) return OK;
    return fail(ERR_USAGE, "matmul: %lld x %d elements: a tensor has at most 2^31 - 1",
                (long long)s->count * s->rows, s->columns);
}

static struct matmul_shape shape_of_node(const struct node *n) {
    struct matmul_shape s;
    (void)matmul_shape_of(&n->x->value, &n->x2->value, &s); /* forward has checked it */
    return s;
}

/* x->grad += product of two operands as the op sees them; a product of no terms is 0. */
static int product_gradient(duet_tape *t, duet_var *x, const struct tensor *a,
                            const struct tensor *b, struct matmul_args how, int count, int rows,
                            int columns) {
    struct op_args args = {.in = {*a, *b},
                           .out[0] = tensor_seen_as(&x->value, 3, count, rows, columns),
                           .p.matmul = how};
    return tape_give(t, x, OP_MATMUL, &args);
}

/* da = dy bT and db = aT dy. */
static int matmul_backward(duet_tape *t, struct node *n) {
    struct matmul_shape s = shape_of_node(n);
    struct tensor a = tensor_seen_as(&n->x->value, 3, s.count, s.rows, s.depth),
                  b = tensor_seen_as(&n->x2->value, 3, s.count, s.depth, s.columns),
                  dy = tensor_seen_as(&n->y->grad, 3, s.count, s.rows, s.columns);
    CHECK(product_gradient(t, n->x2, &a, &dy, (struct matmul_args){.turn_a = 1}, s.count, s.depth,
                           s.columns));
    return product_gradient(t, n->x, &dy, &b, (struct matmul_args){.turn_b = 1}, s.count, s.rows,
                            s.depth);
}

/* The operands are plain and aligned. */
static duet_var *product(duet_tape *t, duet_var *a, duet_var *b) {
    struct matmul_shape s;
    if (tape_fail(t, matmul_shape_of(&a->value, &b->value, &s))) return NULL;
    struct node node = {.backward = matmul_backward, .op = OP_MATMUL, .x = a, .x2 = b};
    node.spares = tape_product_spares(a, b);
    struct tensor y = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, s.rank, s.dims);
    node.args = (struct op_args){.in = {tensor_seen_as(&a->value, 3, s.count, s.rows, s.depth),
                                        tensor_seen_as(&b->value, 3, s.count, s.depth, s.columns)},
                                 .out[0] = tensor_seen_as(&y, 3, s.count, s.rows, s.columns)};
    if (t->error || tape_fail(t, tape_launch_some(t, OP_MATMUL, &node.args, 0))) return NULL;
    return tape_append(t, &node, y, a->needs_grad || b->needs_grad);
}

/* y without the dimension of size 1 that a vector `a` was given. */
static duet_var *without_row(duet_tape *t, duet_var *y) {
    int dims[MAX_RANK], rank = y->value.rank;
    memcpy(dims, y->value.dims, sizeof dims);
    dims[rank - 2] = dims[rank - 1];
    return tape_view(t, y, rank - 1, dims);
}

/* b has several matrices: both operands are spread to the same leading dimensions. A vector `a` is
 * a matrix of one row. */
static duet_var *batched_product(duet_tape *t, duet_var *a, duet_var *b) {
    int is_vector = a->value.rank == 1;
    if (is_vector) a = tape_view(t, a, 2, (int[]){1, a->value.dims[0]});
    duet_var *both[2] = {a, b};
    if (!a || !tape_broadcast_all(t, "matmul", both, 2, 2)) return NULL;
    duet_var *y = product(t, both[0], both[1]);
    return y && is_vector ? without_row(t, y) : y;
}

/* ---- operands common to all samples ---- */

static duet_var *sums_over_samples(duet_tape *t, const duet_var *a, const duet_var *b) {
    return tape_refuse(t,
                       "matmul: %s times %s would sum over the samples: multiply by a constant or "
                       "parameter within each of them",
                       SHAPE(&a->value), SHAPE(&b->value));
}

/* b, a parameter of rank 1 or 2 (a vector is a column): all rows of a sample of `a` are one matrix,
 * which is multiplied by the sample's copy of b. */
static duet_var *times_parameter(duet_tape *t, duet_var *a, const duet_var *b) {
    const struct tensor *w = &b->value;
    int rank = a->value.rank, depth = w->dims[0], columns = w->rank == 1 ? 1 : w->dims[1];
    int dims[MAX_RANK];
    if (rank == 1) return sums_over_samples(t, a, b);
    if (tape_stuck(t, a) || !(a = to_plain(t, a))) return NULL;
    memcpy(dims, a->value.dims, sizeof dims);
    if (dims[rank - 1] != depth) {
        tape_fail(t, mismatch(&a->value, w));
        return NULL;
    }
    int rows = (int)tensor_sample_count(&a->value) / depth;
    duet_var *copies = tape_expand(t, w, b->param, 3, (int[]){dims[0], depth, columns});
    a = tape_view(t, a, 3, (int[]){dims[0], rows, depth});
    duet_var *y = a && copies ? product(t, a, copies) : NULL;
    dims[rank - 1] = columns;
    return y ? tape_view(t, y, rank - (w->rank == 1), dims) : NULL;
}

/* A constant or parameter `a` (a vector is a row) times the matrices of each sample. */
static duet_var *common_times(duet_tape *t, duet_var *a, duet_var *b) {
    int is_vector = a->value.rank == 1;
    if (b->value.rank < 3) return sums_over_samples(t, a, b);
    if (is_vector) a = duet_reshape(t, a, 2, (int[]){1, a->value.dims[0]});
    duet_var *y =
        duet_matmul(t, tape_for_samples(t, "matmul", a, b->value.rank, b->value.dims[0]), b);
    return y && is_vector ? without_row(t, y) : y;
}

duet_var *duet_matmul(duet_tape *t, duet_var *a, duet_var *b) {
    if (tape_failed(t, a) || tape_failed(t, b)) return NULL;
    if (b->param && b->value.rank == 2 && !a->common && b->param->value.rank == 2 &&
        b->value.dims[0] == b->param->value.dims[0])
        return duet_matmul_add(t, a, b->param->index, DUET_NO_BIAS);
    if (b->param && b->value.rank < 3 && !a->common) return times_parameter(t, a, b);
    if (a->common && !b->common) return common_times(t, a, b);
    if (!a->common && b->value.rank > 2)
        b = tape_for_samples(t, "matmul", b, a->value.rank, a->value.dims[0]);
    if (tape_stuck(t, a) || tape_stuck(t, b)) return NULL;
    const int fixed = b->common && b->value.rank < 3 && !a->common && a->value.rank > 1;
    /* if both are matrices, the rows of both are samples */
    if (!fixed && (b->value.rank < 3 || a->value.rank != b->value.rank) &&
        tape_mixes_samples(t, "matmul"))
        return NULL;
    a = to_plain(t, a);
    b = to_plain(t, b);
    if (!a || !b) return NULL;
    const struct tensor *v = &a->value, *w = &b->value;
    if (v->dims[v->rank - 1] != w->dims[w->rank > 1 ? w->rank - 2 : 0]) {
        tape_fail(t, mismatch(v, w));
        return NULL;
    }
    if (w->rank > 2) return batched_product(t, a, b);
    return !fixed && tape_fail(t, tape_one_segment(t, "matmul")) ? NULL : product(t, a, b);
}
