/* Products of two vars, sums and means, and embeddings. All work in plain layout.
 *
 * A product of tensors is written as `count` products of matrices, and a sum as (outer, length,
 * inner): the ops know no other shapes, and the views cost nothing. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "nn/tape_internal.h"

/* x with other dimensions, which make as many elements. */
static struct tensor seen_as(const struct tensor *x, int rank, int d0, int d1, int d2) {
    struct tensor v = tensor_plain(x->data, x->dtype, rank, (int[3]){d0, d1, d2});
    return v;
}

/* ERR_USAGE where the batch has several segments, since the result would depend on all of them. */
static int one_segment(const struct tape *t, const char *op) {
    if (t->segments.count == 1) return OK;
    return fail(ERR_USAGE,
                "%s: it would mix samples of %d virtual devices: keep the dimension of samples", op,
                t->segments.count);
}

/* ---- matmul ---- */

/* y (count, rows, columns) = a (count, rows, depth) times b (count, depth, columns). */
struct matmul_shape {
    int count, rows, depth, columns;
    int rank, dims[MAX_RANK]; /* of y, as the caller sees it */
};

static int mismatch(const struct tensor *a, const struct tensor *b) {
    return fail(
        ERR_USAGE,
        "matmul: mat1 and mat2 shapes cannot be multiplied (rank %d, last dimension %d, and "
        "rank %d, first of the last two %d): check the model",
        a->rank, a->dims[a->rank - 1], b->rank, b->dims[b->rank > 1 ? b->rank - 2 : 0]);
}

static int matmul_shape_of(const struct tensor *a, const struct tensor *b, struct matmul_shape *s) {
    int b_vector = b->rank == 1, batched = b->rank > 2;
    memset(s, 0, sizeof *s);
    s->depth = a->dims[a->rank - 1];
    if (b->dims[b_vector ? 0 : b->rank - 2] != s->depth) return mismatch(a, b);
    if (batched && a->rank != b->rank) return mismatch(a, b);
    s->count = 1;
    for (int i = 0; batched && i < a->rank - 2; i++) {
        if (a->dims[i] != b->dims[i])
            return fail(ERR_USAGE,
                        "matmul: The size of tensor a (%d) must match the size of tensor b (%d) at "
                        "non-singleton dimension %d: check the model",
                        a->dims[i], b->dims[i], i);
        s->count *= a->dims[i];
    }
    s->rows = 1;
    for (int i = batched ? a->rank - 2 : 0; i < a->rank - 1; i++)
        s->rows *= a->dims[i];
    s->columns = b_vector ? 1 : b->dims[b->rank - 1];
    for (int i = 0; i < a->rank - 1; i++)
        s->dims[s->rank++] = a->dims[i];
    if (!b_vector) s->dims[s->rank++] = s->columns;
    if (!s->rank) s->dims[s->rank++] = 1; /* of two vectors: one number */
    return OK;
}

static struct matmul_shape shape_of_node(const struct node *n) {
    struct matmul_shape s;
    (void)matmul_shape_of(&n->x->value, &n->x2->value, &s); /* forward has checked it */
    return s;
}

/* A product of no terms is 0. */
static int launch_product(struct tape *t, const struct op_args *args) {
    struct op_args fill = {.out[0] = args->out[0]};
    if (!tensor_count(&args->out[0])) return OK;
    return tensor_count(&args->in[0]) ? launch(t->stream, OP_MATMUL, args)
                                      : launch(t->stream, OP_FILL, &fill);
}

/* x->grad += product of two operands as the op sees them. */
static int product_gradient(struct tape *t, struct var *x, const struct tensor *a,
                            const struct tensor *b, struct matmul_args how, int count, int rows,
                            int columns) {
    struct tensor dx = grad_target(t, x);
    struct op_args args = {
        .in = {*a, *b}, .out[0] = seen_as(&dx, 3, count, rows, columns), .p.matmul = how};
    CHECK(tape_error(t));
    CHECK(launch_product(t, &args));
    return grad_done(t, x, &dx);
}

/* da = dy bT and db = aT dy. */
static int matmul_backward(struct tape *t, struct node *n) {
    struct matmul_shape s = shape_of_node(n);
    struct tensor a = seen_as(&n->x->value, 3, s.count, s.rows, s.depth),
                  b = seen_as(&n->x2->value, 3, s.count, s.depth, s.columns),
                  dy = seen_as(&n->y->grad, 3, s.count, s.rows, s.columns);
    if (n->x2->needs_grad)
        CHECK(product_gradient(t, n->x2, &a, &dy, (struct matmul_args){.turn_a = 1}, s.count,
                               s.depth, s.columns));
    if (!n->x->needs_grad) return OK;
    return product_gradient(t, n->x, &dy, &b, (struct matmul_args){.turn_b = 1}, s.count, s.rows,
                            s.depth);
}

struct var *matmul(struct tape *t, struct var *a, struct var *b) {
    struct matmul_shape s;
    if (tape_stuck(t, a) || tape_stuck(t, b)) return NULL;
    a = to_plain(t, a);
    b = to_plain(t, b);
    if (!a || !b || tape_fail(t, matmul_shape_of(&a->value, &b->value, &s))) return NULL;
    if (b->value.rank < 3 && tape_fail(t, one_segment(t, "matmul"))) return NULL;
    struct node node = {.backward = matmul_backward, .x = a, .x2 = b};
    struct tensor y = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, s.rank, s.dims);
    node.args = (struct op_args){.in = {seen_as(&a->value, 3, s.count, s.rows, s.depth),
                                        seen_as(&b->value, 3, s.count, s.depth, s.columns)},
                                 .out[0] = seen_as(&y, 3, s.count, s.rows, s.columns)};
    if (t->error || tape_fail(t, launch_product(t, &node.args))) return NULL;
    node.y = tape_var(t, y, a->needs_grad || b->needs_grad);
    return tape_node(t, &node) ? NULL : node.y;
}

/* ---- sum and mean ---- */

static int sum_backward(struct tape *t, struct node *n) {
    if (!n->x->needs_grad) return OK;
    struct tensor dx = grad_target(t, n->x);
    const int *seen = n->args.in[0].dims;
    struct op_args args = {.in[0] = seen_as(&n->y->grad, 2, seen[0], seen[2], 0),
                           .out[0] = seen_as(&dx, 3, seen[0], seen[1], seen[2]),
                           .p = n->args.p};
    CHECK(tape_error(t));
    if (tensor_count(&dx)) CHECK(launch(t->stream, OP_SPREAD, &args));
    return grad_done(t, n->x, &dx);
}

/* Cuts the dimensions of x into those before `dim`, dim itself, and those behind it. */
static int cut_at(const struct tensor *x, int dim, int cut[3]) {
    cut[0] = cut[1] = cut[2] = 1;
    if (dim != DIM_ALL && (dim < 0 || dim >= x->rank))
        return fail(ERR_USAGE,
                    "Dimension out of range (expected to be in range of [%d, %d], but got %d): "
                    "check the model",
                    -x->rank, x->rank - 1, dim);
    for (int i = 0; i < x->rank; i++)
        cut[dim == DIM_ALL ? 1 : i < dim ? 0 : i == dim ? 1 : 2] *= x->dims[i];
    return OK;
}

/* The sum of nothing is 0, and its mean is NaN, as in PyTorch. */
static int launch_sum(struct tape *t, const struct op_args *args, int mean) {
    struct op_args fill = {.out[0] = args->out[0], .p.fill.value = mean ? NAN : 0};
    if (!tensor_count(&args->out[0])) return OK;
    return tensor_count(&args->in[0]) ? launch(t->stream, OP_SUM, args)
                                      : launch(t->stream, OP_FILL, &fill);
}

static struct var *sum_over(struct tape *t, struct var *x, int dim, int mean) {
    int cut[3], dims[MAX_RANK] = {1}, rank = 0;
    if (tape_stuck(t, x)) return NULL;
    x = to_plain(t, x);
    if (!x || tape_fail(t, cut_at(&x->value, dim, cut)) ||
        (dim <= 0 && tape_fail(t, one_segment(t, mean ? "mean" : "sum"))))
        return NULL;
    for (int i = 0; dim != DIM_ALL && i < x->value.rank; i++)
        if (i != dim) dims[rank++] = x->value.dims[i];
    struct node node = {.backward = sum_backward, .x = x};
    struct tensor y = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, rank ? rank : 1, dims);
    node.args = (struct op_args){.in[0] = seen_as(&x->value, 3, cut[0], cut[1], cut[2]),
                                 .out[0] = seen_as(&y, 2, cut[0], cut[2], 0),
                                 .p.sum.divide = mean && cut[1] ? cut[1] : 1};
    if (t->error || tape_fail(t, launch_sum(t, &node.args, mean))) return NULL;
    node.y = tape_var(t, y, x->needs_grad);
    return tape_node(t, &node) ? NULL : node.y;
}

struct var *sum_of(struct tape *t, struct var *x, int dim) {
    return sum_over(t, x, dim, 0);
}

struct var *mean_of(struct tape *t, struct var *x, int dim) {
    return sum_over(t, x, dim, 1);
}

/* ---- embedding ---- */

/* Of one segment; there is no bias. */
static int embedding_segment(struct tape *t, const struct node *n, int s, const struct tensor *dw,
                             const struct tensor *db) {
    struct tensor index = tensor_segment(&n->args.in[1], &t->segments, s),
                  dy = tensor_segment(&n->y->grad, &t->segments, s);
    int rows = (int)tensor_count(&index);
    struct op_args args = {
        .in = {seen_as(&dy, 2, rows, dw->dims[1], 0), seen_as(&index, 1, rows, 0, 0)},
        .out[0] = *dw};
    (void)db;
    return launch(t->stream, OP_EMBEDDING_BACKWARD, &args);
}

static int embedding_backward(struct tape *t, struct node *n) {
    return tape_weight_grads(t, OP_EMBEDDING_BACKWARD, n);
}

struct var *embedding(struct tape *t, const struct tensor *index, struct param *w) {
    const int one = 1;
    int dims[MAX_RANK], rank = index->rank;
    if (t->error || tape_check_params(t, "embedding", w, NULL)) return NULL;
    if (w->value.rank != 2 || rank < 1 || rank >= MAX_RANK || index->dims[0] != t->segments.n) {
        tape_fail(t, fail(ERR_USAGE,
                          "embedding %s: indices of rank %d for %d of %d samples, a table of rank "
                          "%d: check the model",
                          w->spec->name, rank, index->dims[0], t->segments.n, w->value.rank));
        return NULL;
    }
    memcpy(dims, index->dims, sizeof dims);
    dims[rank] = w->value.dims[1];
    struct tensor y = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, rank + 1, dims);
    int rows = (int)tensor_count(index);
    struct op_args args = {.in = {w->value, seen_as(index, 1, rows, 0, 0)},
                           .out[0] = seen_as(&y, 2, rows, dims[rank], 0)};
    if (t->error || tape_fail(t, launch(t->stream, OP_GATHER_ROWS, &args))) return NULL;
    struct node node = {.backward = embedding_backward, .w = w, .segment_grads = embedding_segment};
    node.args.in[1] = *index;
    node.args.in[2] = tensor_plain(NULL, DTYPE_F32, 1, &one); /* of the bias that there is not */
    node.y = tape_var(t, y, 1);
    return tape_node(t, &node) ? NULL : node.y;
}
