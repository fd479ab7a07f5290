/* A replica allocates its memory once, at the start, and afterwards only enqueues work. replica.h
 * shows a step. */
#include "models/replica.h"

#include <string.h>

#include "base/error.h"
#include "models/replica_internal.h"
#include "nn/params/optimizer.h"

static int alloc_log(struct replica *r, struct tensor *log, enum dtype dtype, int columns) {
    if (!columns || !r->config.log_rows) return OK;
    *log = tensor_plain(NULL, dtype, 2, (int[2]){r->config.log_rows, columns});
    return device_alloc(r->device, &log->data, tensor_bytes(log), MEM_WORKSPACE);
}

static int alloc_all(struct replica *r, float *const *values) {
    struct device *d = r->device;
    const struct model *m = r->model;
    int segments = r->config.sharded ? 0 : r->config.passes > 1 ? r->config.pass_segments : 1;
    CHECK(params_create(&r->params, d, m->params, m->param_count, segments ? values : NULL,
                        segments));
    CHECK(params_register(r->params, m->buffers, m->buffer_count));
    if (r->config.optimizer)
        CHECK(optimizer_of_params(&r->optimizer, r->params, &r->config.update));
    CHECK(tape_init(&r->tape, d));
    tape_set_hook(r->tape, pass_note_ready, r->tape);
    r->step = r->params->step;
    CHECK(replica_make_input(r));
    CHECK(alloc_log(r, &r->losses, DTYPE_F64, r->config.log_segments));
    CHECK(alloc_log(r, &r->hits, DTYPE_I64, r->config.log_segments));
    return alloc_log(r, &r->hashes, DTYPE_U64, r->config.hashes ? model_hashes(m) : 0);
}

int replica_init(struct replica *r, struct device *device, const struct model *model,
                 const struct replica_config *config, float *const *values) {
    memset(r, 0, sizeof *r);
    r->device = device;
    r->model = model;
    r->config = *config;
    r->input = PHASE_INPUT;
    int code = alloc_all(r, values);
    if (!code) code = stream_sync(device_compute(device));
    if (code) replica_free(r);
    return code;
}

void replica_free(struct replica *r) {
    if (!r || !r->device) return;
    /* the device must be idle; an earlier call has returned any error of the stream */
    stream_sync(device_copy(r->device));
    stream_sync(device_compute(r->device));
    duet_optimizer_free(r->optimizer);
    duet_params_free(r->params);
    duet_tape_free(r->tape);
    replica_free_input(r);
    device_free(r->device, r->losses.data);
    device_free(r->device, r->hits.data);
    device_free(r->device, r->hashes.data);
    memset(r, 0, sizeof *r);
}

int replica_write_other(struct replica *r, const struct step_block *step, enum phase phase) {
    int passes = r->config.passes > 1 ? r->config.passes : 1;
    r->step_number = (int32_t)(step->step / (uint64_t)passes);
    r->add_grads = step->add_grads;
    r->more_passes = step->more_passes;
    r->now = *step;
    r->input = phase;
    return stream_write(replica_phase(r, phase), r->step, step, sizeof *step);
}

int replica_write_step(struct replica *r, const struct step_block *step) {
    return replica_write_other(r, step, PHASE_INPUT);
}

/* ---- the parts of a step ---- */

static int hash(struct replica *r, const struct tensor *x, int column) {
    struct op_args args = {.in[0] = *x, .out[0] = r->hashes, .step = r->step, .p.hash = {column}};
    return launch(device_compute(r->device), OP_HASH, &args);
}

/* A buffer's bytes count as floats, whatever its elements are. */
static int hash_buffer(struct replica *r, int i) {
    const struct buffer *b = &r->params->buffers.buffer[i];
    int count = (int)(buffer_spec_bytes(b->spec) / sizeof(float));
    struct tensor bytes = tensor_plain(b->value.data, DTYPE_F32, 1, &count);
    return hash(r, &bytes, 2 * r->params->set.count + i);
}

int replica_hash_values(struct replica *r) {
    if (!r->config.hashes) return OK;
    replica_phase(r, PHASE_PROOF);
    for (int i = 0; i < r->params->set.count; i++) {
        CHECK(param_bring(&r->params->set, i, 0));
        CHECK(hash(r, &r->params->set.param[i].value, i));
    }
    for (int i = 0; i < r->params->buffers.count; i++)
        CHECK(hash_buffer(r, i));
    return OK;
}

static int hash_grads(struct replica *r) {
    if (!r->config.hashes) return OK;
    replica_phase(r, PHASE_PROOF);
    for (int i = 0; i < r->params->set.count; i++) {
        CHECK(param_bring(&r->params->set, i, 1));
        CHECK(hash(r, &r->params->set.param[i].grad, r->params->set.count + i));
    }
    return OK;
}

static struct tape_step step_of(const struct replica *r, const struct segments *segments,
                                int training) {
    return (struct tape_step){.segments = segments,
                              .step = r->step,
                              .training = training,
                              .add_grads = training && r->add_grads,
                              .more_passes = training && r->more_passes,
                              .global_n = r->global_n,
                              .once = 1,
                              .number = (int64_t)r->now.step};
}

/* DDP: rank 0's buffers come, and in training the buckets are empty again. */
static int enter_pass(struct replica *r, const struct segments *segments, int training) {
    const struct tape_step step = step_of(r, segments, training);
    return pass_enter(r->params, &step, r->step_number);
}

int replica_begin(struct replica *r, const struct segments *segments, int training) {
    const struct tape_step step = step_of(r, segments, training);
    CHECK(replica_check_samples(r, "forward", segments->n));
    if (training && !r->more_passes) CHECK(replica_hash_values(r));
    replica_phase(r, training ? PHASE_FORWARD : PHASE_EVALUATE);
    return pass_begin(r->tape, r->params, &step);
}

int replica_forward(struct replica *r, const struct segments *segments, int training,
                    duet_var **output) {
    const struct model *m = r->model;
    const int shape[4] = {segments->n, m->channels, m->height, m->width};
    *output = NULL;
    CHECK(replica_begin(r, segments, training));
    struct tensor pixels = tensor_plain(r->pixels, DTYPE_F32, 4, shape);
    *output = model_forward(m, r->tape, &r->params->buffers, tape_leaf(r->tape, &pixels, 0));
    return tape_error(r->tape);
}

int replica_loss(struct replica *r, duet_var *output, int training, duet_var **loss) {
    replica_phase(r, training ? PHASE_LOSS : PHASE_EVALUATE);
    struct tensor labels = model_answers(r->model, r->labels, r->config.max_samples);
    *loss = model_loss(r->model, r->tape, output, &labels);
    CHECK(tape_error(r->tape));
    return tape_log_loss(r->tape, *loss, &r->losses, &r->hits);
}

int replica_log_nothing(struct replica *r) {
    const int none = 0;
    replica_phase(r, PHASE_LOSS);
    for (int s = 0; r->losses.data && s < r->losses.dims[1]; s++) {
        struct op_args args = {.in[0] = tensor_plain(r->pixels, DTYPE_F64, 1, &none),
                               .in[1] = tensor_plain(r->labels, DTYPE_I32, 1, &none),
                               .out = {r->losses, r->hits},
                               .step = r->step,
                               .p.loss = {.column = s}};
        CHECK(launch(device_compute(r->device), OP_LOSS_SUM, &args));
    }
    return OK;
}

int replica_backward(struct replica *r, duet_var *loss) {
    replica_phase(r, PHASE_BACKWARD);
    return duet_backward(r->tape, loss, NULL);
}

int replica_update(struct replica *r) {
    CHECK(hash_grads(r));
    replica_phase(r, PHASE_OPTIMIZER);
    return optimizer_update(r->optimizer, &r->now);
}

/* With DDP, full buckets are summed during backward; after it the stream waits for the last. */
int replica_step(struct replica *r, const struct step_block *step, const struct batch *batch) {
    duet_var *output, *loss;
    CHECK(replica_write_step(r, step));
    CHECK(replica_load(r, batch));
    CHECK(enter_pass(r, &batch->segments, 1));
    CHECK(replica_forward(r, &batch->segments, 1, &output));
    CHECK(replica_loss(r, output, 1, &loss));
    CHECK(replica_backward(r, loss));
    return r->more_passes ? OK : replica_update(r);
}

int replica_evaluate(struct replica *r, const struct step_block *step, const struct batch *batch) {
    duet_var *output, *loss;
    CHECK(replica_write_other(r, step, PHASE_EVALUATE));
    CHECK(replica_load(r, batch));
    CHECK(enter_pass(r, &batch->segments, 0));
    CHECK(replica_forward(r, &batch->segments, 0, &output));
    return replica_loss(r, output, 0, &loss);
}

/* ---- logs ---- */

static int read_log(struct replica *r, const struct tensor *log, int rows, void *host) {
    if (!host || !log->data) return OK;
    size_t bytes = (size_t)rows * (size_t)log->dims[1] * dtype_bytes(log->dtype);
    return copy_to_host(replica_phase(r, PHASE_NONE), host, log->data, bytes);
}

int replica_read_logs(struct replica *r, int rows, double *losses, int64_t *hits,
                      uint64_t *hashes) {
    if (rows < 0 || rows > r->config.log_rows)
        return fail(ERR_FAILED, "logs: %d rows wanted: %s keeps %d", rows, device_name(r->device),
                    r->config.log_rows);
    CHECK(read_log(r, &r->losses, rows, losses));
    CHECK(read_log(r, &r->hits, rows, hits));
    CHECK(read_log(r, &r->hashes, rows, hashes));
    return stream_sync(device_compute(r->device));
}
