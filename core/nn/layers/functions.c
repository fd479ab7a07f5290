/* The activations. Each function checks its settings and calls the internal op. */
#include <math.h>

#include "base/error.h"
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
