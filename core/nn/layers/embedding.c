/* nn.Embedding returns the rows of a table that indices name. A row with several dimensions, such
 * as a matrix, is treated as a list of numbers. The gradient of a row is the sum over all its uses,
 * in the order of the batch within a segment, and folded over the segments.
 *
 * Indices are int32, or a var of integers, such as the samples of a data set. Indices that are
 * common to all samples, such as the positions of words, are looked up once; each sample gets a
 * copy of their rows (nn/layers/common.c), and the gradients of the copies are summed. */
#include <string.h>

#include "base/error.h"
#include "nn/tape/tape_internal.h"

static struct tensor as_table(const struct tensor *w) {
    return tensor_seen_as(w, 2, w->dims[0], (int)tensor_sample_count(w), 0);
}

/* For one segment; there is no bias. args.in[1]: the index; a common one belongs to no segment, and
 * the rows' gradients are summed in in[0]. */
static int segment_grads(duet_tape *t, const struct node *n, int s, const struct tensor *dw,
                         const struct tensor *db) {
    const struct tensor *sum = &n->args.in[0];
    struct tensor index = n->args.in[1], dy = tensor_segment(&n->y->grad, &t->segments, s);
    (void)db;
    if (sum->data) {
        CHECK(tape_sum_first(t, &dy, sum));
        dy = *sum;
    } else
        index = tensor_segment(&index, &t->segments, s);
    int rows = (int)tensor_count(&index);
    const struct tensor table = as_table(dw);
    struct op_args args = {.in = {tensor_seen_as(&dy, 2, rows, table.dims[1], 0),
                                  tensor_seen_as(&index, 1, rows, 0, 0)},
                           .out[0] = table,
                           .p = n->args.p};
    return launch(t->stream, OP_EMBEDDING_BACKWARD, &args);
}

static int embedding_backward(duet_tape *t, struct node *n) {
    return tape_weight_grads(t, OP_EMBEDDING_BACKWARD, n);
}

/* The first dimension of an index within a sample: after the dimension of samples, or after the 1
 * that a common index of rank 2 or more has in its place. */
static int first_own(const struct tensor *index, int common) {
    return !common || (index->rank > 1 && index->dims[0] == 1);
}

/* The rows of w, (.., D); common rows become a copy for each sample. */
static duet_var *look_up(duet_tape *t, const struct tensor *index, int common, struct param *w,
                         int padding_idx) {
    const struct tensor table = as_table(&w->value);
    const int width = table.dims[1], rows = (int)tensor_count(index);
    int dims[MAX_RANK] = {common ? t->segments.n : index->dims[0]}, rank = 1;
    for (int i = first_own(index, common); i < index->rank; i++)
        dims[rank++] = index->dims[i];
    dims[rank++] = width;
    struct tensor y = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, rank, dims), found = y;
    if (common) found = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, 2, (int[]){rows, width});
    struct op_args gather = {.in = {table, tensor_seen_as(index, 1, rows, 0, 0)},
                             .out[0] = tensor_seen_as(&found, 2, rows, width, 0)},
                   copy = {.in[0] = tensor_seen_as(&found, 2, 1, rows * width, 0),
                           .out[0] = tensor_seen_as(&y, 3, 1, dims[0], rows * width),
                           .p.sum.divide = 1};
    if (t->error || tape_fail(t, params_use(t->owner, w, NULL, 0)) ||
        tape_fail(t, launch(t->stream, OP_GATHER_ROWS, &gather)) ||
        (common && dims[0] && tape_fail(t, launch(t->stream, OP_SPREAD, &copy))))
        return NULL;
    struct node node = {.backward = embedding_backward,
                        .op = OP_GATHER_ROWS,
                        .w = w,
                        .segment_grads = segment_grads,
                        .spares = SPARES_Y};
    if (common) node.args.in[0] = gather.out[0]; /* nothing else reads it */
    node.args.in[1] = *index;
    node.args.p.embedding.left_out = padding_idx + 1;
    return tape_append(t, &node, y, param_trains(w));
}

static int check_embedding(const duet_tape *t, const struct tensor *index, int common,
                           const struct param *w) {
    const struct tensor *table = &w->value;
    int rank = index->rank + 1 - first_own(index, common);
    if (table->rank < 2)
        return fail(ERR_USAGE, "embedding: %s is %s: must be a table of 2 dimensions or more",
                    w->spec->name, SHAPE(table));
    if (rank < 1 || rank >= MAX_RANK || (!common && !tape_rows_fit(t, index->dims[0])))
        return fail(ERR_USAGE,
                    "embedding %s: indices of %s for %d samples, a table of %s: check the model",
                    w->spec->name, SHAPE(index), t->segments.n, SHAPE(table));
    size_t rows = tensor_count(index) * (common ? (size_t)t->segments.n : 1);
    if (rows <= (size_t)INT32_MAX / tensor_sample_count(table)) return OK;
    return fail(ERR_USAGE, "embedding: %zu rows: a tensor has at most 2^31 - 1 elements", rows);
}

/* The table; NULL: it does not fit the index, or padding_idx is not one of its rows. */
static struct param *table_at(duet_tape *t, int at, const struct tensor *index, int common,
                              int padding_idx) {
    struct param *w = tape_param_at(t, "embedding", at, 0);
    if (!w || tape_fail(t, check_embedding(t, index, common, w))) return NULL;
    if (padding_idx >= -1 && padding_idx < w->value.dims[0]) return w;
    return tape_refuse(t, "embedding %s: padding_idx %d: give a row, 0 to %d, or -1", w->spec->name,
                       padding_idx, w->value.dims[0] - 1);
}

duet_var *duet_embedding(duet_tape *t, const duet_tensor *index, int table, int padding_idx) {
    if (!t || t->error || tape_fail(t, tape_operand(t, "embedding", "index", index, DTYPE_I32)))
        return NULL;
    struct param *w = table_at(t, table, &index->t, 0, padding_idx);
    return w ? look_up(t, &index->t, 0, w, padding_idx) : NULL;
}

duet_var *duet_embedding_of(duet_tape *t, duet_var *x, int table, int padding_idx) {
    if (tape_stuck(t, x) || !(x = to_plain(t, x))) return NULL;
    struct param *w = table_at(t, table, &x->value, x->common, padding_idx);
    if (!w) return NULL;
    struct op_args args = {.in[0] = x->value};
    args.out[0] = tape_tensor(t, DTYPE_I32, LAYOUT_PLAIN, x->value.rank, x->value.dims);
    if (t->error || tape_fail(t, launch(t->stream, OP_TO_INDEX, &args))) return NULL;
    return look_up(t, &args.out[0], x->common, w, padding_idx);
}
