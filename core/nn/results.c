/* The results of a pass that a program can read: losses, values of vars and gradients of leaves.
 * The file also adds losses. Such a sum is not a tensor: backward goes through each term with the
 * term's own reduction, as for loss_a + loss_b in PyTorch. */
#include "base/error.h"
#include "nn/tape/tape_internal.h"

/* ---- sums of losses ---- */

/* *grad: of rank 0 for a loss, which has its own; ones for a var of one number. */
static int check_term(duet_tape *t, duet_var **term, struct tensor *grad) {
    *grad = (struct tensor){0};
    if ((*term)->hits.data || (*term)->terms[0]) return OK;
    *term = (*term)->common ? NULL : to_plain(t, *term);
    CHECK(tape_error(t));
    if (!*term || tensor_count(&(*term)->value) != 1)
        return fail(ERR_USAGE, "add: a loss and a var that is neither a loss nor one number: take "
                               "duet_mean or duet_sum of it first");
    return tape_ones(t, &(*term)->value, grad);
}

duet_var *tape_add_losses(duet_tape *t, duet_var *a, duet_var *b) {
    duet_var *terms[2] = {a, b};
    struct tensor grads[2];
    if (a == b) return tape_refuse(t, "add: a loss and itself: scale its gradient");
    for (int i = 0; i < 2; i++)
        if (tape_fail(t, check_term(t, &terms[i], &grads[i]))) return NULL;
    duet_var *sum = tape_join(t, terms, grads, 2);
    if (sum) sum->terms[0] = terms[0], sum->terms[1] = terms[1];
    return sum;
}

/* The sums of the terms over all samples; a var of one number counts for each sample. `right` is
 * that of the first loss. */
static int read_sum(duet_tape *t, duet_var *loss, double *sum, int64_t *right) {
    double all = 0, part;
    int64_t first = -1, hits;
    for (int i = 0; i < 2; i++) {
        duet_var *term = loss->terms[i];
        if (term->terms[0] || term->hits.data) {
            CHECK(duet_loss_read(t, term, &part, &hits));
            first = first < 0 ? hits : first;
        } else {
            float number;
            CHECK(
                copy_to_host(device_compute(t->device), &number, term->value.data, sizeof number));
            CHECK(stream_sync(device_compute(t->device)));
            part = (double)number * t->segments.n;
        }
        all += part;
    }
    if (sum) *sum = all;
    if (right) *right = first;
    return OK;
}

/* ---- results ---- */

int duet_loss_read(duet_tape *t, duet_var *loss, double *sum, int64_t *right) {
    double sum_here = 0;
    int64_t right_here = 0;
    CHECK(duet_tape_error(t));
    if (!loss) return fail(ERR_USAGE, "loss is NULL");
    if (t->inside_model) return pass_refuse_inside(t, "duet_loss_read");
    if (loss->terms[0]) return read_sum(t, loss, sum, right);
    enum reduction r;
    CHECK(tape_loss_reduction(loss, &r));
    CHECK(tape_log_loss(t, loss, &t->losses, &t->hits));
    struct stream *stream = device_compute(t->device);
    CHECK(copy_to_host(stream, &sum_here, t->losses.data, sizeof sum_here));
    CHECK(copy_to_host(stream, &right_here, t->hits.data, sizeof right_here));
    CHECK(stream_sync(stream));
    if (sum) *sum = sum_here;
    if (right) *right = right_here;
    return tape_scale_to_mean(t, loss, sum);
}

static int copy_out(duet_tensor **out, duet_tape *t, const struct tensor *x) {
    CHECK(tensor_new(out, t->device, x->dtype, x->rank, x->dims, MEM_WORKSPACE));
    int code = copy_peer(device_compute(t->device), t->device, (*out)->t.data, t->device, x->data,
                         tensor_bytes(x));
    if (code) {
        duet_tensor_free(*out);
        *out = NULL;
    }
    return code;
}

int duet_var_value(duet_tensor **out, duet_tape *t, duet_var *x) {
    CHECK_OUT(out);
    CHECK(duet_tape_error(t));
    if (!x) return fail(ERR_USAGE, "value: no var was given");
    if (x->terms[0]) return fail(ERR_USAGE, "value: a sum of losses: read it with duet_loss_read");
    duet_var *plain = to_plain(t, x);
    return plain ? copy_out(out, t, &plain->value) : tape_error(t);
}

int duet_var_grad(duet_tensor **out, duet_tape *t, duet_var *leaf) {
    CHECK_OUT(out);
    CHECK(duet_tape_error(t));
    int i = 0;
    while (i < t->leaf_count && t->leaves[i] != leaf)
        i++;
    if (i == t->leaf_count)
        return fail(ERR_USAGE, "gradient: this var keeps none: make it with duet_leaf");
    if (!leaf->grad.data)
        return fail(ERR_USAGE, "gradient: this leaf has none: %s",
                    t->went_back ? "duet_backward did not reach it: the loss does not depend on it"
                                 : "call duet_backward first");
    return copy_out(out, t, &leaf->grad);
}
