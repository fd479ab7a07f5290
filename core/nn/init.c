/* Initialisers. An output is a sum of fan_in products, so weights shrink like 1 / sqrt(fan_in) to
 * keep the spread of activations from growing layer by layer. PyTorch's default slope sqrt(5) makes
 * the gain sqrt(1/3), so the bound is 1 / sqrt(fan_in) for weight and bias alike. The code follows
 * PyTorch's steps, because their roundings change the last bit. */
#include "nn/init.h"

#include <math.h>

/* Uniform in +-sqrt(3) gain / sqrt(fan_in) with gain = sqrt(2 / (1 + slope^2)), after He et al.
 * 2015; slope is that of the leaky relu. fan_in: how many inputs one output sums. */
static void init_kaiming_uniform(struct rng *r, float *x, size_t count, int fan_in, double slope) {
    double gain = sqrt(2.0 / (1.0 + slope * slope));
    double bound = sqrt(3.0) * (gain / sqrt((double)fan_in));
    rng_uniform(r, x, count, -bound, bound);
}

void init_weight(struct rng *r, float *x, size_t count, int fan_in) {
    init_kaiming_uniform(r, x, count, fan_in, sqrt(5.0));
}

void init_bias(struct rng *r, float *x, size_t count, int fan_in) {
    double bound = 1.0 / sqrt((double)fan_in);
    rng_uniform(r, x, count, -bound, bound);
}
