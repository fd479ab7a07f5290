/* Replica: one model on one device with everything a step needs; what single, DP and DDP have in
 * common.
 *
 *     single, DDP:   write_step, load, (make_rows,) forward, loss, backward, (allreduce by DDP), update
 *     DP, device 0:  write_step, load, [scatter], forward, [gather], loss, [scatter dL/dy], backward, [reduce],
 *                    update
 *     DP, others:    forward and backward only, on what was scattered and replicated to them
 *
 * Everything is enqueued on the device's compute stream; each function sets the stream's phase.
 * What a step enqueues between load and update may be recorded once and replayed:
 * models/recorded.h. */
#ifndef MODELS_REPLICA_H
#define MODELS_REPLICA_H

#include "data/device_dataset.h"
#include "models/model.h"
#include "models/recorded.h"
#include "nn/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

struct replica_config {
    int max_samples; /* capacity of the input buffers, in samples */
    int log_rows;    /* steps that the logs hold before the host must read them */
    /* columns of the loss log: segments of the batch whose loss is made here; 0: no loss here */
    int log_segments;
    int hashes; /* 1: hash values and gradients every step (the proof of equal bits) */
    /* 1: this replica updates its parameters; 0: they are replicated to it (DP) */
    int optimizer;
    struct optimizer_config update; /* how, where it does */
    int graph; /* 1: steps are recorded and replayed where device and model allow it */
};

struct replica {
    struct device *device;
    const struct model *model;
    struct replica_config config;
    struct param_set params;
    struct optimizer optimizer;
    struct tape *tape;
    struct step_block *step; /* device memory */
    float *pixels;           /* device memory, MEM_INPUT: (max_samples, C, H, W) */
    int32_t *labels;         /* device memory, MEM_INPUT: (max_samples) */
    /* device memory, MEM_INPUT: (max_samples); made with the first load_samples */
    int32_t *samples;
    const struct device_dataset *waiting; /* load_samples has come, make_rows has not */
    struct tensor losses;                 /* F64 (log_rows, log_segments), device memory */
    struct tensor hits;                   /* I64 (log_rows, log_segments) */
    struct tensor hashes; /* U64 (log_rows, 2 * parameters): values first, then gradients */
    int32_t step_number;  /* of the step being worked on, */
    enum phase input;     /* and the phase of what is brought in for it: both for spans */
    struct recorded recorded;
};

/* What a replica records (recorded_key.kind). */
enum { WORK_TRAIN, WORK_EVALUATE, WORK_UPDATE };

/* Allocates all of it and waits until it is filled. values: param_count host arrays to start
 * from, or NULL (zeros: DP's other devices). The model must outlive the replica. On failure
 * nothing is left. */
int replica_init(struct replica *r, struct device *device, const struct model *model,
                 const struct replica_config *config, float *const *values);
/* NULL, zeroed and half-built are fine; waits for the compute stream */
void replica_free(struct replica *r);

/* The step block comes to the device: a host value, captured at the call. What is brought in
 * from here on counts as input of a training step; with write_other as `phase`: PHASE_EVALUATE
 * or PHASE_PROOF. begin_step alone: only spans know. */
int replica_write_step(struct replica *r, const struct step_block *step);
int replica_write_other(struct replica *r, const struct step_block *step, enum phase phase);
void replica_begin_step(struct replica *r, uint64_t step, enum phase input);

/* Copies a batch from host memory; the memory must stay until an event recorded afterwards is done.
 * labels may be NULL where no loss is computed. n <= max_samples. */
int replica_load(struct replica *r, const float *pixels, const int32_t *labels, int n);

/* The same where the data set lies on this device: only the numbers of the samples travel, of
 * the host's memory under the same rule. make_rows enqueues their pixels and labels, once:
 * called by train and evaluate below, so that it is recorded with them, or by whoever needs the
 * rows before (DP's scatter). n must be the batch's. */
int replica_load_samples(struct replica *r, const struct device_dataset *from,
                         const int32_t *samples, int n);
int replica_make_rows(struct replica *r, int n);

/* Forward over the first segments->n samples of r->pixels; the output is PLAIN (n, classes), on
 * the tape. training 0: evaluation. phase: PHASE_FORWARD or PHASE_EVALUATE. */
int replica_forward(struct replica *r, const struct segments *segments, int training,
                    struct var **output);

/* Loss (MEAN over the global batch by step->weight) of `output` against r->labels; each
 * segment's sum and hits are logged to row step->slot. training 0: PHASE_EVALUATE. */
int replica_loss(struct replica *r, struct var *output, int training, struct var **loss);

/* Backward from a loss of replica_loss, or from an output with its gradient dL/dy. Hooks fire on
 * the way. */
int replica_backward(struct replica *r, struct var *root, const struct tensor *root_grad);

int replica_update(struct replica *r); /* the optimizer, PHASE_OPTIMIZER */

/* The same in one call, recorded and replayed where that is on (models/recorded.h). train:
 * make_rows, hash_values, forward, loss, backward. evaluate: make_rows, forward, loss. finish:
 * hash_grads, update. */
int replica_train(struct replica *r, const struct segments *segments);
int replica_evaluate(struct replica *r, const struct segments *segments);
int replica_finish(struct replica *r);

/* Nothing where config.hashes is 0. Values: call before forward (DP: after replicate), on every
 * device. Gradients: after reduction, before update, on every device that holds one. Phase
 * PROOF. */
int replica_hash_values(struct replica *r);
int replica_hash_grads(struct replica *r);

/* Host copies of rows [0, rows) of the logs; synchronous. Pointers may be NULL. */
int replica_read_logs(struct replica *r, int rows, double *losses, int64_t *hits, uint64_t *hashes);

#ifdef __cplusplus
}
#endif
#endif
