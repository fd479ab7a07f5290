/* Activation functions and their derivatives, written once for all kinds of device: the plain C
 * of the host's kernels is the CUDA C++ of the GPUs'. Semantics are PyTorch's.
 *
 *     LEAKY_RELU  x > 0 ? x : a x                        nn.LeakyReLU(negative_slope=a)
 *     ELU         x > 0 ? x : a (exp(x) - 1)             nn.ELU(alpha=a)
 *     HARDTANH    x below a: a, above b: b, else x       nn.Hardtanh(a, b); nn.ReLU6 is (0, 6)
 *     GELU        x Phi(x), Phi(x) = erfc(-x / sqrt 2) / 2, the normal distribution's
 *     GELU_TANH   x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
 *
 * What needs exp, erfc or tanh is computed in double and rounded to float once, so that
 * libraries which differ in the last bits of a double give the same float, but for one case in
 * millions. A NaN stays a NaN. */
#ifndef DEVICE_ACTIVATION_H
#define DEVICE_ACTIVATION_H

#include <math.h>

#ifdef __CUDACC__
#define ACTIVATION_FUNCTION static __host__ __device__ __forceinline__
#else
#define ACTIVATION_FUNCTION static inline
#endif

enum activation {
    ACTIVATION_LEAKY_RELU,
    ACTIVATION_ELU,
    ACTIVATION_HARDTANH,
    ACTIVATION_GELU,
    ACTIVATION_GELU_TANH,
    ACTIVATION_COUNT
};

struct activation_args {
    enum activation kind;
    float a, b; /* b: of HARDTANH, not below a */
};

/* sqrt(1 / 2), sqrt(2 / pi) and 1 / sqrt(2 pi) */
#define ACTIVATION_ROOT_HALF 0.70710678118654752440
#define ACTIVATION_TANH_SCALE 0.79788456080286535588
#define ACTIVATION_DENSITY 0.39894228040143267794
#define ACTIVATION_CUBE 0.044715

ACTIVATION_FUNCTION float activation_value(struct activation_args p, float x) {
    const double v = x;
    switch (p.kind) {
    case ACTIVATION_LEAKY_RELU: return x > 0 ? x : p.a * x;
    case ACTIVATION_ELU: return x > 0 ? x : (float)(p.a * expm1(v));
    case ACTIVATION_HARDTANH: return x < p.a ? p.a : x > p.b ? p.b : x;
    case ACTIVATION_GELU: return (float)(0.5 * v * erfc(-v * ACTIVATION_ROOT_HALF));
    default:
        return (float)(0.5 * v *
                       (1 + tanh(ACTIVATION_TANH_SCALE * v * (1 + ACTIVATION_CUBE * v * v))));
    }
}

/* dy times the derivative at x. At a corner it is PyTorch's: 0 of HARDTANH, the left one of
 * LEAKY_RELU and ELU. */
ACTIVATION_FUNCTION float activation_gradient(struct activation_args p, float x, float dy) {
    const double v = x;
    switch (p.kind) {
    case ACTIVATION_LEAKY_RELU: return x > 0 ? dy : p.a * dy;
    case ACTIVATION_ELU: return x > 0 ? dy : (float)(dy * (p.a * exp(v)));
    case ACTIVATION_HARDTANH: return x <= p.a || x >= p.b ? 0 : dy;
    case ACTIVATION_GELU:
        return (float)(dy * (0.5 * erfc(-v * ACTIVATION_ROOT_HALF) +
                             v * ACTIVATION_DENSITY * exp(-0.5 * v * v)));
    default: {
        double t = tanh(ACTIVATION_TANH_SCALE * v * (1 + ACTIVATION_CUBE * v * v)),
               inner = ACTIVATION_TANH_SCALE * (1 + 3 * ACTIVATION_CUBE * v * v);
        return (float)(dy * 0.5 * ((1 + t) + v * (1 - t) * (1 + t) * inner));
    }
    }
}

#endif
