/* The losses, under the names of PyTorch's functions. */
#include "api/api.h"

_Static_assert(DUET_MEAN == (int)REDUCE_MEAN && DUET_SUM == (int)REDUCE_SUM &&
                   DUET_NONE == (int)REDUCE_NONE,
               "duet.h repeats the reductions of device/op.h");

static int check_reduction(const char *op, enum duet_reduction r) {
    return (unsigned)r <= DUET_NONE
               ? OK
               : fail(ERR_USAGE, "%s: reduction %d: there are DUET_MEAN, DUET_SUM and DUET_NONE",
                      op, (int)r);
}

static int check_loss(const duet_tape *t, const char *op, const struct var *x,
                      const duet_tensor *labels, enum duet_reduction r) {
    CHECK(api_operand(t, op, "labels", labels, DTYPE_I32));
    CHECK(check_reduction(op, r));
    if (x->value.dtype != DTYPE_F32 || x->value.rank != 2)
        return fail(ERR_USAGE, "%s: scores of rank %d: must be (samples, classes)", op,
                    x->value.rank);
    if (labels->t.rank == 1 && labels->t.dims[0] == x->value.dims[0]) return OK;
    return fail(ERR_USAGE, "%s: labels of rank %d, %d of them, for %d samples: give one each", op,
                labels->t.rank, labels->t.dims[0], x->value.dims[0]);
}

static int check_targets(const duet_tape *t, const struct var *x, const duet_tensor *targets,
                         enum duet_reduction r) {
    CHECK(api_operand(t, "mse loss", "targets", targets, DTYPE_F32));
    CHECK(check_reduction("mse loss", r));
    if (x->value.rank == 2 && targets->t.rank == 2 && targets->t.dims[0] == x->value.dims[0] &&
        targets->t.dims[1] == x->value.dims[1])
        return OK;
    return fail(ERR_USAGE,
                "mse loss: targets of rank %d, %d x %d, for outputs of rank %d, %d x %d: both must "
                "be (samples, numbers)",
                targets->t.rank, targets->t.dims[0], targets->t.rank > 1 ? targets->t.dims[1] : 1,
                x->value.rank, x->value.dims[0], x->value.rank > 1 ? x->value.dims[1] : 1);
}

duet_var *duet_cross_entropy(duet_tape *t, duet_var *scores, const duet_tensor *labels,
                             enum duet_reduction r) {
    if (api_stuck(t, scores) ||
        api_tape_fail(t, check_loss(t, "cross entropy", var_of(scores), labels, r)))
        return NULL;
    return public_var(cross_entropy(t->tape, var_of(scores), &labels->t, (enum reduction)r));
}

duet_var *duet_cross_entropy_smoothed(duet_tape *t, duet_var *scores, const duet_tensor *labels,
                                      double label_smoothing, enum duet_reduction r) {
    if (api_stuck(t, scores) ||
        api_tape_fail(t, check_loss(t, "cross entropy", var_of(scores), labels, r)))
        return NULL;
    if (!(label_smoothing >= 0 && label_smoothing <= 1)) {
        api_tape_fail(t, fail(ERR_USAGE,
                              "cross entropy: label_smoothing must be between 0.0 and 1.0. Got: %g",
                              label_smoothing));
        return NULL;
    }
    return public_var(cross_entropy_smoothed(t->tape, var_of(scores), &labels->t, (enum reduction)r,
                                             label_smoothing));
}

duet_var *duet_nll_loss(duet_tape *t, duet_var *log_probabilities, const duet_tensor *labels,
                        enum duet_reduction r) {
    if (api_stuck(t, log_probabilities) ||
        api_tape_fail(t, check_loss(t, "nll loss", var_of(log_probabilities), labels, r)))
        return NULL;
    return public_var(nll_loss(t->tape, var_of(log_probabilities), &labels->t, (enum reduction)r));
}

duet_var *duet_mse_loss(duet_tape *t, duet_var *x, const duet_tensor *targets,
                        enum duet_reduction r) {
    if (api_stuck(t, x) || api_tape_fail(t, check_targets(t, var_of(x), targets, r))) return NULL;
    return public_var(mse_loss(t->tape, var_of(x), &targets->t, (enum reduction)r));
}
