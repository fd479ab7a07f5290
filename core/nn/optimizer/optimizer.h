/* The optimizers of PyTorch, with its defaults; docs/design.md section 7 says how equal the bits
 * are. p is a parameter and g its gradient. Weight decay first adds weight_decay * p to g, except
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
 * t counts the updates from 1; the divisions by 1 - b^t make up for means that begin at 0. The
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
/* The kind of this name; OPTIMIZER_COUNT: there is none. */
enum optimizer_kind optimizer_named(const char *name);
/* The default learning rate: 0.2 (the d2l chapter's), 1, 0.001, 0.001. */
double optimizer_learning_rate(enum optimizer_kind kind);

/* Parameters with a separate rate or weight decay (optimizer_groups.c). */
enum { OPTIMIZER_GROUPS = 16 };
struct param_group {
    char params[64];         /* a name, a module's name, a pattern as of files, or "1d" */
    double lr, weight_decay; /* < 0: the optimizer's */
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
    int groups;          /* besides the one with all other parameters */
    struct param_group group[OPTIMIZER_GROUPS];
};

/* PyTorch's defaults: no momentum, no weight decay (but 0.01 in AdamW), and the numbers above. */
struct optimizer_config optimizer_default(enum optimizer_kind kind);

/* ERR_USAGE: a number is out of PyTorch's range, or Nesterov's momentum is combined with no
 * momentum or with dampening. The text begins with the name of the number: "momentum: -1: ...". */
int optimizer_check(const struct optimizer_config *config);

struct optimizer {
    struct device *device;
    struct optimizer_config config;
    float *state; /* device memory, MEM_OPTIMIZER: `each` floats per element of the value arena, in
                   * its order, up to the frozen parameters; NULL: none */
    int each;     /* 0, 1 (momentum) or 2 (Adadelta, Adam, AdamW) */
    int64_t *missed;               /* [parameters of the set] updates that each has missed; owned */
    char *group_of;                /* [parameters] 0, or 1 + the index in config.group; owned */
    double rate[OPTIMIZER_GROUPS]; /* learning rate of each group now; < 0: that of the step */
    struct step_block *blocks;     /* device memory: [groups] what their updates read; or NULL */
};

/* Allocates and zeroes the state on the set's device. ERR_USAGE: a group of config takes none. */
int optimizer_init(struct optimizer *o, const struct param_set *set,
                   const struct optimizer_config *config);
/* The device must be idle. NULL, zeroed and half-built are fine. */
void optimizer_free(struct optimizer *o);

/* Adds a group: the trained parameters that it matches and that are in no group yet. ERR_USAGE:
 * there are none. */
int optimizer_add_group(struct optimizer *o, const struct param_set *set,
                        const struct param_group *group);
/* The configuration of group g, 0 or more, and the step block of its parameters. */
struct optimizer_config optimizer_of_group(const struct optimizer *o, int g);
struct step_block optimizer_block_of_group(const struct optimizer *o, int g,
                                           const struct step_block *now, int64_t missed);
/* Enqueues the groups' step blocks for the step of `now`. Before its update; must not be
 * recorded. */
int optimizer_write_groups(struct optimizer *o, const struct step_block *now);

/* Enqueues the update of each parameter that is not frozen by its gradient, on the compute stream.
 * The learning rate and whatever else optimizer_schedule fills in are read from *step, in device
 * memory. */
int optimizer_step(struct optimizer *o, struct param_set *set, const struct step_block *step);

/* The same if some parameters have no gradient (PyTorch's None): used[i] 0: parameter i and its
 * state do not change. From then on that parameter counts its own updates, as in PyTorch, where t
 * and the first time are per parameter. now: a host copy of *step, which is rewritten for such
 * parameters and restored at the end. Must not be recorded. */
int optimizer_step_used(struct optimizer *o, struct param_set *set, struct step_block *step,
                        const char *used, const struct step_block *now);

/* Fills in the step block's fields for update number `update` (from 0), on the host. */
void optimizer_schedule(struct step_block *step, const struct optimizer_config *config,
                        double learning_rate, int64_t update);

/* The op that does an update, and its scalars in args->p. */
enum op optimizer_op(const struct optimizer_config *config, struct op_args *args);

/* ---- optimizer_state.c: the state in host memory, for checkpoints ---- */

/* PyTorch's name of part k (0 <= k < each) of the state: "momentum_buffer" of SGD; "square_avg" and
 * "acc_delta" of Adadelta; "exp_avg" and "exp_avg_sq" of Adam and AdamW. */
const char *optimizer_part_name(enum optimizer_kind kind, int k);

/* Copy the whole state as it is on the device to or from host memory of optimizer_state_bytes
 * bytes. They wait for the copy, and so for all earlier work. */
size_t optimizer_state_bytes(const struct optimizer *o, const struct param_set *set);
int optimizer_state_read(struct optimizer *o, const struct param_set *set, float *state);
int optimizer_state_write(struct optimizer *o, const struct param_set *set, const float *state);

/* Part k of the state of one parameter: p->count floats, from or to such a host copy. */
void optimizer_part_get(const struct optimizer *o, const struct param *p, int k, const float *state,
                        float *part);
void optimizer_part_put(const struct optimizer *o, const struct param *p, int k, const float *part,
                        float *state);

#endif
