/* The activations, and the norms over one sample at a time. Each function checks its settings and
 * calls the internal op. */
#include <math.h>

#include "base/error.h"
#include "base/text/text.h"
#include "nn/layers/text_functions.h"
#include "nn/tape/tape_internal.h"

static duet_var *activate(duet_tape *t, duet_var *x, enum activation kind, double a, double b) {
    if (tape_failed(t, x)) return NULL;
    const struct activation_args function = {kind, (float)a, (float)b};
    return tape_activation(t, x, function);
}

/* Functions of one number, which have no settings or one, and refuse nothing. */
#define OF_ONE(NAME, KIND)                              \
    duet_var *NAME(duet_tape *t, duet_var *x) {         \
        return activate(t, x, ACTIVATION_##KIND, 0, 0); \
    }
#define WITH_NUMBER(NAME, KIND)                                \
    duet_var *NAME(duet_tape *t, duet_var *x, double number) { \
        return activate(t, x, ACTIVATION_##KIND, number, 0);   \
    }
OF_ONE(duet_tanh, TANH)
OF_ONE(duet_sigmoid, SIGMOID)
OF_ONE(duet_abs, ABS)
OF_ONE(duet_exp, EXP)
OF_ONE(duet_log, LOG)
OF_ONE(duet_sqrt, SQRT)
OF_ONE(duet_reciprocal, RECIPROCAL)
OF_ONE(duet_silu, SILU)
WITH_NUMBER(duet_leaky_relu, LEAKY_RELU)
WITH_NUMBER(duet_multiply_number, SCALE)
WITH_NUMBER(duet_add_number, SHIFT)

duet_var *tape_function(duet_tape *t, duet_var *x, enum activation kind, double number) {
    const int divides = kind >= ACTIVATION_REMAINDER && kind <= ACTIVATION_FLOOR_DIVIDE;
    if (tape_failed(t, x)) return NULL;
    if (divides && (!isfinite((float)number) || (float)number == 0))
        return tape_refuse(t, "a division by %g: must be a finite float other than 0", number);
    return activate(t, x, kind, number, 0);
}

/* torch.clamp accepts bounds the wrong way round, F.hardtanh does not. */
duet_var *duet_clamp(duet_tape *t, duet_var *x, double min, double max) {
    if (tape_failed(t, x)) return NULL;
    if (!(min <= max))
        return tape_refuse(t, "clamp: min %g above max %g: give the smaller number first", min,
                           max);
    return activate(t, x, ACTIVATION_HARDTANH, min, max);
}

duet_var *duet_pow(duet_tape *t, duet_var *x, double exponent) {
    if (tape_failed(t, x)) return NULL;
    if (!isfinite((float)exponent))
        return tape_refuse(t, "pow: an exponent of %g: must be a finite float", exponent);
    return activate(t, x, ACTIVATION_POW, exponent, 0);
}

duet_var *duet_gelu(duet_tape *t, duet_var *x, enum duet_gelu approximate) {
    if (tape_failed(t, x)) return NULL;
    if ((unsigned)approximate > DUET_GELU_TANH)
        return tape_refuse(t, "gelu: approximate argument must be either none or tanh: it is %d",
                           (int)approximate);
    return activate(t, x, approximate == DUET_GELU_TANH ? ACTIVATION_GELU_TANH : ACTIVATION_GELU, 0,
                    0);
}

/* ---- norms ---- */

/* Weight or bias of a norm, or NULL if there is none. *wrong: the tape has an error. */
static struct param *optional(duet_tape *t, const char *layer, int i, int none, int rank,
                              int *wrong) {
    struct param *p = i == none || *wrong ? NULL : tape_param_at(t, layer, i, rank);
    *wrong |= i != none && !p;
    return p;
}

/* PyTorch's words, with the shape of x. An impossible rank is not used. */
static int check_shape(const struct tensor *x, int rank, const int *shape) {
    int good = rank >= 1 && rank < x->rank && shape;
    for (int i = 0; good && i < rank; i++)
        good = shape[i] == x->dims[x->rank - rank + i];
    if (good) return OK;
    char want[SHAPE_TEXT], is[SHAPE_TEXT];
    text_sizes(want, sizeof want, shape && rank <= MAX_RANK ? rank : 0, shape);
    text_sizes(is, sizeof is, x->rank, x->dims);
    return fail(ERR_USAGE,
                "layer_norm: Given normalized_shape=[%s], expected input with shape [N, ..., %s], "
                "but got input of size [%s]",
                want, want, is);
}

duet_var *duet_layer_norm(duet_tape *t, duet_var *x, int rank, const int *normalized_shape, int w,
                          int b, double eps) {
    int wrong = 0;
    if (tape_failed(t, x) || tape_fail(t, check_shape(&x->value, rank, normalized_shape)))
        return NULL;
    struct param *weight = optional(t, "layer_norm", w, DUET_NO_WEIGHT, rank, &wrong),
                 *bias = optional(t, "layer_norm", b, DUET_NO_BIAS, rank, &wrong);
    return wrong ? NULL : layer_norm(t, x, rank, weight, bias, eps);
}

duet_var *duet_group_norm(duet_tape *t, duet_var *x, int num_groups, int w, int b, double eps) {
    int wrong = 0;
    if (tape_failed(t, x)) return NULL;
    struct param *weight = optional(t, "group_norm", w, DUET_NO_WEIGHT, 1, &wrong),
                 *bias = optional(t, "group_norm", b, DUET_NO_BIAS, 1, &wrong);
    return wrong ? NULL : group_norm(t, x, num_groups, weight, bias, eps);
}
