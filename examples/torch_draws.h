/* Draws random numbers for examples/rpc_cartpole.c as PyTorch does: doubles, an action, a layer. */
#ifndef EXAMPLES_TORCH_DRAWS_H
#define EXAMPLES_TORCH_DRAWS_H

#include <math.h>
#include <stdint.h>

#include "duet.h"

enum { HIDDEN = 128, ACTIONS = 2 };

/* n numbers in [0, 1) with 53 random bits, as torch draws doubles. */
static void uniforms(duet_rng *rng, double *u, int n) {
    int64_t x[HIDDEN];
    duet_rng_integers(rng, DUET_I64, x, (size_t)n, INT64_MIN, INT64_MAX);
    for (int i = 0; i < n; i++)
        u[i] = (double)(((uint64_t)x[i] - (uint64_t)INT64_MIN) & ((1ull << 53) - 1)) * 0x1p-53;
}

/* Categorical(probs).sample(): the index with the smallest exponential draw / p wins. */
static int sample(duet_rng *rng, const float *p) {
    double u[ACTIONS];
    float best = -1, sum = p[0] + p[1];
    int action = 0;
    uniforms(rng, u, ACTIONS);
    for (int k = 0; k < ACTIONS; k++) {
        float ratio = p[k] / sum / (float)-log1p(-u[k]);
        if (ratio > best) best = ratio, action = k;
    }
    return action;
}

/* nn.Linear's initial values, drawn from the generator. */
static void linear_start(duet_rng *rng, float *w, size_t count, int inputs) {
    double bound = sqrt(3.0) * (sqrt(2.0 / (1 + 5)) / sqrt(inputs));
    duet_rng_uniform(rng, w, count, -bound, bound);
}

#endif
