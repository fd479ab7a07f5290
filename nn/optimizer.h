/* SGD as PyTorch's:
 *
 *     g += weight_decay * p
 *     buffer = momentum * buffer + g      the first time: buffer = g
 *     p -= learning_rate * buffer         without momentum: g */
#ifndef NN_OPTIMIZER_H
#define NN_OPTIMIZER_H

#include "nn/param.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sgd {
    struct device *device;
    float momentum, weight_decay;
    float *buffers; /* momentum arena, laid out as the value arena; NULL without momentum; MEM_OPTIMIZER */
};

/* Allocates and zeroes the momentum buffers on the set's device. */
int sgd_init(struct sgd *sgd, const struct param_set *set, double momentum, double weight_decay);
void sgd_free(struct sgd *sgd); /* NULL, zeroed and half-built are fine; the device must be idle */

/* Enqueues the update of every parameter from its gradient on the compute stream; the learning rate and
 * first_update are read from *step (device memory). */
int sgd_step(struct sgd *sgd, struct param_set *set, const struct step_block *step);

#ifdef __cplusplus
}
#endif
#endif
