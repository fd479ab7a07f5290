/* Activation functions, other functions of one number, and their derivatives, written once for all
 * kinds of device: the host's kernels compile this code as C, the GPUs' kernels as CUDA C++.
 * Semantics are PyTorch's.
 *
 *     RELU        x < 0 ? 0 : x                          TANH, SIGMOID: the gradients of these
 *                                                        three read y and not x
 *     LEAKY_RELU  x > 0 ? x : a x                        nn.LeakyReLU(negative_slope=a)
 *     ELU         x > 0 ? x : a (exp(x) - 1)             nn.ELU(alpha=a)
 *     HARDTANH    x < a ? a : x > b ? b : x              nn.Hardtanh(a, b), torch.clamp;
 *                                                        nn.ReLU6 is (0, 6)
 *     GELU        x Phi(x), Phi(x) = erfc(-x / sqrt 2) / 2, the normal distribution's
 *     GELU_TANH   x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
 *
 *     SCALE       a x                    SHIFT  x + a
 *     ABS         |x|
 *     SILU        x / (1 + exp(-x))
 *     HARDSWISH   x min(max(x + 3, 0), 6) / 6            HARDSIGMOID  min(max(x + 3, 0), 6) / 6
 *     SOFTPLUS    x > 20 ? x : log(1 + exp(x))           nn.Softplus()
 *     ABOVE       x > a ? 1 : 0          EQUAL  x == a ? 1 : 0; both without a gradient
 *     ERF         the error function
 *     SIN, COS    of x radians
 *     ROUND       the nearest integer, ties to even; FLOOR, CEIL, TRUNC round down, up and
 *                 towards 0; all have gradient 0
 *     REMAINDER   x - a FLOOR(x / a), with the sign of a; FMOD  x - a TRUNC(x / a);
 *                 FLOOR_DIVIDE  FLOOR(x / a), with gradient 0. All are exact, except for the a
 *                 that is added to a remainder with the other sign
 *     EXP, LOG, SQRT, RECIPROCAL; POW  x to the power of a
 *
 * Functions that need exp, log, erfc, tanh or sin (device/elementary.h) are computed in double and
 * rounded to float once. A NaN stays a NaN, except in comparisons. */
#ifndef DEVICE_ACTIVATION_H
#define DEVICE_ACTIVATION_H

#include "device/elementary.h"

/* All functions. activation_reads_result holds up to SIGMOID, activation_is_plain from EXP on. */
#define EACH_ACTIVATION(KIND) \
    KIND(RELU)                \
    KIND(TANH)                \
    KIND(SIGMOID)             \
    KIND(LEAKY_RELU)          \
    KIND(ELU)                 \
    KIND(HARDTANH)            \
    KIND(GELU)                \
    KIND(GELU_TANH)           \
    KIND(SCALE)               \
    KIND(SHIFT)               \
    KIND(ABS)                 \
    KIND(SOFTPLUS)            \
    KIND(SILU)                \
    KIND(HARDSWISH)           \
    KIND(HARDSIGMOID)         \
    KIND(ABOVE)               \
    KIND(EQUAL)               \
    KIND(ERF)                 \
    KIND(SIN)                 \
    KIND(COS)                 \
    KIND(ROUND)               \
    KIND(FLOOR)               \
    KIND(CEIL)                \
    KIND(TRUNC)               \
    KIND(REMAINDER)           \
    KIND(FMOD)                \
    KIND(FLOOR_DIVIDE)        \
    KIND(EXP)                 \
    KIND(LOG)                 \
    KIND(SQRT)                \
    KIND(RECIPROCAL)          \
    KIND(POW)

#define ACTIVATION_ENUM(KIND) ACTIVATION_##KIND,
enum activation { EACH_ACTIVATION(ACTIVATION_ENUM) ACTIVATION_COUNT };

struct activation_args {
    enum activation kind;
    float a, b; /* b: only for HARDTANH, b >= a */
};

/* 1: for some finite x the value or the derivative is not finite. Such a function must not be
 * applied to the unused lanes of N16, where 0 times the derivative would be NaN. */
static inline int activation_is_plain(enum activation kind) {
    return kind >= ACTIVATION_EXP;
}

/* 1: the argument x of activation_gradient is the function's result. */
static inline int activation_reads_result(enum activation kind) {
    return kind <= ACTIVATION_SIGMOID;
}

/* sqrt(1 / 2), sqrt(2 / pi) and 1 / sqrt(2 pi) */
#define ACTIVATION_ROOT_HALF 0.70710678118654752440
#define ACTIVATION_TANH_SCALE 0.79788456080286535588
#define ACTIVATION_DENSITY 0.39894228040143267794
#define ACTIVATION_CUBE 0.044715
#define ACTIVATION_TWO_BY_ROOT_PI 1.12837916709551257390
#define ACTIVATION_LINEAR 20 /* above this SOFTPLUS is x */

EVERY_DEVICE double activation_cut(double x, double low, double high) {
    return x < low ? low : x > high ? high : x;
}

/* x to the power of e, an integer from -64 to 64, by squaring. The square of a float is exact in
 * double. */
EVERY_DEVICE double activation_whole_power(double x, double e) {
    double y = 1;
    for (int left = (int)fabs(e); left > 0; left /= 2, x *= x)
        if (left % 2) y *= x;
    return e < 0 ? 1 / y : y;
}

/* x, a float, to the power of e, a finite number. Non-integer powers use exp and log. */
EVERY_DEVICE double activation_power(double x, double e) {
    if (fabs(e) <= 64 && e == floor(e)) return activation_whole_power(x, e);
    if (x == 1) return 1;
    double size = elementary_exp(e * elementary_log(fabs(x)));
    if (x > 0 || !(x < 0 || 1 / x < 0)) return size;           /* x is above 0, +0 or NaN */
    if (e != floor(e)) return 1 / x < 0 && x < 0 ? NAN : size; /* -infinity gives `size` */
    return e / 2 != floor(e / 2) ? -size : size;
}

/* The remainder of x / a, rounded towards 0. It subtracts multiples of a, the largest first. Each
 * factor is below 2^25, so the factor and the product are exact. The remainder is exact, too, since
 * it has no more bits than a float. */
EVERY_DEVICE double activation_left(double x, double a) {
    double left = fabs(x);
    for (double scale = 0x1p288; scale >= 1; scale *= 0x1p-24) {
        const double part = fabs(a) * scale;
        left -= floor(left / part) * part;
    }
    return copysign(left, x);
}

/* 1: x / a rounded down is one less than x / a rounded towards 0. */
EVERY_DEVICE int activation_is_below(double left, double a) {
    return left != 0 && (left < 0) != (a < 0);
}

EVERY_DEVICE double activation_floor_divide(double x, double a) {
    const double left = activation_left(x, a),
                 y = elementary_round((x - left) / a) - activation_is_below(left, a);
    return y == 0 ? copysign(y, x / a) : y;
}

/* Converts a number to an index; -1 if it is not an integer or does not fit int32. */
EVERY_DEVICE int index_of_float(float x) {
    int i = x >= -2147483648.f && x < 2147483648.f ? (int)x : -1;
    return (float)i == x ? i : -1;
}

EVERY_DEVICE float activation_value(struct activation_args p, float x) {
    const double v = x;
    switch (p.kind) {
    case ACTIVATION_RELU: return x < 0 ? 0 : x;
    case ACTIVATION_TANH: return (float)elementary_tanh(v);
    case ACTIVATION_SIGMOID: return (float)(1 / (1 + elementary_exp(-v)));
    case ACTIVATION_LEAKY_RELU: return x > 0 ? x : p.a * x;
    case ACTIVATION_ELU: return x > 0 ? x : (float)(p.a * elementary_expm1(v));
    case ACTIVATION_HARDTANH: return x < p.a ? p.a : x > p.b ? p.b : x;
    case ACTIVATION_GELU: return (float)(0.5 * v * elementary_erfc(-v * ACTIVATION_ROOT_HALF));
    case ACTIVATION_SCALE: return p.a * x;
    case ACTIVATION_SHIFT: return x + p.a;
    case ACTIVATION_ABS: return fabsf(x);
    case ACTIVATION_SOFTPLUS: {
        double soft =
            elementary_log1p(elementary_exp(v > ACTIVATION_LINEAR ? ACTIVATION_LINEAR : v));
        return x > ACTIVATION_LINEAR ? x : (float)soft;
    }
    case ACTIVATION_EXP: return (float)elementary_exp(v);
    case ACTIVATION_LOG: return (float)elementary_log(v);
    case ACTIVATION_SQRT: return (float)sqrt(v);
    case ACTIVATION_RECIPROCAL: return (float)(1 / v);
    case ACTIVATION_SILU: return (float)(v / (1 + elementary_exp(-v)));
    case ACTIVATION_HARDSWISH: return (float)(v * activation_cut(v + 3, 0, 6) / 6);
    case ACTIVATION_HARDSIGMOID: return (float)(activation_cut(v + 3, 0, 6) / 6);
    case ACTIVATION_ABOVE: return x > p.a ? 1 : 0;
    case ACTIVATION_EQUAL: return x == p.a ? 1 : 0;
    case ACTIVATION_ERF: return (float)elementary_erf(v);
    case ACTIVATION_SIN: return (float)elementary_sin(v);
    case ACTIVATION_COS: return (float)elementary_cos(v);
    case ACTIVATION_ROUND: return (float)elementary_round(v);
    case ACTIVATION_FLOOR: return (float)elementary_floor(v);
    case ACTIVATION_CEIL: return (float)-elementary_floor(-v);
    case ACTIVATION_TRUNC: return (float)copysign(elementary_floor(fabs(v)), v);
    case ACTIVATION_POW: return (float)activation_power(v, p.a);
    case ACTIVATION_FMOD: return (float)activation_left(v, p.a);
    case ACTIVATION_REMAINDER: {
        double left = activation_left(v, p.a);
        return (float)(activation_is_below(left, p.a) ? left + p.a : left);
    }
    case ACTIVATION_FLOOR_DIVIDE: return (float)activation_floor_divide(v, p.a);
    default:
        return (float)(0.5 * v *
                       (1 + elementary_tanh(ACTIVATION_TANH_SCALE * v *
                                            (1 + ACTIVATION_CUBE * v * v))));
    }
}

/* dy times the derivative at x; for RELU, TANH and SIGMOID x is their result. At a corner the
 * derivative is PyTorch's: 0 for HARDTANH and ABS, the left one for LEAKY_RELU and ELU, and the
 * outer piece's for HARDSWISH. */
EVERY_DEVICE float activation_gradient(struct activation_args p, float x, float dy) {
    const double v = x;
    switch (p.kind) {
    case ACTIVATION_RELU: return x > 0 ? dy : 0;
    case ACTIVATION_TANH: return dy * (1 - x * x);
    case ACTIVATION_SIGMOID: return dy * (1 - x) * x;
    case ACTIVATION_LEAKY_RELU: return x > 0 ? dy : p.a * dy;
    case ACTIVATION_ELU: return x > 0 ? dy : (float)(dy * (p.a * elementary_exp(v)));
    case ACTIVATION_HARDTANH: return x <= p.a || x >= p.b ? 0 : dy;
    case ACTIVATION_GELU:
        return (float)(dy * (0.5 * elementary_erfc(-v * ACTIVATION_ROOT_HALF) +
                             v * ACTIVATION_DENSITY * elementary_exp(-0.5 * v * v)));
    case ACTIVATION_SCALE: return p.a * dy;
    case ACTIVATION_REMAINDER:
    case ACTIVATION_FMOD:
    case ACTIVATION_SHIFT: return dy;
    case ACTIVATION_ABS: return x > 0 ? dy : x < 0 ? -dy : x * 0;
    case ACTIVATION_SOFTPLUS:
        return x > ACTIVATION_LINEAR ? dy : (float)(dy / (1 + elementary_exp(-v)));
    case ACTIVATION_EXP: return (float)(dy * elementary_exp(v));
    case ACTIVATION_LOG: return (float)(dy / v);
    case ACTIVATION_SQRT: return (float)(dy * (0.5 / sqrt(v)));
    case ACTIVATION_RECIPROCAL: return (float)(-dy * (1 / (v * v)));
    case ACTIVATION_SILU: {
        double s = 1 / (1 + elementary_exp(-v));
        return (float)(dy * (s * (1 + v * (1 - s))));
    }
    case ACTIVATION_HARDSWISH: return x <= -3 ? 0 : x >= 3 ? dy : (float)(dy * (v / 3 + 0.5));
    case ACTIVATION_HARDSIGMOID: return x > -3 && x < 3 ? (float)(dy / 6.0) : 0;
    case ACTIVATION_ABOVE:
    case ACTIVATION_EQUAL:
    case ACTIVATION_ROUND:
    case ACTIVATION_FLOOR:
    case ACTIVATION_CEIL:
    case ACTIVATION_TRUNC:
    case ACTIVATION_FLOOR_DIVIDE: return 0;
    case ACTIVATION_SIN: return (float)(dy * elementary_cos(v));
    case ACTIVATION_COS: return (float)(-dy * elementary_sin(v));
    case ACTIVATION_ERF: return (float)(dy * (ACTIVATION_TWO_BY_ROOT_PI * elementary_exp(-v * v)));
    case ACTIVATION_POW:
        return p.a == 0 ? 0 : (float)(dy * (p.a * activation_power(v, (double)p.a - 1)));
    default: {
        double t = elementary_tanh(ACTIVATION_TANH_SCALE * v * (1 + ACTIVATION_CUBE * v * v)),
               inner = ACTIVATION_TANH_SCALE * (1 + 3 * ACTIVATION_CUBE * v * v);
        return (float)(dy * 0.5 * ((1 + t) + v * (1 - t) * (1 + t) * inner));
    }
    }
}

#endif
