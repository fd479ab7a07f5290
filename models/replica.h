/* A replica is one model on one device with everything that a step needs. Single, DP and DDP all
 * use it. A training step of one device, or of a rank of DDP, is
 *
 *     replica_write_step    the step block: seed, weight, learning rate
 *     replica_load          copies the batch to the device
 *     replica_forward, replica_loss, replica_backward, and after the last pass replica_update
 *
 * replica_step does all of this.
 *
 * It uses the public tape: pass_begin and duet_backward (nn/pass.c), like any program's
 * duet_tape_begin and duet_backward. A replica adds what a comparison needs: input that is copied
 * during the previous step, logs of many steps, and hashes.
 *
 * DDP is attached to the parameters, and the pass calls it (struct grad_reducer). In DP each device
 * has a replica, and dp/dp.c runs forward and backward on their tapes (train/strategy_dp.c).
 *
 * A step may have several passes (step->add_grads, step->more_passes). Everything but the update is
 * then done in each pass, with its own batch, and gradients accumulate.
 *
 * All work is enqueued on the device's compute stream, and each function sets the stream's phase
 * for the spans. One thread uses a replica. Functions return a code of base/error.h. */
#ifndef MODELS_REPLICA_H
#define MODELS_REPLICA_H

#include "data/batch.h"
#include "models/model.h"
#include "nn/optimizer/optimizer.h"
#include "nn/params/params.h"

struct replica_config {
    int max_samples;  /* capacity of the input buffers, in samples */
    int log_rows;     /* steps that the logs hold before the host must read them */
    int log_segments; /* columns of the loss log: segments whose loss this replica computes, or 0 */
    int hashes; /* 1: values and gradients are hashed at every step (the proof of equal bits) */
    int passes; /* the most passes in a step; 0 or 1: a step is one pass */
    int pass_segments; /* segments whose gradients are accumulated; read if passes is above 1 */
    int optimizer;     /* 1: this replica updates its parameters; 0: it receives them (DP) */
    struct optimizer_config update; /* how it updates them; read if optimizer is 1 */
    int sharded;         /* 1: fsdp/ shards the parameters and only then makes their memory and the
                  * optimizer; optimizer is 0 */
    int blocking_copies; /* 1: a load waits until its copy is done; no batch is announced */
};

/* Where a batch is on the device (models/input.c). */
struct batch_slot {
    float *pixels;             /* (max_samples, C, H, W), MEM_INPUT */
    void *labels;              /* model_answers of max_samples: labels or targets; MEM_INPUT */
    struct event *loaded;      /* recorded after the copy of an announced batch */
    struct event *used;        /* recorded after the last step that read it */
    const struct batch *batch; /* an announced batch whose copy is running, or NULL */
    int epoch, step;           /* position of that batch */
};

/* Pointers and tensors name memory of `device`. */
struct replica {
    struct device *device;     /* borrowed */
    const struct model *model; /* borrowed */
    struct replica_config config;
    /* As in a user's program, owned. params->has_grad is 1 if the parameter contributed to this
     * step's loss. Otherwise its gradient is zero, and it is not updated. */
    duet_params *params;
    duet_optimizer *optimizer; /* NULL: it receives its parameters (DP) */
    struct step_block now;     /* a host copy of *step */
    duet_tape *tape;
    struct step_block *step; /* the step block of params */
    struct batch_slot slot[2];
    int slot_now;  /* the slot that the step reads, with its pixels and labels */
    float *pixels; /* (max_samples, C, H, W), MEM_INPUT */
    void *labels;  /* model_answers of max_samples: labels or targets; MEM_INPUT */
    int global_n;  /* size of the global batch loaded last */

    struct tensor losses; /* F64 (log_rows, log_segments) */
    struct tensor hits;   /* I64 (log_rows, log_segments) */
    /* U64 (log_rows, 2 * parameters + buffers): values first, then gradients, then buffers */
    struct tensor hashes;
    int32_t step_number;        /* the current step's number, for spans */
    int add_grads, more_passes; /* the current pass's, as in its step block */
    enum phase input;           /* phase of its batch's copy, for spans */
};

/* Allocates a replica and waits until it is filled. `values` has param_count host arrays of initial
 * values, or is NULL for zeros (DP's other devices). Buffers start with their initial values.
 * Device and model must outlive the replica. On failure nothing remains allocated. */
int replica_init(struct replica *r, struct device *device, const struct model *model,
                 const struct replica_config *config, float *const *values);
/* Waits for the compute stream, then frees. NULL, zeroed and half-built are fine. */
void replica_free(struct replica *r);

/* Sends the step block, which is copied at once, to the device. The first is for training steps;
 * with the second, this step's loads count as PHASE_EVALUATE or PHASE_PROOF. */
int replica_write_step(struct replica *r, const struct step_block *step);
int replica_write_other(struct replica *r, const struct step_block *step, enum phase phase);

/* Copies a batch to the device, unless it was announced and its copy already runs. Then it begins
 * the copy of batch->next, if that is set, during the kernels of this step. The memory of each
 * batch must stay until events recorded after its load are done. An announced batch must be the
 * next one loaded. ERR_FAILED: more than max_samples. */
int replica_load(struct replica *r, const struct batch *batch);

/* Begins a pass over the first segments->n samples that the replica holds, on its tape and with its
 * parameters. training 1: if config.hashes is set, the values are hashed first, in the step's last
 * pass. training 0: evaluation, in PHASE_EVALUATE. */
int replica_begin(struct replica *r, const struct segments *segments, int training);

/* Begins a pass and runs its forward. The output on the tape is PLAIN (n, classes), or NULL on
 * failure. */
int replica_forward(struct replica *r, const struct segments *segments, int training,
                    duet_var **output);

/* The loss of `output` against the replica's labels (MEAN over the global batch, using
 * step->weight). The sum and the hits of each segment are logged in row step->row. */
int replica_loss(struct replica *r, duet_var *output, int training, duet_var **loss);

/* Replaces forward and loss on a replica without input: logs losses and hits of zero. */
int replica_log_nothing(struct replica *r);

/* Backward from a loss of replica_loss. The reducer of params is notified of each gradient, and
 * sums them after the last pass before an update. */
int replica_backward(struct replica *r, duet_var *loss);

/* The optimizer updates the parameters from their (reduced) gradients. If config.hashes is set, the
 * gradients are hashed first. */
int replica_update(struct replica *r);

/* One pass of a training step, as in the list at the top of this file. */
int replica_step(struct replica *r, const struct step_block *step, const struct batch *batch);

/* A whole evaluation step: step block, load, forward, loss. */
int replica_evaluate(struct replica *r, const struct step_block *step, const struct batch *batch);

/* Hashes the current values and buffers into row step->row, in PHASE_PROOF. Does nothing if
 * config.hashes is 0. */
int replica_hash_values(struct replica *r);

/* Copies rows [0, rows) of the logs to the host and waits. Each pointer may be NULL. */
int replica_read_logs(struct replica *r, int rows, double *losses, int64_t *hits, uint64_t *hashes);

#endif
