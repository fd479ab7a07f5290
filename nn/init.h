/* Initial weights: PyTorch's defaults for Linear and Conv layers, and plain normals, from one
 * engine.
 *
 * Arrays are plain host memory, row-major in PyTorch's shapes: weight (out, in) or (out, in /
 * groups, kh, kw), bias (out) or NULL for a layer without. The order of draws is part of the
 * result: layers in the order the model registers them, in each the weight before the bias.
 * Nothing here fails. */
#ifndef NN_INIT_H
#define NN_INIT_H

#include <stddef.h>

#include "base/random.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Uniform in +-sqrt(3) gain / sqrt(fan_in) with gain = sqrt(2 / (1 + slope^2)), after He et al.
 * 2015; slope is that of the leaky relu. fan_in: how many inputs one output sums. */
void init_kaiming_uniform(struct rng *r, float *x, size_t count, int fan_in, double slope);

/* torch.nn.Linear: kaiming uniform with slope sqrt(5), then the bias uniform in
 * +-1/sqrt(fan_in); fan_in = in. */
void init_linear(struct rng *r, int out, int in, float *weight, float *bias);

/* torch.nn.Conv2d, likewise with fan_in = in / groups * kh * kw. */
void init_conv2d(struct rng *r, int out, int in, int groups, int kh, int kw, float *weight,
                 float *bias);

/* torch.randn(count) * scale: drawn with deviation 1 and multiplied in float. Below 16 elements
 * that differs in the last bit from a draw with deviation `scale`, which is rng_normal(r, x,
 * count, 0, scale). */
void init_scaled_normal(struct rng *r, float *x, size_t count, float scale);

#ifdef __cplusplus
}
#endif
#endif
