/* Optimizers, as PyTorch's and with its defaults; docs/design.md section 7 says how equal they
 * are. g: the gradient, with weight decay g += weight_decay * p.
 *
 *     SGD        buffer = momentum * buffer + g      the first time: buffer = g
 *                p -= learning_rate * buffer         without momentum: g
 *     Adadelta   v, u: running means of g^2 and d^2 (rho 0.9);  d = sqrt(u + 1e-6) / sqrt(v + 1e-6) * g
 *                p -= learning_rate * d
 *     Adam       m, v: running means of g and g^2 (betas 0.9, 0.999), each divided by what it lacks for having begun at 0
 *                p -= learning_rate * m / (sqrt(v) + 1e-8)
 *
 * The state costs once (momentum) or twice (the others) the memory of the parameters: under DP
 * on device 0 alone, under DDP on every device. */
#ifndef NN_OPTIMIZER_H
#define NN_OPTIMIZER_H

#include "nn/param.h"

#ifdef __cplusplus
extern "C" {
#endif

enum optimizer_kind { OPTIMIZER_SGD, OPTIMIZER_ADADELTA, OPTIMIZER_ADAM, OPTIMIZER_COUNT };
const char *optimizer_name(enum optimizer_kind kind); /* "sgd", "adadelta", "adam" */
/* where none is given: 0.2 (the chapter's), 1, 0.001 */
double optimizer_learning_rate(enum optimizer_kind kind);

struct optimizer_config {
    enum optimizer_kind kind;
    double momentum; /* SGD; ignored by the others */
    double weight_decay;
};

struct optimizer {
    struct device *device;
    struct optimizer_config config;
    /* `each` floats for each of the value arena, in its order; NULL: none; MEM_OPTIMIZER */
    float *state;
    int each;
};

/* Allocates and zeroes the state on the set's device. */
int optimizer_init(struct optimizer *o, const struct param_set *set,
                   const struct optimizer_config *config);
/* NULL, zeroed and half-built are fine; the device must be idle */
void optimizer_free(struct optimizer *o);

/* Enqueues the update of every parameter from its gradient on the compute stream. Learning rate
 * and the rest of what optimizer_schedule fills in are read from *step (device memory). */
int optimizer_step(struct optimizer *o, struct param_set *set, const struct step_block *step);

/* What update number `update` (from 0) needs of the step block, on the host. */
void optimizer_schedule(struct step_block *step, double learning_rate, int64_t update);

#ifdef __cplusplus
}
#endif
#endif
