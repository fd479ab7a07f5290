/* Kernels that work on one element at a time, in either layout: activations, sums, products, fill,
 * clipping, the optimizers and the hash. An element's position does not matter.
 *
 * reference_elementwise.c includes this file and, for each instruction set, fast.inc.h does. The
 * compiler vectorises the loops. Each lane of a vector does what the formula says with the same
 * roundings, so all of them give the same bits. They may work in place. */
#ifdef __clang__
#define IN_VECTORS _Pragma("clang loop vectorize(assume_safety)")
#else
#define IN_VECTORS _Pragma("GCC ivdep")
#endif
#define EACH(y, expression) IN_VECTORS for (size_t i = 0; i < count; i++) y[i] = expression

/* out[0] = EXPRESSION of a = in[0] and b = in[1]. */
#define OF_TWO(name, expression)                                                  \
    static void each_##name(const struct op_args *args) {                         \
        const float *a = tensor_f32(&args->in[0]), *b = tensor_f32(&args->in[1]); \
        float *y = tensor_f32(&args->out[0]);                                     \
        const size_t count = tensor_stored_count(&args->out[0]);                  \
        EACH(y, expression);                                                      \
    }

// clang-format off
OF_TWO(add_forward, a[i] + b[i])
OF_TWO(subtract_forward, a[i] - b[i])
OF_TWO(multiply_forward, a[i] * b[i])
// clang-format on

static void each_where(const struct op_args *args) {
    const float *c = tensor_f32(&args->in[0]), *a = tensor_f32(&args->in[1]),
                *b = tensor_f32(&args->in[2]), value = args->p.fill.value;
    float *y = tensor_f32(&args->out[0]);
    const size_t count = tensor_count(&args->out[0]);
    EACH(y, c[i] != 0 ? (a ? a[i] : value) : (b ? b[i] : value));
}

/* ---- activations: a loop for each kind, and for squares and cubes ---- */

#define POWER_FORWARD(e)                                                                 \
    if (p.kind == ACTIVATION_POW && p.a == (e)) {                                        \
        EACH(y, activation_value((struct activation_args){ACTIVATION_POW, e, 0}, x[i])); \
        return;                                                                          \
    }
#define FORWARD(KIND)                                                                           \
    case ACTIVATION_##KIND:                                                                     \
        EACH(y, activation_value((struct activation_args){ACTIVATION_##KIND, p.a, p.b}, x[i])); \
        break;

static void each_activation_forward(const struct op_args *a) {
    const float *x = tensor_f32(&a->in[0]);
    float *y = tensor_f32(&a->out[0]);
    const struct activation_args p = a->p.activation;
    const size_t count = tensor_stored_count(&a->out[0]);
    POWER_FORWARD(2)
    POWER_FORWARD(3)
    switch (p.kind) {
        EACH_ACTIVATION(FORWARD)
    default: break;
    }
}

#define POWER_BACKWARD(e)                                                                       \
    if (p.kind == ACTIVATION_POW && p.a == (e)) {                                               \
        EACH(dx,                                                                                \
             activation_gradient((struct activation_args){ACTIVATION_POW, e, 0}, x[i], dy[i])); \
        return;                                                                                 \
    }
#define BACKWARD(KIND)                                                                            \
    case ACTIVATION_##KIND:                                                                       \
        EACH(dx, activation_gradient((struct activation_args){ACTIVATION_##KIND, p.a, p.b}, x[i], \
                                     dy[i]));                                                     \
        break;

static void each_activation_backward(const struct op_args *a) {
    const float *x = tensor_f32(&a->in[0]), *dy = tensor_f32(&a->in[1]);
    float *dx = tensor_f32(&a->out[0]);
    const struct activation_args p = a->p.activation;
    const size_t count = tensor_stored_count(&a->out[0]);
    POWER_BACKWARD(2)
    POWER_BACKWARD(3)
    switch (p.kind) {
        EACH_ACTIVATION(BACKWARD)
    default: break;
    }
}

/* ---- fill, clipping, the hash ---- */

static void each_fill(const struct op_args *a) {
    float *y = tensor_f32(&a->out[0]), value = a->p.fill.value;
    const size_t count = tensor_stored_count(&a->out[0]);
    EACH(y, value);
}

static void each_clip(const struct op_args *a) {
    float *y = tensor_f32(&a->out[0]),
          factor = clip_factor(a->p.clip.max_norm, clip_norm(a->in[0].data, a->in[0].dims[0]));
    const size_t count = factor == 1 ? 0 : tensor_stored_count(&a->out[0]);
    EACH(y, y[i] * factor);
}

static double square_sum(const float *x, int count) {
    double lane[CLIP_LANES] = {0};
    int i = 0;
    for (; i + CLIP_LANES <= count; i += CLIP_LANES)
        for (int k = 0; k < CLIP_LANES; k++)
            lane[k] += (double)x[i + k] * x[i + k];
    for (int k = 0; i + k < count; k++)
        lane[k] += (double)x[i + k] * x[i + k];
    return clip_add_lanes(lane);
}

static void each_square_sums(const struct op_args *a) {
    const int32_t *piece = a->in[1].data;
    double *sums = a->out[0].data;
    for (int i = 0; i < a->out[0].dims[0]; i++)
        sums[i] = square_sum(tensor_f32(&a->in[0]) + piece[2 * i], piece[2 * i + 1]);
}

static void each_hash(const struct op_args *a) {
    const float *x = tensor_f32(&a->in[0]);
    uint64_t sum = 0;
    for (size_t i = 0, count = tensor_count(&a->in[0]); i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        sum += hash_mix(bits, i);
    }
    ((uint64_t *)a->out[0].data)[(size_t)a->step->row * a->out[0].dims[1] + a->p.hash.column] = sum;
}

/* ---- the optimizers ---- */

/* PyTorch's SGD with the roundings of its vector code on the CPU: weight decay, dampening,
 * Nesterov's look ahead and the update are fused multiply-adds; the momentum product is rounded
 * before the gradient is added. `momentum` NULL: none; then the compiler leaves its half out. */
static inline __attribute__((always_inline)) void sgd_elements(const struct op_args *a,
                                                               float *momentum) {
    const float *grad = tensor_f32(&a->in[0]), decay = a->p.sgd.weight_decay,
                keep = a->p.sgd.momentum, fresh = (float)(1 - a->p.sgd.dampening),
                rate = -a->step->learning_rate;
    const int first = a->step->first_update, nesterov = a->p.sgd.nesterov;
    float *value = tensor_f32(&a->out[0]);
    const size_t count = tensor_count(&a->out[0]);
    IN_VECTORS for (size_t i = 0; i < count; i++) {
        float g = decay != 0 ? fmaf(value[i], decay, grad[i]) : grad[i];
        if (momentum) {
            float buffer = fmaf(g, fresh, momentum[i] * keep);
            momentum[i] = buffer = first ? g : buffer;
            g = nesterov ? fmaf(buffer, keep, g) : buffer;
        }
        value[i] = fmaf(g, rate, value[i]);
    }
}

static void each_sgd(const struct op_args *a) {
    if (a->out[1].data)
        sgd_elements(a, tensor_f32(&a->out[1]));
    else
        sgd_elements(a, NULL);
}

/* PyTorch's Adadelta with its fused multiply-adds:
 *
 *     v = rho v + (1 - rho) g^2
 *     d = sqrt(u + epsilon) / sqrt(v + epsilon) g
 *     u = rho u + (1 - rho) d^2
 *     p = p - rate d */
static void each_adadelta(const struct op_args *a) {
    const float *grad = tensor_f32(&a->in[0]), rate = -a->step->learning_rate;
    float *value = tensor_f32(&a->out[0]), *moments = tensor_f32(&a->out[1]);
    const struct adadelta_args p = a->p.adadelta;
    const float rho = (float)p.rho, rest = (float)(1 - p.rho), epsilon = (float)p.epsilon,
                decay = p.weight_decay;
    const size_t count = tensor_count(&a->out[0]);
    IN_VECTORS for (size_t i = 0; i < count; i++) {
        float v = moments[2 * i], u = moments[2 * i + 1],
              g = decay != 0 ? fmaf(value[i], decay, grad[i]) : grad[i];
        v = fmaf(rest * g, g, v * rho);
        float d = sqrtf(u + epsilon) / sqrtf(v + epsilon) * g;
        moments[2 * i] = v, moments[2 * i + 1] = fmaf(rest * d, d, u * rho);
        value[i] = fmaf(d, rate, value[i]);
    }
}

/* PyTorch's Adam, and AdamW, which first makes p smaller and leaves g alone. The means start at
 * zero; adam_rate and adam_root of the step block correct for that:
 *
 *     m = m + (1 - beta1) (g - m)
 *     v = beta2 v + (1 - beta2) g^2
 *     p = p - adam_rate m / (sqrt(v) / adam_root + epsilon) */
static void each_adam(const struct op_args *a) {
    const float *grad = tensor_f32(&a->in[0]);
    float *value = tensor_f32(&a->out[0]), *moments = tensor_f32(&a->out[1]);
    const struct adam_args p = a->p.adam;
    const float rest1 = (float)(1 - p.beta1), beta2 = (float)p.beta2, rest2 = (float)(1 - p.beta2),
                epsilon = (float)p.epsilon, decay = p.decoupled ? 0 : p.weight_decay,
                rate = -a->step->adam_rate, root = a->step->adam_root, keep = a->step->adam_keep;
    const int shrink = p.decoupled && p.weight_decay != 0;
    const size_t count = tensor_count(&a->out[0]);
    IN_VECTORS for (size_t i = 0; i < count; i++) {
        float m = moments[2 * i], v = moments[2 * i + 1], old = value[i],
              g = decay != 0 ? fmaf(old, decay, grad[i]) : grad[i];
        m = fmaf(rest1, g - m, m);
        v = fmaf(rest2 * g, g, v * beta2);
        moments[2 * i] = m, moments[2 * i + 1] = v;
        value[i] = (shrink ? old * keep : old) + rate * m / (sqrtf(v) / root + epsilon);
    }
}
