/* The optimizers of PyTorch, with its defaults. docs/design.md section 7 says how closely the bits
 * agree. p is a parameter and g its gradient. Weight decay first adds weight_decay * p to g, except
 * in AdamW.
 *
 *     SGD         buffer = momentum * buffer + (1 - dampening) * g    the first time buffer = g
 *                 p -= learning_rate * buffer          without momentum p -= learning_rate * g
 *                 p -= learning_rate * (g + momentum * buffer)        with nesterov
 *     Adadelta    v = rho * v + (1 - rho) * g^2        rho = 0.9, epsilon = 1e-6
 *                 d = sqrt(u + epsilon) / sqrt(v + epsilon) * g
 *                 u = rho * u + (1 - rho) * d^2
 *                 p -= learning_rate * d
 *     Adam        m = b1 * m + (1 - b1) * g            b1 = 0.9
 *                 v = b2 * v + (1 - b2) * g^2          b2 = 0.999, epsilon = 1e-8
 *                 p -= learning_rate * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)
 *     AdamW       p *= 1 - learning_rate * weight_decay               weight_decay = 0.01
 *                 then Adam, with g as it is
 *
 * t counts the updates from 1; the divisions by 1 - b^t correct for means that begin at 0. The
 * state takes once (momentum) or twice (Adadelta, Adam, AdamW) the memory of the parameters: under
 * DP on device 0 only, under DDP on every device. */
#ifndef NN_OPTIMIZER_H
#define NN_OPTIMIZER_H

#include "nn/param.h"

enum optimizer_kind {
    OPTIMIZER_SGD,
    OPTIMIZER_ADADELTA,
    OPTIMIZER_ADAM,
    OPTIMIZER_ADAMW,
    OPTIMIZER_COUNT
};
const char *optimizer_name(enum optimizer_kind kind); /* "sgd", "adadelta", "adam", "adamw" */
/* The kind with this name; OPTIMIZER_COUNT if none has it. */
enum optimizer_kind optimizer_named(const char *name);
/* The default learning rates: 0.2 (from the d2l chapter), 1, 0.001 and 0.001. */
double optimizer_learning_rate(enum optimizer_kind kind);

/* Parameters with a separate rate or weight decay (optimizer_groups.c). */
enum { OPTIMIZER_GROUPS = 16 };
struct param_group {
    char params[64];         /* a name, a module's name, a pattern as for files, or "1d" */
    double lr, weight_decay; /* below 0: the optimizer's */
};

/* A kind ignores the members of other kinds. */
struct optimizer_config {
    enum optimizer_kind kind;
    double momentum; /* sgd */
    double weight_decay;
    double dampening;    /* sgd: the weight of a gradient in the momentum is 1 - dampening */
    int nesterov;        /* sgd: 1: with Nesterov's momentum */
    double rho;          /* adadelta */
    double beta1, beta2; /* adam, adamw */
    double epsilon;      /* adadelta, adam, adamw */
    int groups;          /* not counting the one with all other parameters */
    struct param_group group[OPTIMIZER_GROUPS];
};

/* PyTorch's defaults: no momentum, no weight decay (but 0.01 in AdamW), and the numbers above. */
struct optimizer_config optimizer_default(enum optimizer_kind kind);

/* ERR_USAGE: a number is out of PyTorch's range, or Nesterov's rule is used without momentum or
 * with dampening. The message begins with the name of the number: "momentum: -1: ...". */
int optimizer_check(const struct optimizer_config *config);

struct optimizer {
    struct device *device;
    struct optimizer_config config;
    float *state; /* device memory, MEM_OPTIMIZER: `each` floats per element of the value arena, in
                   * its order, up to the frozen parameters; NULL: none */
    int each;     /* 0, 1 (momentum) or 2 (Adadelta, Adam, AdamW) */
    int64_t *missed;               /* [parameters of the set] updates that each missed; owned */
    char *group_of;                /* [parameters] 0, or 1 + the index in config.group; owned */
    double rate[OPTIMIZER_GROUPS]; /* current learning rate of each group; < 0: the step's */
    struct step_block *blocks;     /* device memory: [groups], read by their updates; or NULL */
};

/* Allocates and zeroes the state on the set's device. ERR_USAGE: a group has no parameter. */
int optimizer_init(struct optimizer *o, const struct param_set *set,
                   const struct optimizer_config *config);
/* The device must be idle. NULL, zeroed and half-built are fine. */
void optimizer_free(struct optimizer *o);

/* Adds a group of the trained parameters that it matches and that are in no group yet. ERR_USAGE:
 * no parameter is left. */
int optimizer_add_group(struct optimizer *o, const struct param_set *set,
                        const struct param_group *group);
/* The configuration of group g, 0 or more. */
struct optimizer_config optimizer_of_group(const struct optimizer *o, int g);

/* Enqueues, on the compute stream, the update of each parameter that is not frozen. It reads the
 * learning rate and the other fields that optimizer_schedule fills in from *step, in device memory.
 *
 * `used` NULL: all have a gradient. If used[i] is 0, parameter i has none (PyTorch's None), and it
 * and its state do not change. From then on that parameter counts its own updates, as in PyTorch,
 * where t and the first update are per parameter. `now` is a host copy of *step, which is rewritten
 * for such parameters and restored at the end; the step blocks of groups are made of it. */
int optimizer_step(struct optimizer *o, struct param_set *set, struct step_block *step,
                   const char *used, const struct step_block *now);

/* Fills in the step block's fields for update number `update` (from 0), on the host. */
void optimizer_schedule(struct step_block *step, const struct optimizer_config *config,
                        double learning_rate, int64_t update);

/* The op of an update, and its scalars in args->p. */
enum op optimizer_op(const struct optimizer_config *config, struct op_args *args);

#endif
