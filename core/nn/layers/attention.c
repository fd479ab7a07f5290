/* F.scaled_dot_product_attention as one op: y (N,..,L,V) from q (N,..,L,E), k (N,..,S,E) and v
 * (N,..,S,V). For backward it keeps the result and one number per row (device/attention.h), which
 * grow with L, not with L S.
 *
 * Each matrix of the leading dimensions is computed independently, so the batch may be one launch.
 * With dropout each segment has its own launch, because its masks start over.
 *
 * Query, key and value may be views, such as the thirds of one linear layer; then their gradients
 * are written directly into its gradient. The result has the strides of the query: if the query is
 * a transposed (N,L,H,E), so is the result, and transposing it back is also a view. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "duet/functions.h"
#include "nn/tape/tape_internal.h"

enum { Q, K, VALUES, OPERANDS, MASK = 3 };

static const char name[] = "scaled_dot_product_attention";

/* ---- launches ---- */

/* Cuts out of `whole` the samples of segment s. */
static void cut(duet_tape *t, struct op_args *args, const struct op_args *whole, int s,
                int mask_of_samples) {
    *args = *whole;
    for (int i = 0; i < OP_INPUTS; i++)
        if (whole->in[i].data && (i != MASK || mask_of_samples))
            args->in[i] = tensor_segment(&whole->in[i], &t->segments, s);
    for (int i = 0; i < OP_OUTPUTS; i++)
        if (whole->out[i].data) args->out[i] = tensor_segment(&whole->out[i], &t->segments, s);
    args->p.attention.dropout.v = t->segments.seg[s].v;
}

/* Without samples there is nothing to do. */
static int launch_attention(duet_tape *t, enum op op, const struct op_args *whole,
                            int mask_of_samples) {
    struct op_args args;
    if (!tensor_count(&whole->in[Q])) return OK;
    if (!whole->step) return launch(t->stream, op, whole);
    for (int s = 0; s < t->segments.count; s++) {
        cut(t, &args, whole, s, mask_of_samples);
        if (args.in[Q].dims[0]) CHECK(launch(t->stream, op, &args));
    }
    return OK;
}

/* (..,L,E) as (N,H,L,E), where H is the last of the leading dimensions after that of samples. 0: x
 * is a view without this layout, or its rows are not contiguous. */
static int as_matrices(const struct tensor *x, struct tensor *seen) {
    int rank = x->rank, last = rank - 1, samples = rank > 3 ? rank - 3 : 1;
    struct tensor lead = *x;
    tensor_strides(x, lead.stride);
    int own = lead.stride[last], rows = lead.stride[last - 1],
        heads = rank > 3 ? lead.stride[rank - 3] : 0;
    int fits = tensor_merge(samples, lead.dims, lead.stride, NULL) == 1 || !x->strided;
    int count = 1;
    for (int d = 0; d < samples; d++)
        count *= x->dims[d];
    *seen = tensor_plain(
        x->data, x->dtype, 4,
        (int[]){count, rank > 3 ? x->dims[rank - 3] : 1, x->dims[last - 1], x->dims[last]});
    seen->strided = x->strided;
    seen->stride[0] = lead.stride[0], seen->stride[1] = heads, seen->stride[2] = rows;
    seen->stride[3] = 1;
    return fits && (!x->strided || own == 1 || x->dims[last] == 1);
}

static int mask_is_of_samples(const duet_tape *t, const struct node *n) {
    int matrices = n->args.in[Q].dims[0] * n->args.in[Q].dims[1], masks = n->args.in[MASK].dims[0];
    return n->args.in[MASK].data && t->segments.n > 1 &&
           (int64_t)masks * n->args.p.attention.mask_shared == matrices;
}

static int attention_backward(duet_tape *t, struct node *n) {
    struct op_args args = n->args;
    duet_var *const operands[OPERANDS] = {n->x, n->x2, n->x3};
    struct tensor grads[OPERANDS];
    int placed[OPERANDS];
    args.in[4] = n->args.out[0], args.in[5] = n->args.out[1], args.in[6] = n->args.out[0];
    args.in[6].data = n->y->grad.data;
    for (int i = 0; i < OPERANDS; i++) {
        placed[i] = n->args.in[i].strided && tape_grad_view(t, operands[i], &grads[i]);
        if (!placed[i]) grads[i] = grad_target(t, operands[i]);
        as_matrices(&grads[i], &args.out[i]);
    }
    CHECK(tape_error(t));
    CHECK(launch_attention(t, OP_ATTENTION_BACKWARD, &args, mask_is_of_samples(t, n)));
    for (int i = OPERANDS; i-- > 0;)
        if (operands[i]->needs_grad && !placed[i]) CHECK(grad_done(t, operands[i], &grads[i]));
    return OK;
}

/* ---- operands ---- */

/* As PLAIN vars of samples, with the same leading dimensions. */
static int align(duet_tape *t, duet_var *x[OPERANDS]) {
    int rank = tape_for_all_samples(t, name, x, OPERANDS);
    for (int i = 0; i < OPERANDS; i++) {
        if (rank < 0 || tape_blocked(t, x[i])) return 0;
        if (!x[i]->value.strided && !(x[i] = to_plain(t, x[i]))) return 0;
    }
    const struct tensor *q = &x[Q]->value, *k = &x[K]->value, *v = &x[VALUES]->value;
    rank = q->rank;
    if (rank < 3 || k->rank != rank || v->rank != rank || q->dims[rank - 1] != k->dims[rank - 1] ||
        k->dims[rank - 2] != v->dims[rank - 2]) {
        tape_fail(t, fail(ERR_USAGE,
                          "%s: query %s, key %s, value %s: give (N,..,L,E), (N,..,S,E) and "
                          "(N,..,S,Ev)",
                          name, SHAPE(q), SHAPE(k), SHAPE(v)));
        return 0;
    }
    return tape_broadcast_all(t, name, x, OPERANDS, 2);
}

/* The mask as the op sees it: G of them (L or 1, S), each shared by neighbours. Its leading
 * dimensions other than 1 must be consecutive: (N,1), (1,H), (N,H) or none at all. */
static int see_mask(const struct tensor *mask, const struct tensor *q, int keys,
                    struct op_args *args) {
    int rank = q->rank, first = rank, last = -1, masks = 1, shared = 1, fits = mask->rank >= 2,
        skip = rank - mask->rank; /* dimension d of the query is d - skip of the mask */
    for (int d = skip; fits && d < rank - 2; d++) {
        int size = mask->dims[d - skip];
        fits = size == 1 || (d >= 0 && size == q->dims[d]);
        if (size == 1) continue;
        first = d < first ? d : first;
        last = d;
    }
    for (int d = first; fits && d <= last; d++)
        masks *= q->dims[d], fits = mask->dims[d - skip] == q->dims[d];
    for (int d = last + 1; last >= 0 && d < rank - 2; d++)
        shared *= q->dims[d];
    int rows = fits ? mask->dims[mask->rank - 2] : 0;
    if (!fits || mask->dims[mask->rank - 1] != keys || (rows != 1 && rows != q->dims[rank - 2]))
        return fail(ERR_USAGE,
                    "%s: attn_mask %s for a query of %s and %d keys: give (L,S), with leading "
                    "dimensions of the query or 1 in front: (N,1,L,S), (H,L,S)",
                    name, SHAPE(mask), SHAPE(q), keys);
    args->in[MASK] = tensor_seen_as(mask, 3, masks, rows, keys);
    args->p.attention.mask_shared = shared;
    return OK;
}

static duet_var *plain_mask(duet_tape *t, duet_var *mask, int rank) {
    if (tape_stuck(t, mask)) return NULL;
    if (mask->needs_grad)
        return tape_refuse(t,
                           "%s: attn_mask needs a gradient, which it does not get here: add it to "
                           "the scores with duet_matmul, duet_add and duet_softmax",
                           name);
    if (!mask->common && mask->value.rank != rank && tape_mixes_samples(t, name)) return NULL;
    return to_plain(t, mask);
}

/* ---- the function ---- */

static int check_options(duet_tape *t, const struct duet_attention_options *o) {
    if (!(o->dropout_p >= 0 && o->dropout_p <= 1))
        return fail(ERR_USAGE, "dropout probability has to be between 0 and 1, but got %g",
                    o->dropout_p);
    if (o->is_causal && o->attn_mask)
        return fail(ERR_USAGE, "%s: explicit attn_mask should not be set when is_causal=True",
                    name);
    if (isfinite(o->scale)) return tape_error(t);
    return fail(ERR_USAGE, "%s: scale %g: give a number, or 0 for 1 / sqrt(E)", name, o->scale);
}

/* The result in the memory of *base, whose rows have the order of q's. 1: that is not the order of
 * the dimensions. */
static int lay_result(duet_tape *t, const struct tensor *q, int values, struct tensor *base,
                      struct tensor *y) {
    int dims[MAX_RANK], order[MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7}, rank = q->rank;
    int transposed = rank > 3 && q->strided && q->stride[rank - 3] < q->stride[rank - 2];
    memcpy(dims, q->dims, sizeof dims);
    dims[rank - 1] = values;
    if (transposed) {
        order[rank - 3] = rank - 2, order[rank - 2] = rank - 3;
        dims[rank - 3] = q->dims[rank - 2], dims[rank - 2] = q->dims[rank - 3];
    }
    *base = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, rank, dims);
    *y = transposed ? tensor_permuted(base, order) : *base;
    return transposed;
}

static duet_var *attend(duet_tape *t, duet_var *const x[OPERANDS], duet_var *mask,
                        const struct duet_attention_options *o) {
    const struct tensor *q = &x[Q]->value, *v = &x[VALUES]->value;
    int rank = q->rank, keys = v->dims[rank - 2];
    struct node node = {.backward = attention_backward,
                        .op = OP_ATTENTION_FORWARD,
                        .x = x[Q],
                        .x2 = x[K],
                        .x3 = x[VALUES]};
    struct attention_args *how = &node.args.p.attention;
    for (int i = 0; i < OPERANDS; i++)
        if (!as_matrices(&x[i]->value, &node.args.in[i])) {
            if (tape_stuck(t, x[i])) return NULL;
            as_matrices(&x[i]->value, &node.args.in[i]);
        }
    how->scale = o->scale != 0 ? o->scale : 1 / sqrt(q->dims[rank - 1]);
    how->causal = o->is_causal != 0;
    if (mask) mask->saved = t->step.training;
    if (mask && tape_fail(t, see_mask(&mask->value, q, keys, &node.args))) return NULL;
    if (o->dropout_p > 0) {
        if (tape_fail(t, tape_check_samples(t, q))) return NULL;
        how->dropout =
            (struct dropout_args){.p = (float)o->dropout_p, .layer = t->dropout_layers++};
        if (t->step.training) node.args.step = t->step.step;
        if (!node.args.step) how->dropout.p = 0;
    }
    struct tensor base, y;
    int transposed = lay_result(t, q, v->dims[rank - 1], &base, &y);
    as_matrices(&y, &node.args.out[0]);
    node.args.out[1] = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, 3, node.args.in[Q].dims);
    if (t->error ||
        tape_fail(t, launch_attention(t, node.op, &node.args, mask_is_of_samples(t, &node))))
        return NULL;
    node.y = tape_var(t, base, x[Q]->needs_grad || x[K]->needs_grad || x[VALUES]->needs_grad);
    if (tape_node(t, &node) || !node.y) return NULL;
    return transposed ? duet_transpose(t, node.y, rank - 3, rank - 2) : node.y;
}

duet_var *duet_scaled_dot_product_attention(duet_tape *t, duet_var *query, duet_var *key,
                                            duet_var *value,
                                            const struct duet_attention_options *options) {
    static const struct duet_attention_options none;
    const struct duet_attention_options *o = options ? options : &none;
    duet_var *x[OPERANDS] = {query, key, value}, *mask = o->attn_mask;
    if (tape_failed(t, query) || tape_failed(t, key) || tape_failed(t, value) ||
        tape_fail(t, check_options(t, o)) || !align(t, x))
        return NULL;
    if (mask && !(mask = plain_mask(t, mask, x[Q]->value.rank))) return NULL;
    return attend(t, x, mask, o);
}
