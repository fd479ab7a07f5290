/* The beginning and the end of DataParallel of the command: replicas, and the memory of the output
 * device. */
#include <stdlib.h>

#include "base/error.h"
#include "dp/trainer_state.h"

static const double JOIN_GRACE_S = 5;

static int check(const struct dp_trainer_config *c) {
    CHECK(dp_check_devices(c->devices, c->output_device));
    if (c->segments < c->devices || c->segments > MAX_DEVICES || c->segments % c->devices)
        return fail(ERR_USAGE,
                    "DataParallel: %d segments over %d devices: give a multiple, at most %d",
                    c->segments, c->devices, MAX_DEVICES);
    if (c->max_samples < 1 || c->log_rows < 1)
        return fail(ERR_USAGE,
                    "DataParallel: batches of %d samples, logs of %d rows: give at least 1 each",
                    c->max_samples, c->log_rows);
    return OK;
}

/* Device 0 holds the whole batch. Another device never gets more than k segments of ceil(batch / S)
 * samples each. */
static int init_replica(struct dp_trainer *t, const struct dp_trainer_config *c, int r) {
    int k = c->segments / c->devices, most = (c->max_samples + c->segments - 1) / c->segments * k;
    struct replica_config config = {
        .max_samples = r ? most : c->max_samples,
        .log_rows = c->log_rows,
        .log_segments = r == c->output_device ? c->segments
                        : t->own_loss         ? k
                                              : 0,
        .hashes = c->hashes,
        .passes = c->passes,
        .pass_segments = k,
        .optimizer = r == 0,
        .update = c->update,
        .blocking_copies = c->blocking_copies,
        .graph = c->graph,
    };
    CHECK(replica_init(&t->replica[r], c->device[r], c->model, &config, r ? NULL : c->values));
    if (r == c->output_device || t->own_loss) return OK;
    return device_alloc(c->device[r], (void **)&t->grad_share[r],
                        (size_t)most * (size_t)c->model->classes * sizeof(float), MEM_ACTIVATIONS);
}

static int init_loss(struct dp_trainer *t, const struct dp_trainer_config *c) {
    struct device *output = t->output_device;
    struct tensor labels = model_answers(c->model, NULL, c->max_samples);
    if (t->own_loss) return OK;
    t->gathered = tensor_plain(NULL, DTYPE_F32, 2, (int[]){c->max_samples, c->model->classes});
    CHECK(device_alloc(output, &t->gathered.data, tensor_bytes(&t->gathered), MEM_GATHERED));
    if (c->output_device > 0)
        CHECK(device_alloc(output, &t->labels, tensor_bytes(&labels), MEM_INPUT));
    CHECK(tape_init(&t->loss_tape, output));
    tape_set_cause(t->loss_tape, MEM_GATHERED); /* dL/dy and the losses of the gathered rows */
    recorded_watch(&t->replica[c->output_device].recorded, t->loss_tape);
    return OK;
}

/* The waits inside a replica end before the wait for it, so that the error says which it was. */
static int init_engine(struct dp_trainer *t, const struct dp_trainer_config *c) {
    duet_params *params[MAX_DEVICES];
    for (int r = 0; r < c->devices; r++)
        params[r] = t->replica[r].params;
    const struct dp_config config = {
        .devices = c->devices,
        .device = c->device,
        .params = params,
        .output_device = c->output_device,
        .sharded_reduce = c->sharded_reduce,
        .forward = dp_trainer_forward,
        .backward = dp_trainer_backward,
        .context = t,
        .timeout_s = (c->timeout_s > 0 ? c->timeout_s : DP_TIMEOUT_S) + JOIN_GRACE_S,
        .spans = device_config(c->device[0])->spans,
    };
    return dp_init(&t->dp, &config);
}

int dp_trainer_init(struct dp_trainer **out, const struct dp_trainer_config *c) {
    int code = OK;
    *out = NULL;
    CHECK(check(c));
    struct dp_trainer *t = calloc(1, sizeof *t);
    if (!t) return fail(ERR_MEMORY, "DataParallel: no host memory");
    t->segments = c->segments;
    t->output_device = c->device[c->output_device];
    t->own_loss = c->loss_in_forward || c->devices == 1;
    for (int r = 0; r < c->devices; r++)
        CHECK_GOTO(init_replica(t, c, r), code, failed);
    CHECK_GOTO(init_loss(t, c), code, failed);
    CHECK_GOTO(init_engine(t, c), code, failed);
    *out = t;
    return OK;

failed:
    dp_trainer_free(t);
    return code;
}

int dp_trainer_free(struct dp_trainer *t) {
    if (!t) return 1;
    if (!dp_free(&t->dp)) return 0;
    duet_tape_free(t->loss_tape);
    device_free(t->output_device, t->gathered.data);
    device_free(t->output_device, t->labels);
    for (int r = 0; r < MAX_DEVICES; r++) {
        if (!t->replica[r].device) continue;
        device_free(t->replica[r].device, t->grad_share[r]);
        replica_free(&t->replica[r]);
    }
    free(t);
    return 1;
}
