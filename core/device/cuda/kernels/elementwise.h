/* Kernels that treat each element independently: activations, sums, dropout, fill, scale, clipping
 * and the optimizers.
 *
 * A thread takes four neighbouring elements (a quad) at a time and then moves on by the size of the
 * grid. It uses 16-byte accesses, but single ones at the tail or if an operand is not aligned. The
 * arithmetic of an element is the same function either way, so its bits do not depend on where it
 * is in a call. Memory bandwidth limits the speed of these kernels. */
#ifndef DEVICE_CUDA_KERNELS_ELEMENTWISE_H
#define DEVICE_CUDA_KERNELS_ELEMENTWISE_H

#include "base/philox.h"
#include "device/clip.h"
#include "device/draw.h"
#include "device/cuda/kernels/kernel.h"

/* The parameter of all these kernels. out may be in0 or in1. */
struct elementwise {
    const float *in0, *in1, *in2;
    float *out, *out1;
    size_t count;
    int aligned;
    const struct step_block *step;
    /* fill, scale: the number; where: the value for a missing operand; dropout: the factor of kept
     * elements */
    float value;
    const double *sums; /* clip: one sum of squares per piece */
    int pieces;
    double max_norm;
    /* the optimizers: weight decay, and their scalars, rounded like PyTorch's */
    float weight_decay;
    float momentum, fresh; /* sgd: fresh = 1 - dampening */
    int nesterov;
    float rest1, beta2, rest2, epsilon; /* adam; rest = 1 - beta; adadelta: beta2 is its rho */
    int shrink;                         /* adam: 1: AdamW's decay */
    uint32_t layer;                     /* dropout: the layer's number */
    uint32_t v;                         /* dropout: the virtual device */
    int normal;                         /* random: normally distributed */
    struct divider by_plane;            /* dropout of whole planes: pixels per plane */
    struct activation_args activation;
    uint64_t threshold; /* dropout: an element is kept if its random word is below this */
};

static inline struct elementwise elementwise_of(enum op op, const struct op_args *a) {
    struct elementwise e = ZEROED;
    e.in0 = tensor_f32(&a->in[0]), e.in1 = tensor_f32(&a->in[1]), e.in2 = tensor_f32(&a->in[2]);
    e.out = tensor_f32(&a->out[0]), e.out1 = tensor_f32(&a->out[1]);
    e.count = tensor_count(&a->out[0]);
    e.aligned = is_aligned_16(e.in0) && is_aligned_16(e.in1) && is_aligned_16(e.in2) &&
                is_aligned_16(e.out) && is_aligned_16(e.out1);
    e.step = a->step;
    if (op == OP_FILL || op == OP_WHERE) e.value = a->p.fill.value;
    if (op == OP_ACTIVATION_FORWARD || op == OP_ACTIVATION_BACKWARD) e.activation = a->p.activation;
    if (op == OP_CLIP) {
        e.sums = (const double *)a->in[0].data, e.pieces = a->in[0].dims[0];
        e.max_norm = a->p.clip.max_norm;
    }
    if (op == OP_SGD) {
        e.weight_decay = a->p.sgd.weight_decay, e.momentum = a->p.sgd.momentum;
        e.fresh = (float)(1 - a->p.sgd.dampening), e.nesterov = a->p.sgd.nesterov;
    }
    if (op == OP_ADADELTA) {
        e.weight_decay = a->p.adadelta.weight_decay, e.epsilon = (float)a->p.adadelta.epsilon;
        e.beta2 = (float)a->p.adadelta.rho, e.rest2 = (float)(1 - a->p.adadelta.rho);
    }
    if (op == OP_ADAM) {
        e.weight_decay = a->p.adam.decoupled ? 0 : a->p.adam.weight_decay;
        e.shrink = a->p.adam.decoupled && a->p.adam.weight_decay != 0;
        e.rest1 = (float)(1 - a->p.adam.beta1), e.epsilon = (float)a->p.adam.epsilon;
        e.beta2 = (float)a->p.adam.beta2, e.rest2 = (float)(1 - a->p.adam.beta2);
    }
    if (op == OP_RANDOM) e.normal = a->p.dropout.normal;
    if (op == OP_RANDOM || op == OP_DROPOUT) {
        if (a->p.dropout.planes)
            e.by_plane = divider_of((uint32_t)(a->out[0].dims[2] * a->out[0].dims[3]));
        e.value = 1.0f / (1.0f - a->p.dropout.p);
        e.threshold = philox_threshold(1.0 - (double)a->p.dropout.p);
        e.layer = (uint32_t)a->p.dropout.layer, e.v = (uint32_t)a->p.dropout.v;
    }
    return e;
}

/* The elements of quad q: 4, or at the end of the tensor fewer. */
DUET_HD int quad_size(const struct elementwise *e, size_t q) {
    size_t left = e->count - 4 * q;
    return left < 4 ? (int)left : 4;
}

DUET_HD void quad_load(const struct elementwise *e, float v[4], const float *p, size_t q) {
    int size = quad_size(e, q);
    if (size == 4 && e->aligned) {
        load_4(v, p + 4 * q);
        return;
    }
    DUET_UNROLL
    for (int i = 0; i < 4; i++)
        v[i] = i < size ? p[4 * q + (size_t)i] : 0;
}

DUET_HD void quad_store(const struct elementwise *e, float *p, size_t q, const float v[4]) {
    int size = quad_size(e, q);
    if (size == 4 && e->aligned) {
        store_4(p + 4 * q, v);
        return;
    }
    DUET_UNROLL
    for (int i = 0; i < 4; i++)
        if (i < size) p[4 * q + (size_t)i] = v[i];
}

/* Loops over the quads of this thread. */
#define FOR_EACH_QUAD(q, e, at) \
    for (size_t q = thread_first(at); 4 * q < (e)->count; q += thread_stride(at))

/* Writes y = EXPRESSION of x, or of a and b, element by element. */
#define K_OF_ONE(name, expression)                                               \
    DUET_HD void k_##name(const struct elementwise *e, struct thread_index at) { \
        FOR_EACH_QUAD(q, e, at) {                                                \
            float v[4];                                                          \
            quad_load(e, v, e->in0, q);                                          \
            DUET_UNROLL                                                          \
            for (int i = 0; i < 4; i++) {                                        \
                float x = v[i];                                                  \
                v[i] = expression;                                               \
            }                                                                    \
            quad_store(e, e->out, q, v);                                         \
        }                                                                        \
    }
#define K_OF_TWO(name, expression)                                               \
    DUET_HD void k_##name(const struct elementwise *e, struct thread_index at) { \
        FOR_EACH_QUAD(q, e, at) {                                                \
            float v[4], w[4];                                                    \
            quad_load(e, v, e->in0, q);                                          \
            quad_load(e, w, e->in1, q);                                          \
            DUET_UNROLL                                                          \
            for (int i = 0; i < 4; i++) {                                        \
                float a = v[i], b = w[i];                                        \
                v[i] = expression;                                               \
            }                                                                    \
            quad_store(e, e->out, q, v);                                         \
        }                                                                        \
    }

K_OF_TWO(add_forward, a + b)
K_OF_TWO(subtract_forward, a - b)
// clang-format off
K_OF_TWO(multiply_forward, a * b)
// clang-format on
K_OF_ONE(activation_forward, activation_value(e->activation, x))
K_OF_TWO(activation_backward, activation_gradient(e->activation, a, b))

/* For the kinds that every net has: a constant kind compiles only its own formula. */
DUET_HD struct activation_args of_kind(enum activation kind) {
    struct activation_args p = {kind, 0, 0};
    return p;
}
#define K_OF_KIND(name, KIND)                                    \
    K_OF_ONE(name##_forward, activation_value(of_kind(KIND), x)) \
    K_OF_TWO(name##_backward, activation_gradient(of_kind(KIND), a, b))
K_OF_KIND(relu, ACTIVATION_RELU)
K_OF_KIND(tanh, ACTIVATION_TANH)
K_OF_KIND(sigmoid, ACTIVATION_SIGMOID)

DUET_HD void k_where(const struct elementwise *e, struct thread_index at) {
    FOR_EACH_QUAD(q, e, at) {
        float c[4], a[4] = {e->value, e->value, e->value, e->value},
                    b[4] = {e->value, e->value, e->value, e->value};
        quad_load(e, c, e->in0, q);
        if (e->in1) quad_load(e, a, e->in1, q);
        if (e->in2) quad_load(e, b, e->in2, q);
        DUET_UNROLL
        for (int i = 0; i < 4; i++)
            a[i] = c[i] != 0 ? a[i] : b[i];
        quad_store(e, e->out, q, a);
    }
}

/* Forward and backward are the same: the mask is a function of (seed, virtual device, step, layer,
 * element). A quad of elements takes exactly one call of Philox. */
DUET_HD void k_dropout(const struct elementwise *e, struct thread_index at) {
    FOR_EACH_QUAD(q, e, at) {
        float x[4];
        struct philox words =
            philox_quad(e->step->seed, e->v, (uint32_t)e->step->step, e->layer, (uint32_t)q);
        quad_load(e, x, e->in0, q);
        DUET_UNROLL
        for (int i = 0; i < 4; i++)
            x[i] *= words.word[i] < e->threshold ? e->value : 0.0f;
        quad_store(e, e->out, q, x);
    }
}

DUET_HD void k_random_numbers(const struct elementwise *e, struct thread_index at) {
    FOR_EACH_QUAD(q, e, at) {
        float y[4];
        struct philox four =
            philox_quad(e->step->seed, e->v, (uint32_t)e->step->step, e->layer, (uint32_t)q);
        DUET_UNROLL
        for (int i = 0; i < 4; i++)
            y[i] = e->normal ? draw_normal(four.word[i / 2 * 2], four.word[i / 2 * 2 + 1], i % 2)
                             : draw_uniform(four.word[i]);
        quad_store(e, e->out, q, y);
    }
}

DUET_HD uint32_t philox_word(const struct philox *four, uint32_t i) {
    uint32_t low = i & 1 ? four->word[1] : four->word[0],
             high = i & 1 ? four->word[3] : four->word[2];
    return i & 2 ? high : low;
}

/* A plane draws once. The elements of a quad are in one plane or in several consecutive planes. */
DUET_HD void k_dropout2d(const struct elementwise *e, struct thread_index at) {
    uint32_t step = (uint32_t)e->step->step;
    FOR_EACH_QUAD(q, e, at) {
        float x[4];
        uint32_t pixel, plane = divide(e->by_plane, (uint32_t)(4 * q), &pixel);
        struct philox four = philox_quad(e->step->seed, e->v, step, e->layer, plane / 4);
        quad_load(e, x, e->in0, q);
        DUET_UNROLL
        for (int i = 0; i < 4; i++, pixel++) {
            if (pixel == e->by_plane.d) {
                pixel = 0;
                if (++plane % 4 == 0)
                    four = philox_quad(e->step->seed, e->v, step, e->layer, plane / 4);
            }
            x[i] *= philox_word(&four, plane) < e->threshold ? e->value : 0.0f;
        }
        quad_store(e, e->out, q, x);
    }
}

DUET_HD void k_fill(const struct elementwise *e, struct thread_index at) {
    float v[4] = {e->value, e->value, e->value, e->value};
    FOR_EACH_QUAD(q, e, at) quad_store(e, e->out, q, v);
}

/* Each thread adds up all pieces itself, since a model has only a few hundred. */
DUET_HD void k_clip(const struct elementwise *e, struct thread_index at) {
    const float factor = clip_factor(e->max_norm, clip_norm(e->sums, e->pieces));
    FOR_EACH_QUAD(q, e, at) {
        float y[4];
        quad_load(e, y, e->out, q);
        DUET_UNROLL
        for (int i = 0; i < 4; i++)
            y[i] *= factor;
        quad_store(e, e->out, q, y);
    }
}

/* It rounds exactly like reference_sgd: all sums are fused, but the momentum product is rounded
 * first. in0 is the gradient, out the value, out1 the momentum or NULL. */
DUET_HD void k_sgd(const struct elementwise *e, struct thread_index at) {
    float rate = e->step->learning_rate;
    int first = e->step->first_update;
    FOR_EACH_QUAD(q, e, at) {
        float g[4], value[4], momentum[4] = {0, 0, 0, 0};
        quad_load(e, g, e->in0, q);
        quad_load(e, value, e->out, q);
        if (e->out1 && !first) quad_load(e, momentum, e->out1, q);
        DUET_UNROLL
        for (int i = 0; i < 4; i++) {
            if (e->weight_decay != 0) g[i] = fmaf(value[i], e->weight_decay, g[i]);
            momentum[i] = first ? g[i] : fmaf(g[i], e->fresh, momentum[i] * e->momentum);
            if (e->out1) g[i] = e->nesterov ? fmaf(momentum[i], e->momentum, g[i]) : momentum[i];
            value[i] = fmaf(g[i], -rate, value[i]);
        }
        if (e->out1) quad_store(e, e->out1, q, momentum);
        quad_store(e, e->out, q, value);
    }
}

/* Adadelta and Adam keep two moments for each element, next to each other: those of quad q are
 * out1[8 q .. 8 q + 7]. */
DUET_HD void pairs_load(const struct elementwise *e, float first[4], float second[4], size_t q) {
    int size = quad_size(e, q);
    float both[8];
    if (size == 4 && e->aligned) {
        load_4(both, e->out1 + 8 * q);
        load_4(both + 4, e->out1 + 8 * q + 4);
    } else {
        DUET_UNROLL
        for (int i = 0; i < 8; i++)
            both[i] = i < 2 * size ? e->out1[8 * q + (size_t)i] : 0;
    }
    DUET_UNROLL
    for (int i = 0; i < 4; i++)
        first[i] = both[2 * i], second[i] = both[2 * i + 1];
}

DUET_HD void pairs_store(const struct elementwise *e, size_t q, const float first[4],
                         const float second[4]) {
    int size = quad_size(e, q);
    float both[8];
    DUET_UNROLL
    for (int i = 0; i < 4; i++)
        both[2 * i] = first[i], both[2 * i + 1] = second[i];
    if (size == 4 && e->aligned) {
        store_4(e->out1 + 8 * q, both);
        store_4(e->out1 + 8 * q + 4, both + 4);
        return;
    }
    DUET_UNROLL
    for (int i = 0; i < 8; i++)
        if (i < 2 * size) e->out1[8 * q + (size_t)i] = both[i];
}

/* Rounds exactly like reference_adadelta. in0 is the gradient, out the value, out1 the moments. */
DUET_HD void k_adadelta(const struct elementwise *e, struct thread_index at) {
    const float rho = e->beta2, rest = e->rest2, epsilon = e->epsilon;
    float rate = e->step->learning_rate;
    FOR_EACH_QUAD(q, e, at) {
        float g[4], value[4], v[4], u[4];
        quad_load(e, g, e->in0, q);
        quad_load(e, value, e->out, q);
        pairs_load(e, v, u, q);
        DUET_UNROLL
        for (int i = 0; i < 4; i++) {
            if (e->weight_decay != 0) g[i] = fmaf(value[i], e->weight_decay, g[i]);
            v[i] = fmaf(rest * g[i], g[i], v[i] * rho);
            float d = sqrtf(u[i] + epsilon) / sqrtf(v[i] + epsilon) * g[i];
            u[i] = fmaf(rest * d, d, u[i] * rho);
            value[i] = fmaf(d, -rate, value[i]);
        }
        pairs_store(e, q, v, u);
        quad_store(e, e->out, q, value);
    }
}

/* It rounds exactly like reference_adam. Operands are as in k_adadelta. */
DUET_HD void k_adam(const struct elementwise *e, struct thread_index at) {
    const float rest1 = e->rest1, beta2 = e->beta2, rest2 = e->rest2, epsilon = e->epsilon;
    float rate = e->step->adam_rate, root = e->step->adam_root, keep = e->step->adam_keep;
    FOR_EACH_QUAD(q, e, at) {
        float g[4], value[4], m[4], v[4];
        quad_load(e, g, e->in0, q);
        quad_load(e, value, e->out, q);
        pairs_load(e, m, v, q);
        DUET_UNROLL
        for (int i = 0; i < 4; i++) {
            if (e->weight_decay != 0) g[i] = fmaf(value[i], e->weight_decay, g[i]);
            if (e->shrink) value[i] *= keep;
            m[i] = fmaf(rest1, g[i] - m[i], m[i]);
            v[i] = fmaf(rest2 * g[i], g[i], v[i] * beta2);
            value[i] += -rate * m[i] / (sqrtf(v[i]) / root + epsilon);
        }
        pairs_store(e, q, m, v);
        quad_store(e, e->out, q, value);
    }
}

#endif
