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
static size_t offset_of(const struct tensor *t, const int *stride, size_t n, size_t i) {
    size_t offset = n * (size_t)stride[0];
    for (int d = t->rank - 1; d > 0; i /= (size_t)t->dims[d--])
        offset += i % (size_t)t->dims[d] * (size_t)stride[d];
    return offset;
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
                n < samples ? tensor_f32(x)[offset_of(x, stride, n, i)] : 0;
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
            tensor_f32(y)[offset_of(y, stride, n, i)] =
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
