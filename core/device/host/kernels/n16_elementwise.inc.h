/* Kernels that work on one element at a time, in either layout.
 *
 * The vector body and the scalar tail of a kernel do the same operations with the same roundings,
 * so an element gets the same bits wherever it is in a call. Change both together. */

/* out[0] = EXPRESSION of a = in[0] and b = in[1], which are vectors, or floats in the tail. */
#define FAST_OF_TWO(name, expression)                                                 \
    static void fast_##name(const struct op_args *args) {                             \
        const float *in0 = tensor_f32(&args->in[0]), *in1 = tensor_f32(&args->in[1]); \
        float *out = tensor_f32(&args->out[0]);                                       \
        size_t i = 0, count = tensor_stored_count(&args->out[0]);                     \
        for (; i + LANES <= count; i += LANES) {                                      \
            const vec a = load(in0 + i), b = load(in1 + i);                           \
            store(out + i, expression);                                               \
        }                                                                             \
        for (; i < count; i++) {                                                      \
            const float a = in0[i], b = in1[i];                                       \
            out[i] = expression;                                                      \
        }                                                                             \
    }

// clang-format off
FAST_OF_TWO(add_forward, a + b)
FAST_OF_TWO(subtract_forward, a - b)
FAST_OF_TWO(multiply_forward, a * b)
// clang-format on

static void fast_where(const struct op_args *args) {
    const float *c = tensor_f32(&args->in[0]), *a = tensor_f32(&args->in[1]),
                *b = tensor_f32(&args->in[2]), value = args->p.fill.value;
    float *y = tensor_f32(&args->out[0]);
    size_t i = 0, count = tensor_count(&args->out[0]);
    for (; i + LANES <= count; i += LANES)
        store(y + i, select_vec(load(c + i) != 0, a ? load(a + i) : splat(value),
                                b ? load(b + i) : splat(value)));
    for (; i < count; i++)
        y[i] = c[i] != 0 ? (a ? a[i] : value) : (b ? b[i] : value);
}

/* y[i] = EXPRESSION of x[i], and of dy[i]. The compiler vectorises these loops. They may work in
 * place. */
#ifdef __clang__
#define IN_VECTORS _Pragma("clang loop vectorize(assume_safety)")
#else
#define IN_VECTORS _Pragma("GCC ivdep")
#endif
#define EACH(y, expression) IN_VECTORS for (size_t i = 0; i < count; i++) y[i] = expression

/* y[i] = FUNCTION of p and more: squares and cubes are loops over vectors, too. */
#define EACH_OF_ANY(y, function, ...)                                                   \
    if (p.kind == ACTIVATION_POW && p.a == 2)                                           \
        EACH(y, function((struct activation_args){ACTIVATION_POW, 2, 0}, __VA_ARGS__)); \
    else if (p.kind == ACTIVATION_POW && p.a == 3)                                      \
        EACH(y, function((struct activation_args){ACTIVATION_POW, 3, 0}, __VA_ARGS__)); \
    else                                                                                \
        EACH(y, function(p, __VA_ARGS__))

/* A loop for each kind but other powers and remainders, which themselves are one. */
#define EACH_KIND(KIND) \
    KIND(RELU)          \
    KIND(TANH)          \
    KIND(SIGMOID)       \
    KIND(LEAKY_RELU)    \
    KIND(ELU)           \
    KIND(HARDTANH)      \
    KIND(GELU)          \
    KIND(GELU_TANH)     \
    KIND(SCALE)         \
    KIND(SHIFT)         \
    KIND(ABS)           \
    KIND(SOFTPLUS)      \
    KIND(SILU)          \
    KIND(HARDSWISH)     \
    KIND(HARDSIGMOID)   \
    KIND(ABOVE)         \
    KIND(EQUAL)         \
    KIND(ERF)           \
    KIND(SIN)           \
    KIND(COS)           \
    KIND(ROUND)         \
    KIND(FLOOR)         \
    KIND(CEIL)          \
    KIND(TRUNC)         \
    KIND(EXP)           \
    KIND(LOG)           \
    KIND(SQRT)          \
    KIND(RECIPROCAL)

static void fast_activation_forward(const struct op_args *a) {
    const float *x = tensor_f32(&a->in[0]);
    float *y = tensor_f32(&a->out[0]);
    const struct activation_args p = a->p.activation;
    size_t count = tensor_stored_count(&a->out[0]);
    switch (p.kind) {
#define FORWARD(KIND)                                                                           \
    case ACTIVATION_##KIND:                                                                     \
        EACH(y, activation_value((struct activation_args){ACTIVATION_##KIND, p.a, p.b}, x[i])); \
        break;
        EACH_KIND(FORWARD)
    default: EACH_OF_ANY(y, activation_value, x[i]);
    }
}

static void fast_activation_backward(const struct op_args *a) {
    const float *x = tensor_f32(&a->in[0]), *dy = tensor_f32(&a->in[1]);
    float *dx = tensor_f32(&a->out[0]);
    const struct activation_args p = a->p.activation;
    size_t count = tensor_stored_count(&a->out[0]);
    switch (p.kind) {
#define BACKWARD(KIND)                                                                            \
    case ACTIVATION_##KIND:                                                                       \
        EACH(dx, activation_gradient((struct activation_args){ACTIVATION_##KIND, p.a, p.b}, x[i], \
                                     dy[i]));                                                     \
        break;
        EACH_KIND(BACKWARD)
    default: EACH_OF_ANY(dx, activation_gradient, x[i], dy[i]);
    }
}

static void fast_fill(const struct op_args *a) {
    float *y = tensor_f32(&a->out[0]), value = a->p.fill.value;
    size_t count = tensor_stored_count(&a->out[0]);
    EACH(y, value);
}

static void fast_clip(const struct op_args *a) {
    float *y = tensor_f32(&a->out[0]),
          factor = clip_factor(a->p.clip.max_norm, clip_norm(a->in[0].data, a->in[0].dims[0]));
    size_t count = factor == 1 ? 0 : tensor_stored_count(&a->out[0]);
    EACH(y, y[i] * factor);
}

/* The compiler vectorises the inner loop. */
static double fast_square_sum(const float *x, int count) {
    double lane[CLIP_LANES] = {0};
    int i = 0;
    for (; i + CLIP_LANES <= count; i += CLIP_LANES)
        for (int k = 0; k < CLIP_LANES; k++)
            lane[k] += (double)x[i + k] * x[i + k];
    for (int k = 0; i + k < count; k++)
        lane[k] += (double)x[i + k] * x[i + k];
    return clip_add_lanes(lane);
}

static void fast_square_sums(const struct op_args *a) {
    const int32_t *piece = a->in[1].data;
    double *sums = a->out[0].data;
    for (int i = 0; i < a->out[0].dims[0]; i++)
        sums[i] = fast_square_sum(tensor_f32(&a->in[0]) + piece[2 * i], piece[2 * i + 1]);
}

/* Computes the elements from `from` on, after the last whole vector, with the reference, whose
 * operations are those of the vector body in the same order. */
static void finish_by_reference(const struct op_args *a, size_t from, host_kernel *reference) {
    struct op_args rest = *a;
    size_t count = tensor_count(&a->out[0]), each = 0; /* numbers of out[1] per element */
    int left = (int)(count - from);
    if (a->out[1].data && count) each = tensor_count(&a->out[1]) / count;
    rest.in[0] = tensor_plain(tensor_f32(&a->in[0]) + from, DTYPE_F32, 1, &left);
    rest.out[0] = tensor_plain(tensor_f32(&a->out[0]) + from, DTYPE_F32, 1, &left);
    rest.out[1].data = tensor_f32(&a->out[1]) + each * from;
    reference(&rest);
}

/* reference_sgd has the formula and its roundings. */
static void fast_sgd(const struct op_args *a) {
    const float *grad = tensor_f32(&a->in[0]);
    float *value = tensor_f32(&a->out[0]), *momentum = tensor_f32(&a->out[1]);
    float decay = a->p.sgd.weight_decay, keep = a->p.sgd.momentum,
          fresh = (float)(1 - a->p.sgd.dampening), rate = -a->step->learning_rate;
    int first = a->step->first_update, nesterov = a->p.sgd.nesterov;
    size_t i = 0, count = tensor_count(&a->out[0]);
    for (; i + LANES <= count; i += LANES) {
        vec g = load(grad + i), p = load(value + i);
        if (decay != 0) g = fused(p, splat(decay), g);
        if (momentum) {
            vec buffer = first ? g : fused(g, splat(fresh), load(momentum + i) * keep);
            store(momentum + i, buffer);
            g = nesterov ? fused(buffer, splat(keep), g) : buffer;
        }
        store(value + i, fused(g, splat(rate), p));
    }
    finish_by_reference(a, i, reference_sgd);
}

/* reference_adadelta has the formula and its roundings. */
static void fast_adadelta(const struct op_args *a) {
    const float *grad = tensor_f32(&a->in[0]);
    float *value = tensor_f32(&a->out[0]), *moments = tensor_f32(&a->out[1]);
    struct adadelta_args by = a->p.adadelta;
    const float decay = by.weight_decay;
    const vec rho = splat((float)by.rho), rest = splat((float)(1 - by.rho)),
              epsilon = splat((float)by.epsilon), rate = splat(-a->step->learning_rate);
    size_t i = 0, count = tensor_count(&a->out[0]);
    for (; i + LANES <= count; i += LANES) {
        vec g = load(grad + i), p = load(value + i), v, u;
        load_pairs(moments + 2 * i, &v, &u);
        if (decay != 0) g = fused(p, splat(decay), g);
        v = fused(rest * g, g, v * rho);
        vec d = roots(u + epsilon) / roots(v + epsilon) * g;
        u = fused(rest * d, d, u * rho);
        store_pairs(moments + 2 * i, v, u);
        store(value + i, fused(d, rate, p));
    }
    finish_by_reference(a, i, reference_adadelta);
}

/* reference_adam has the formula and its roundings. */
static void fast_adam(const struct op_args *a) {
    const float *grad = tensor_f32(&a->in[0]);
    float *value = tensor_f32(&a->out[0]), *moments = tensor_f32(&a->out[1]);
    struct adam_args by = a->p.adam;
    const float decay = by.decoupled ? 0 : by.weight_decay;
    const int shrink = by.decoupled && by.weight_decay != 0;
    const vec rest1 = splat((float)(1 - by.beta1)), beta2 = splat((float)by.beta2),
              rest2 = splat((float)(1 - by.beta2)), epsilon = splat((float)by.epsilon),
              rate = splat(-a->step->adam_rate), root = splat(a->step->adam_root),
              keep = splat(a->step->adam_keep);
    size_t i = 0, count = tensor_count(&a->out[0]);
    for (; i + LANES <= count; i += LANES) {
        vec g = load(grad + i), p = load(value + i), m, v;
        load_pairs(moments + 2 * i, &m, &v);
        if (decay != 0) g = fused(p, splat(decay), g);
        if (shrink) p *= keep;
        m = fused(rest1, g - m, m);
        v = fused(rest2 * g, g, v * beta2);
        store_pairs(moments + 2 * i, m, v);
        store(value + i, p + rate * m / (roots(v) / root + epsilon));
    }
    finish_by_reference(a, i, reference_adam);
}

/* Computes hash_mix for LANES / 2 elements at once; 64-bit sums are the same in any order. */
static void fast_hash(const struct op_args *a) {
    enum { OF_64 = LANES / 2 };
    const float *x = tensor_f32(&a->in[0]);
    uint64_t sum = 0;
    size_t i = 0, count = tensor_count(&a->in[0]);
    uvec64 sums = {0}, step;
    for (int lane = 0; lane < OF_64; lane++)
        step[lane] = (uint64_t)(lane + 1) * HASH_STEP;
    for (; i + OF_64 <= count; i += OF_64, step += (uint64_t)OF_64 * HASH_STEP) {
        uint32_t bits[OF_64];
        memcpy(bits, x + i, sizeof bits);
        uvec64 z;
        UNROLL for (int lane = 0; lane < OF_64; lane++) z[lane] = bits[lane];
        z += step;
        z = (z ^ (z >> 30)) * HASH_MUL1;
        z = (z ^ (z >> 27)) * HASH_MUL2;
        sums += z ^ (z >> 31);
    }
    for (int lane = 0; lane < OF_64; lane++)
        sum += sums[lane];
    for (; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        sum += hash_mix(bits, i);
    }
    ((uint64_t *)a->out[0].data)[(size_t)a->step->row * a->out[0].dims[1] + a->p.hash.column] = sum;
}
