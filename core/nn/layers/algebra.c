/* Sums and means, permutations of dimensions, and broadcasting, whose gradient is a sum. All of
 * them work in layout PLAIN, except that sums over the pixels of images and broadcasting keep N16.
 *
 * A sum is over the middle of (outer, length, inner), the only shape that the ops know; the views
 * cost nothing. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "nn/tape/tape_internal.h"

int tape_mixes_samples(duet_tape *t, const char *op) {
    if (!t->inside_model) return 0;
    tape_fail(t, fail(ERR_USAGE,
                      "%s: it would mix the samples of a batch, which are on several devices: in "
                      "a model's forward keep the dimension of samples",
                      op));
    return 1;
}

/* ERR_USAGE if the batch has several segments, since the result would depend on all of them. */
int tape_one_segment(const duet_tape *t, const char *op) {
    if (t->segments.count == 1) return OK;
    return fail(ERR_USAGE,
                "%s: it would mix samples of %d virtual devices: keep the dimension of samples", op,
                t->segments.count);
}

/* ---- sum and mean ---- */

/* An empty sum is 0, and an empty mean is NaN, as in PyTorch. The gradient of a sum is a spread,
 * and that of a spread a sum. */
static int go_back(duet_tape *t, struct node *n, enum op op) {
    struct op_args args = {.in[0] = n->args.out[0], .out[0] = n->args.in[0], .p = n->args.p};
    args.in[0].data = n->y->grad.data;
    return tape_give(t, n->x, op, &args);
}

static int sum_backward(duet_tape *t, struct node *n) {
    return go_back(t, n, OP_SPREAD);
}

/* The dimensions of x as (before, first .. last, behind). In N16 a group is one index of dimension
 * 0, which is before the others, and its samples are a last dimension. */
static void cut_at(const struct tensor *x, int first, int last, int cut[3]) {
    const int n16 = x->layout == LAYOUT_N16;
    cut[0] = cut[1] = 1, cut[2] = n16 ? x->lanes : 1;
    for (int i = 0; i < x->rank; i++)
        cut[i < first ? 0 : i <= last ? 1 : 2] *= n16 && !i ? x->groups : x->dims[i];
}

/* The sum over the dimensions first .. last of x, which it removes. */
static duet_var *sum_run(duet_tape *t, duet_var *x, int first, int last, int mean) {
    int cut[3], dims[MAX_RANK] = {1}, rank = 0;
    cut_at(&x->value, first, last, cut);
    for (int i = 0; i < x->value.rank; i++)
        if (i < first || i > last) dims[rank++] = x->value.dims[i];
    struct node node = {.backward = sum_backward, .op = OP_SUM, .x = x, .spares = SPARES_ALL};
    struct tensor y = tape_tensor(t, DTYPE_F32, x->value.layout, rank ? rank : 1, dims);
    node.args = (struct op_args){.in[0] = tensor_seen_as(&x->value, 3, cut[0], cut[1], cut[2]),
                                 .out[0] = tensor_seen_as(&y, 2, cut[0], cut[2], 0),
                                 .p.sum.divide = mean && cut[1] ? cut[1] : 1};
    if (t->error || tape_fail(t, tape_launch_some(t, OP_SUM, &node.args, mean ? NAN : 0)))
        return NULL;
    return tape_append(t, &node, y, x->needs_grad);
}

/* Dimension `dim` of x, where negative ones count from the last one, -1; *at counts from 0.
 * ERR_USAGE, in PyTorch's words: there is none. */
static int tape_find_dim(const char *op, const struct tensor *x, int dim, int *at) {
    *at = dim < 0 && dim >= -x->rank ? dim + x->rank : dim;
    if (*at >= 0 && *at < x->rank) return OK;
    return fail(ERR_USAGE,
                "%s: Dimension out of range (expected to be in range of [%d, %d], but got %d): "
                "check the model",
                op, -x->rank, x->rank - 1, dim);
}

int tape_find_inner_dim(const char *op, const struct tensor *x, int dim, int *at) {
    CHECK(tape_find_dim(op, x, dim, at));
    if (*at) return OK;
    return fail(ERR_USAGE,
                "%s: dimension 0 is that of the samples: give another one, or join and cut tensors "
                "with duet_tensor_cat and duet_tensor_rows",
                op);
}

/* Bit d of *chosen: dimension d is one of `dims`, which count from 0, or from -1 backwards. No dims
 * means all. ERR_USAGE: there is no such dimension, or it is named twice. */
static int tape_find_dims(const char *op, const struct tensor *x, const int *dims, int count,
                          unsigned *chosen) {
    *chosen = count ? 0 : (1u << x->rank) - 1;
    for (int i = 0, at; i < count; i++) {
        CHECK(tape_find_dim(op, x, dims[i], &at));
        if (*chosen & (1u << at))
            return fail(ERR_USAGE, "%s: dim %d appears multiple times in the list of dims", op, at);
        *chosen |= 1u << at;
    }
    return OK;
}

/* Neighbouring dimensions are one sum. If others are between them, the last ones are summed first,
 * and that result is rounded. */
static duet_var *sum_chosen(duet_tape *t, duet_var *x, unsigned chosen, int keepdim, int mean) {
    int kept[MAX_RANK], rank = x->value.rank;
    for (int i = 0; i < rank; i++)
        kept[i] = chosen & (1u << i) ? 1 : x->value.dims[i];
    for (int last = rank - 1, first; x && last >= 0; last = first - 1) {
        first = last;
        if (!(chosen & (1u << last))) continue;
        while (first > 0 && chosen & (1u << (first - 1)))
            first--;
        x = sum_run(t, x, first, last, mean);
    }
    return x && keepdim ? tape_view(t, x, rank, kept) : x;
}

/* The sum over an image, which stays in N16. */
enum { PIXELS = 1 << 2 | 1 << 3 };

static duet_var *sum_over(duet_tape *t, duet_var *x, const int *dims, int count, int keepdim,
                          int mean) {
    const char *name = mean ? "mean" : "sum";
    unsigned chosen;
    if (tape_stuck(t, x)) return NULL;
    if (count < 0 || count > MAX_RANK || (count && !dims))
        return tape_refuse(t, "%s: %d dimensions: give 1 to %d, or 0 for all", name,
                           dims ? count : 0, MAX_RANK);
    if (tape_fail(t, tape_find_dims(name, &x->value, dims, count, &chosen)) ||
        (chosen & 1 && (tape_mixes_samples(t, name) || tape_fail(t, tape_one_segment(t, name)))))
        return NULL;
    if ((chosen != PIXELS || x->value.rank != 4) && !(x = to_plain(t, x))) return NULL;
    return sum_chosen(t, x, chosen, keepdim, mean);
}

duet_var *duet_sum(duet_tape *t, duet_var *x, const int *dims, int count, int keepdim) {
    return sum_over(t, x, dims, count, keepdim, 0);
}

duet_var *duet_mean(duet_tape *t, duet_var *x, const int *dims, int count, int keepdim) {
    return sum_over(t, x, dims, count, keepdim, 1);
}

/* ---- the order of dimensions ---- */

static int transposed_backward(duet_tape *t, struct node *n) {
    if (!n->x->needs_grad) return OK;
    struct tensor dx = grad_target(t, n->x), dy = tape_in_groups(&n->y->grad), to = n->args.in[0];
    to.data = dx.data;
    CHECK(tape_error(t));
    CHECK(tape_copy_strided(t, &dy, &to));
    return grad_done(t, n->x, &dx);
}

/* Permutes images within N16, as ShuffleNet permutes channels. args.in[0] is y as a view of x. */
static duet_var *transposed_in_groups(duet_tape *t, duet_var *x, const int *order) {
    int own[MAX_RANK], dims[MAX_RANK], rank = x->value.rank;
    for (int i = 0; i < rank; i++)
        own[i] = order[i], dims[i] = x->value.dims[order[i]];
    own[rank] = rank;
    struct tensor seen = tape_in_groups(&x->value), from = tensor_permuted(&seen, own),
                  y = tape_tensor(t, DTYPE_F32, LAYOUT_N16, rank, dims), to = tape_in_groups(&y);
    struct node node = {
        .backward = transposed_backward, .x = x, .args.in[0] = from, .spares = SPARES_ALL};
    if (t->error || tape_fail(t, tape_copy_strided(t, &from, &to))) return NULL;
    node.y = tape_view_var(t, y, x);
    return tape_node(t, &node) ? NULL : node.y;
}

/* order has the dimensions of x, counted from 0. That of the samples must not move among several
 * virtual devices. If rows stay rows, the result may stay an image; otherwise the next op would
 * refuse N16. */
static duet_var *permute(duet_tape *t, const char *op, duet_var *x, const int *order) {
    const int last = x->value.rank - 1;
    if (order[0] && (tape_mixes_samples(t, op) || tape_fail(t, tape_one_segment(t, op))))
        return NULL;
    if (x->value.layout != LAYOUT_PLAIN)
        return order[0] == 0 && order[last] == last && last + 1 < MAX_RANK
                   ? transposed_in_groups(t, x, order)
                   : tape_plain_in_order(t, x, order);
    struct tensor dense = tensor_plain(NULL, DTYPE_F32, x->value.rank, x->value.dims),
                  lies = tape_lies(x), in_x = tensor_permuted(&dense, order);
    lies = tensor_permuted(&lies, order);
    return tape_part(t, x, &lies, &in_x, 0);
}

duet_var *duet_permute(duet_tape *t, duet_var *x, const int *order) {
    int own[MAX_RANK];
    unsigned chosen;
    if (tape_blocked(t, x)) return NULL;
    if (!order) return tape_refuse(t, "permute: no order was given");
    if (tape_fail(t, tape_find_dims("permute", &x->value, order, x->value.rank, &chosen)))
        return NULL;
    for (int i = 0; i < x->value.rank; i++)
        own[i] = order[i] < 0 ? order[i] + x->value.rank : order[i];
    return permute(t, "permute", x, own);
}

duet_var *duet_transpose(duet_tape *t, duet_var *x, int dim0, int dim1) {
    int order[MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7}, a, b;
    if (tape_blocked(t, x) || tape_fail(t, tape_find_dim("transpose", &x->value, dim0, &a)) ||
        tape_fail(t, tape_find_dim("transpose", &x->value, dim1, &b)))
        return NULL;
    order[a] = b, order[b] = a;
    return permute(t, "transpose", x, order);
}

/* ---- broadcasting ---- */

int tape_broadcast_shape(const char *op, const struct tensor *a, const struct tensor *b, int own,
                         int *rank, int *dims) {
    *rank = a->rank > b->rank ? a->rank : b->rank;
    for (int i = *rank - 1; i >= 0; i--) { /* PyTorch names the last mismatch */
        int at_a = i - *rank + a->rank, at_b = i - *rank + b->rank,
            in_a = at_a < 0 ? 1 : a->dims[at_a], in_b = at_b < 0 ? 1 : b->dims[at_b];
        dims[i] = in_a == 1 ? in_b : in_a;
        if (i < *rank - own && in_a != in_b && in_a != 1 && in_b != 1)
            return fail(ERR_USAGE,
                        "%s: The size of tensor a (%d) must match the size of tensor b (%d) at "
                        "non-singleton dimension %d: check the model",
                        op, in_a, in_b, i);
    }
    return OK;
}

static int spread_backward(duet_tape *t, struct node *n) {
    return go_back(t, n, OP_SUM);
}

/* *y becomes x with copies along the dimensions first .. last, in which x has size 1, to the sizes
 * in `dims`. */
static int spread_value(duet_tape *t, const struct tensor *x, int first, int last, const int *dims,
                        struct tensor *y, struct op_args *args) {
    int cut[3], to[MAX_RANK];
    for (int i = 0; i < x->rank; i++)
        to[i] = i >= first && i <= last ? dims[i] : x->dims[i];
    *y = tape_tensor(t, DTYPE_F32, x->layout, x->rank, to);
    cut_at(y, first, last, cut);
    *args = (struct op_args){.in[0] = tensor_seen_as(x, 2, cut[0], cut[2], 0),
                             .out[0] = tensor_seen_as(y, 3, cut[0], cut[1], cut[2]),
                             .p.sum.divide = 1};
    if (t->error) return t->error;
    return tensor_count(y) ? tape_fail(t, launch(t->stream, OP_SPREAD, args)) : OK;
}

static duet_var *spread(duet_tape *t, duet_var *x, int first, int last, const int *dims) {
    if (x->value.strided && tape_stuck(t, x)) return NULL;
    struct node node = {.backward = spread_backward, .op = OP_SPREAD, .x = x, .spares = SPARES_ALL};
    struct tensor y;
    if (spread_value(t, &x->value, first, last, dims, &y, &node.args)) return NULL;
    node.y = tape_view_var(t, y, x);
    return tape_node(t, &node) ? NULL : node.y;
}

/* ERR_USAGE: the result is too large, or its gradient would sum over the samples of several
 * segments. A lower rank is refused whatever the number of samples. */
static int check_broadcast(const duet_tape *t, const char *op, const struct tensor *x, int rank,
                           const int *dims) {
    int64_t count = 1; /* an empty batch counts as one sample */
    if (x->rank != rank || x->dims[0] != dims[0]) CHECK(tape_one_segment(t, op));
    for (int i = 0; i < rank; i++) {
        int64_t size = dims[i] ? dims[i] : 1;
        if (count * size > INT32_MAX)
            return fail(ERR_USAGE, "%s: %lld x %d elements: a tensor has at most 2^31 - 1", op,
                        (long long)count, dims[i]);
        count *= size;
    }
    return OK;
}

/* From dimension *last down, the next consecutive ones along which `own` must be spread. 0: none.
 * The last come first, so that intermediate results are small. */
static int next_run(const int *own, const int *dims, int *first, int *last) {
    while (*last >= 0 && own[*last] == dims[*last])
        --*last;
    for (*first = *last; *first > 0 && own[*first - 1] != dims[*first - 1];)
        --*first;
    return *last >= 0;
}

/* The dimensions of x, preceded by ones up to `rank`. */
static void own_dims(const struct tensor *x, int rank, int *own) {
    int missing = rank - x->rank;
    for (int i = 0; i < rank; i++)
        own[i] = i < missing ? 1 : x->dims[i - missing];
}

duet_var *tape_broadcast(duet_tape *t, const char *op, duet_var *x, int rank, const int *dims) {
    int own[MAX_RANK], first, last = rank - 1;
    if (tape_fail(t, check_broadcast(t, op, &x->value, rank, dims))) return NULL;
    own_dims(&x->value, rank, own);
    if (x->value.rank < rank) x = tape_view(t, x, rank, own);
    for (; x && next_run(own, dims, &first, &last); last = first - 1)
        x = spread(t, x, first, last, dims);
    return x;
}

int tape_broadcast_all(duet_tape *t, const char *op, duet_var **x, int n, int own) {
    struct tensor all = {.rank = 0};
    int rank, dims[MAX_RANK];
    for (int i = 0; i < n; i++) {
        if (!x[i]) continue;
        if (tape_fail(t, tape_broadcast_shape(op, &all, &x[i]->value, own, &rank, dims))) return 0;
        all = tensor_plain(NULL, DTYPE_F32, rank, dims);
    }
    for (int i = 0; i < n && !t->error; i++) {
        if (!x[i]) continue;
        memcpy(dims, all.dims, sizeof dims);
        for (int d = 1; d <= own; d++)
            dims[all.rank - d] = x[i]->value.dims[x[i]->value.rank - d];
        x[i] = tape_broadcast(t, op, x[i], all.rank, dims);
    }
    return !t->error;
}

int tape_broadcast_value(duet_tape *t, const struct tensor *x, int rank, const int *dims,
                         struct tensor *y) {
    int own[MAX_RANK], first, last = rank - 1;
    struct tensor from = *x;
    own_dims(x, rank, own);
    if (x->rank < rank) from = tensor_plain(x->data, DTYPE_F32, rank, own);
    for (; next_run(own, dims, &first, &last); last = first - 1, from = *y) {
        struct op_args args;
        CHECK(spread_value(t, &from, first, last, dims, y, &args));
    }
    *y = from;
    return OK;
}
