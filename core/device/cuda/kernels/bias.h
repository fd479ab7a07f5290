/* y += b, after a library has computed a product without the bias. Each element of y gets the bias
 * of its channel. In y (N, C, ...) the channel changes slower than the pixels and faster than the
 * samples. The outputs of a linear layer are channels of one pixel. */
#ifndef DEVICE_CUDA_KERNELS_BIAS_H
#define DEVICE_CUDA_KERNELS_BIAS_H

#include "device/cuda/kernels/kernel.h"

struct add_bias {
    float *y;
    const float *b;
    uint32_t count;
    struct divider by_pixels, by_channels;
};

static inline struct add_bias add_bias_of(const struct tensor *y, const struct tensor *b) {
    size_t count = tensor_count(y), channels = tensor_count(b);
    struct add_bias a = ZEROED;
    a.y = tensor_f32(y), a.b = tensor_f32(b), a.count = (uint32_t)count;
    a.by_channels = divider_of((uint32_t)channels);
    a.by_pixels = divider_of((uint32_t)(tensor_sample_count(y) / channels));
    return a;
}

DUET_HD void k_add_bias(const struct add_bias *a, struct thread_index at) {
    for (size_t i = thread_first(at); i < a->count; i += thread_stride(at)) {
        uint32_t rest, channel;
        uint32_t plane = divide(a->by_pixels, (uint32_t)i, &rest);
        divide(a->by_channels, plane, &channel);
        a->y[i] += a->b[channel];
    }
}

#endif
