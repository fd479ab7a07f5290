/* Initial weights: PyTorch's defaults for Linear and Conv layers, from one engine. Arrays are
 * row-major in host memory. The order of draws is part of the result: layers in the model's order
 * of registration, in each the weight before the bias. Nothing here fails. */
#ifndef NN_INIT_H
#define NN_INIT_H

#include <stddef.h>

#include "base/random.h"

/* The weight of torch.nn.Linear and torch.nn.Conv2d: kaiming uniform with slope sqrt(5). fan_in is
 * `in` for Linear, and in / groups * kh * kw for Conv2d. */
void init_weight(struct rng *r, float *x, size_t count, int fan_in);

/* The bias of these layers, drawn after the weight, uniform in +-1/sqrt(fan_in). */
void init_bias(struct rng *r, float *x, size_t count, int fan_in);

#endif
