/* Kernels that work on one element at a time. For those in elementwise.inc.h the position of an
 * element does not matter. The change of layout, dropout and random numbers, which are here, must
 * know it: a mask depends on the element's index in the PLAIN segment. */
#include "device/host/kernels/reference.h"

#include <math.h>
#include <string.h>

#include "base/philox.h"
#include "device/clip.h"
#include "device/draw.h"
#include "device/host/kernels/hash_mix.h"
#include "device/host/kernels/elementwise.inc.h"

/* Element i of sample n of a plain tensor. */
static size_t place_of(const struct tensor *t, const int *stride, size_t n, size_t i) {
    size_t place = n * (size_t)stride[0];
    for (int d = t->rank - 1; d > 0; i /= (size_t)t->dims[d--])
        place += i % (size_t)t->dims[d] * (size_t)stride[d];
    return place;
}

/* plain [n][i] <-> N16 [n / lanes][i][n % lanes]; the lanes past n are zero. */
void reference_to_n16(const struct op_args *a) {
    const struct tensor *x = &a->in[0];
    size_t lanes = (size_t)a->out[0].lanes;
    float *y = tensor_f32(&a->out[0]);
    size_t samples = (size_t)x->dims[0], count = tensor_sample_count(x);
    int stride[MAX_RANK];
    tensor_strides(x, stride);
    for (size_t n = 0; n < (size_t)a->out[0].groups * lanes; n++)
        for (size_t i = 0; i < count; i++)
            y[(n / lanes * count + i) * lanes + n % lanes] =
                n < samples ? tensor_f32(x)[place_of(x, stride, n, i)] : 0;
}

void reference_to_plain(const struct op_args *a) {
    const float *x = tensor_f32(&a->in[0]);
    const struct tensor *y = &a->out[0];
    size_t samples = (size_t)y->dims[0], count = tensor_sample_count(y),
           lanes = (size_t)a->in[0].lanes;
    int stride[MAX_RANK];
    tensor_strides(y, stride);
    for (size_t n = 0; n < samples; n++)
        for (size_t i = 0; i < count; i++)
            tensor_f32(y)[place_of(y, stride, n, i)] =
                x[(n / lanes * count + i) * lanes + n % lanes];
}

#define BY_ELEMENTS(name)                            \
    void reference_##name(const struct op_args *a) { \
        each_##name(a);                              \
    }
BY_ELEMENTS(add_forward)
BY_ELEMENTS(subtract_forward)
BY_ELEMENTS(multiply_forward)
BY_ELEMENTS(where)
BY_ELEMENTS(activation_forward)
BY_ELEMENTS(activation_backward)
BY_ELEMENTS(fill)
BY_ELEMENTS(square_sums)
BY_ELEMENTS(clip)
BY_ELEMENTS(sgd)
BY_ELEMENTS(adadelta)
BY_ELEMENTS(adam)
BY_ELEMENTS(hash)

/* y = x * (kept ? 1 / (1 - p) : 0), the scale in float as in PyTorch; p = 1 keeps nothing. With
 * `planes` there is one draw for each plane. */
void reference_dropout(const struct op_args *a) {
    const float *x = tensor_f32(&a->in[0]);
    float *y = tensor_f32(&a->out[0]);
    struct dropout_args d = a->p.dropout;
    uint64_t threshold = philox_threshold(1.0 - (double)d.p);
    float scale = 1.0f / (1.0f - d.p);
    size_t side = a->out[0].layout == LAYOUT_N16 ? (size_t)a->out[0].lanes : 1;
    size_t count = tensor_sample_count(&a->out[0]),
           draws = d.planes ? (size_t)a->out[0].dims[1] : count;
    for (size_t i = 0, stored = tensor_stored_count(&a->out[0]); i < stored; i++) {
        size_t sample = i / (side * count) * side + i % side;
        size_t draw = i / side % count / (count / draws);
        int kept = philox_keep(a->step->seed, (uint32_t)d.v, (uint32_t)a->step->step,
                               (uint32_t)d.layer, sample * draws + draw, threshold);
        y[i] = x[i] * (kept ? scale : 0.0f);
    }
}

void reference_random_numbers(const struct op_args *a) {
    const struct dropout_args d = a->p.dropout;
    float *y = tensor_f32(&a->out[0]);
    for (size_t i = 0, count = tensor_count(&a->out[0]); i < count; i++) {
        struct philox four = philox_quad(a->step->seed, (uint32_t)d.v, (uint32_t)a->step->step,
                                         (uint32_t)d.layer, (uint32_t)(i / 4));
        const uint32_t *pair = four.word + i % 4 / 2 * 2;
        y[i] = d.normal ? draw_normal(pair[0], pair[1], (int)(i % 2)) : draw_uniform(pair[i % 2]);
    }
}

void reference_fill(const struct op_args *a) {
    float *y = tensor_f32(&a->out[0]), value = a->p.fill.value;
    for (size_t i = 0, count = tensor_stored_count(&a->out[0]); i < count; i++)
        y[i] = value;
}

/* PyTorch's SGD with the roundings of its vector code on the CPU: weight decay, dampening,
 * Nesterov's look ahead and the update are fused multiply-adds; the momentum product is rounded
 * before the gradient is added. */
void reference_sgd(const struct op_args *a) {
    const float *grad = tensor_f32(&a->in[0]);
    float *value = tensor_f32(&a->out[0]), *momentum = tensor_f32(&a->out[1]);
    struct sgd_args sgd = a->p.sgd;
    const float fresh = (float)(1 - sgd.dampening);
    for (size_t i = 0, count = tensor_count(&a->out[0]); i < count; i++) {
        float g = sgd.weight_decay != 0 ? fmaf(value[i], sgd.weight_decay, grad[i]) : grad[i];
        if (momentum) {
            float buffer = a->step->first_update ? g : fmaf(g, fresh, momentum[i] * sgd.momentum);
            momentum[i] = buffer;
            g = sgd.nesterov ? fmaf(buffer, sgd.momentum, g) : buffer;
        }
        value[i] = fmaf(g, -a->step->learning_rate, value[i]);
    }
}

/* PyTorch's Adadelta with its fused multiply-adds:
 *
 *     v = rho v + (1 - rho) g^2
 *     d = sqrt(u + epsilon) / sqrt(v + epsilon) g
 *     u = rho u + (1 - rho) d^2
 *     p = p - rate d */
void reference_adadelta(const struct op_args *a) {
    const float *grad = tensor_f32(&a->in[0]);
    float *value = tensor_f32(&a->out[0]), *moments = tensor_f32(&a->out[1]);
    struct adadelta_args p = a->p.adadelta;
    const float rho = (float)p.rho, rest = (float)(1 - p.rho), epsilon = (float)p.epsilon,
                decay = p.weight_decay;
    for (size_t i = 0, count = tensor_count(&a->out[0]); i < count; i++) {
        float *v = &moments[2 * i], *u = &moments[2 * i + 1];
        float g = decay != 0 ? fmaf(value[i], decay, grad[i]) : grad[i];
        *v = fmaf(rest * g, g, *v * rho);
        float d = sqrtf(*u + epsilon) / sqrtf(*v + epsilon) * g;
        *u = fmaf(rest * d, d, *u * rho);
        value[i] = fmaf(d, -a->step->learning_rate, value[i]);
    }
}

/* PyTorch's Adam, and AdamW, which first makes p smaller and leaves g alone. The means start at
 * zero; adam_rate and adam_root of the step block correct for that:
 *
 *     m = m + (1 - beta1) (g - m)
 *     v = beta2 v + (1 - beta2) g^2
 *     p = p - adam_rate m / (sqrt(v) / adam_root + epsilon) */
void reference_adam(const struct op_args *a) {
    const float *grad = tensor_f32(&a->in[0]);
    float *value = tensor_f32(&a->out[0]), *moments = tensor_f32(&a->out[1]);
    struct adam_args p = a->p.adam;
    const float rest1 = (float)(1 - p.beta1), beta2 = (float)p.beta2, rest2 = (float)(1 - p.beta2),
                epsilon = (float)p.epsilon;
    const float decay = p.decoupled ? 0 : p.weight_decay, rate = a->step->adam_rate,
                root = a->step->adam_root;
    for (size_t i = 0, count = tensor_count(&a->out[0]); i < count; i++) {
        float *m = &moments[2 * i], *v = &moments[2 * i + 1];
        float g = decay != 0 ? fmaf(value[i], decay, grad[i]) : grad[i];
        if (p.decoupled && p.weight_decay != 0) value[i] *= a->step->adam_keep;
        *m = fmaf(rest1, g - *m, *m);
        *v = fmaf(rest2 * g, g, *v * beta2);
        value[i] += -rate * *m / (sqrtf(*v) / root + epsilon);
    }
}

static double square_sum(const float *x, int count) {
    double lane[CLIP_LANES] = {0};
    for (int i = 0; i < count; i++)
        lane[i % CLIP_LANES] += (double)x[i] * x[i];
    return clip_add_lanes(lane);
}

void reference_square_sums(const struct op_args *a) {
    const int32_t *piece = a->in[1].data;
    double *sums = a->out[0].data;
    for (int i = 0; i < a->out[0].dims[0]; i++)
        sums[i] = square_sum(tensor_f32(&a->in[0]) + piece[2 * i], piece[2 * i + 1]);
}

void reference_clip(const struct op_args *a) {
    double norm = clip_norm(a->in[0].data, a->in[0].dims[0]);
    float factor = clip_factor(a->p.clip.max_norm, norm), *y = tensor_f32(&a->out[0]);
    for (size_t i = 0, count = factor == 1 ? 0 : tensor_count(&a->out[0]); i < count; i++)
        y[i] *= factor;
}

void reference_hash(const struct op_args *a) {
    const float *x = tensor_f32(&a->in[0]);
    uint64_t sum = 0;
    for (size_t i = 0, count = tensor_count(&a->in[0]); i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        sum += hash_mix(bits, i);
    }
    ((uint64_t *)a->out[0].data)[(size_t)a->step->row * a->out[0].dims[1] + a->p.hash.column] = sum;
}
