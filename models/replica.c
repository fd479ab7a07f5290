/* A model on a device: memory once at the start, then only enqueued work. See replica.h for who
 * calls what. */
#include "models/replica.h"

#include <string.h>

#include "base/error.h"

static int alloc_log(struct replica *r, struct tensor *log, enum dtype dtype, int columns) {
    if (!columns || !r->config.log_rows) return OK;
    *log = tensor_plain(NULL, dtype, 2, (int[2]){r->config.log_rows, columns});
    return device_alloc(r->device, &log->data, tensor_bytes(log), MEM_WORKSPACE);
}

static int alloc_all(struct replica *r) {
    struct device *d = r->device;
    const struct model *m = r->model;
    size_t pixels = (size_t)m->channels * (size_t)m->height * (size_t)m->width;
    size_t samples = (size_t)r->config.max_samples;
    CHECK(param_set_init(&r->params, d, m->params, m->param_count));
    if (r->config.optimizer) CHECK(optimizer_init(&r->optimizer, &r->params, &r->config.update));
    CHECK(tape_init(&r->tape, d));
    CHECK(device_alloc(d, (void **)&r->step, sizeof *r->step, MEM_WORKSPACE));
    CHECK(device_alloc(d, (void **)&r->pixels, samples * pixels * sizeof(float), MEM_INPUT));
    CHECK(device_alloc(d, (void **)&r->labels, samples * sizeof(int32_t), MEM_INPUT));
    CHECK(alloc_log(r, &r->losses, DTYPE_F64, r->config.log_segments));
    CHECK(alloc_log(r, &r->hits, DTYPE_I64, r->config.log_segments));
    return alloc_log(r, &r->hashes, DTYPE_U64, r->config.hashes ? 2 * m->param_count : 0);
}

int replica_init(struct replica *r, struct device *device, const struct model *model,
                 const struct replica_config *config, float *const *values) {
    memset(r, 0, sizeof *r);
    r->device = device;
    r->model = model;
    r->config = *config;
    r->input = PHASE_INPUT;
    int code = alloc_all(r);
    if (!code)
        recorded_init(&r->recorded, device, r->tape, &r->params,
                      config->graph && !model->collective_inside);
    for (int i = 0; values && !code && i < model->param_count; i++)
        code = param_write_value(&r->params, i, values[i]);
    if (!code) code = stream_sync(device_compute(device));
    if (code) replica_free(r);
    return code;
}

void replica_free(struct replica *r) {
    if (!r || !r->device) return;
    /* the device must be idle; its errors were told to whoever asked */
    stream_sync(device_compute(r->device));
    recorded_free(&r->recorded);
    param_set_free(&r->params);
    optimizer_free(&r->optimizer);
    tape_free(r->tape);
    device_free(r->device, r->step);
    device_free(r->device, r->pixels);
    device_free(r->device, r->labels);
    device_free(r->device, r->samples);
    device_free(r->device, r->losses.data);
    device_free(r->device, r->hits.data);
    device_free(r->device, r->hashes.data);
    memset(r, 0, sizeof *r);
}

/* The number of the step being worked on is kept with the stream, for its spans. */
static struct stream *enter(struct replica *r, enum phase phase) {
    struct stream *stream = device_compute(r->device);
    stream_set_phase(stream, phase, r->step_number);
    return stream;
}

void replica_begin_step(struct replica *r, uint64_t step, enum phase input) {
    r->step_number = (int32_t)step;
    r->input = input;
}

int replica_write_other(struct replica *r, const struct step_block *step, enum phase phase) {
    replica_begin_step(r, step->step, phase);
    return stream_write(enter(r, phase), r->step, step, sizeof *step);
}

int replica_write_step(struct replica *r, const struct step_block *step) {
    return replica_write_other(r, step, PHASE_INPUT);
}

static int check_samples(const struct replica *r, const char *what, int n) {
    if (n >= 0 && n <= r->config.max_samples) return OK;
    return fail(ERR_FAILED, "%s: %d samples: the input buffer of %s holds %d", what, n,
                device_name(r->device), r->config.max_samples);
}

int replica_load(struct replica *r, const float *pixels, const int32_t *labels, int n) {
    const struct model *m = r->model;
    size_t sample = (size_t)m->channels * (size_t)m->height * (size_t)m->width;
    struct stream *stream = enter(r, r->input);
    r->waiting = NULL;
    CHECK(check_samples(r, "load", n));
    CHECK(copy_to_device(stream, r->pixels, pixels, (size_t)n * sample * sizeof *pixels));
    return labels ? copy_to_device(stream, r->labels, labels, (size_t)n * sizeof *labels) : OK;
}

int replica_load_samples(struct replica *r, const struct device_dataset *from,
                         const int32_t *samples, int n) {
    size_t room = (size_t)r->config.max_samples * sizeof *samples;
    struct stream *stream = enter(r, r->input);
    CHECK(check_samples(r, "load", n));
    if (!r->samples) CHECK(device_alloc(r->device, (void **)&r->samples, room, MEM_INPUT));
    CHECK(copy_to_device(stream, r->samples, samples, (size_t)n * sizeof *samples));
    r->waiting = from;
    return OK;
}

int replica_make_rows(struct replica *r, int n) {
    const struct model *m = r->model;
    const struct device_dataset *from = r->waiting;
    const int shape[4] = {n, m->channels, m->height, m->width};
    if (!from) return OK;
    r->waiting = NULL;
    struct tensor samples = tensor_plain(r->samples, DTYPE_I32, 1, &n),
                  x = tensor_plain(r->pixels, DTYPE_F32, 4, shape),
                  labels = tensor_plain(r->labels, DTYPE_I32, 1, &n);
    return device_dataset_gather(from, enter(r, r->input), &samples, m->mean,
                                 m->normalised ? m->std : 0, &x, &labels);
}

int replica_forward(struct replica *r, const struct segments *segments, int training,
                    struct var **output) {
    const struct model *m = r->model;
    *output = NULL;
    enter(r, training ? PHASE_FORWARD : PHASE_EVALUATE);
    CHECK(check_samples(r, "forward", segments->n));
    struct tape_step step = {
        .segments = segments, .params = &r->params, .step = r->step, .training = training};
    CHECK(tape_begin(r->tape, &step));
    const int shape[4] = {segments->n, m->channels, m->height, m->width};
    struct tensor pixels = tensor_plain(r->pixels, DTYPE_F32, 4, shape);
    *output = m->forward(m, r->tape, r->params.param, tape_leaf(r->tape, &pixels, 0));
    return tape_error(r->tape);
}

int replica_loss(struct replica *r, struct var *output, int training, struct var **loss) {
    enter(r, training ? PHASE_LOSS : PHASE_EVALUATE);
    struct tensor labels = tensor_plain(r->labels, DTYPE_I32, 1, &r->config.max_samples);
    *loss = model_loss(r->model, r->tape, output, &labels);
    CHECK(tape_error(r->tape));
    return tape_log_loss(r->tape, *loss, &r->losses, &r->hits);
}

int replica_backward(struct replica *r, struct var *root, const struct tensor *root_grad) {
    enter(r, PHASE_BACKWARD);
    return tape_backward(r->tape, root, root_grad);
}

int replica_update(struct replica *r) {
    enter(r, PHASE_OPTIMIZER);
    return optimizer_step(&r->optimizer, &r->params, r->step);
}

static int hash(struct replica *r, const struct tensor *x, int column) {
    struct op_args args = {.in[0] = *x, .out[0] = r->hashes, .step = r->step, .p.hash = {column}};
    return launch(device_compute(r->device), OP_HASH, &args);
}

int replica_hash_values(struct replica *r) {
    if (!r->config.hashes) return OK;
    enter(r, PHASE_PROOF);
    for (int i = 0; i < r->params.count; i++)
        CHECK(hash(r, &r->params.param[i].value, i));
    return OK;
}

int replica_hash_grads(struct replica *r) {
    if (!r->config.hashes) return OK;
    enter(r, PHASE_PROOF);
    for (int i = 0; i < r->params.count; i++)
        CHECK(hash(r, &r->params.param[i].grad, r->params.count + i));
    return OK;
}

/* ---- recorded ---- */

struct work {
    struct replica *replica;
    const struct segments *segments;
};

static int train(void *context) {
    struct work *w = context;
    struct replica *r = w->replica;
    struct var *output, *loss;
    CHECK(replica_make_rows(r, w->segments->n));
    CHECK(replica_hash_values(r));
    CHECK(replica_forward(r, w->segments, 1, &output));
    CHECK(replica_loss(r, output, 1, &loss));
    return replica_backward(r, loss, NULL);
}

static int evaluate(void *context) {
    struct work *w = context;
    struct var *output, *loss;
    CHECK(replica_make_rows(w->replica, w->segments->n));
    CHECK(replica_forward(w->replica, w->segments, 0, &output));
    return replica_loss(w->replica, output, 0, &loss);
}

static int finish(void *replica) {
    CHECK(replica_hash_grads(replica));
    return replica_update(replica);
}

/* What waits for make_rows is done with behind a replay too, which has made them. */
static int run(struct replica *r, int kind, const char *name, recorded_body *body,
               const struct segments *segments) {
    struct recorded_key key = {.kind = kind, .source = r->waiting, .segments = *segments};
    struct work work = {r, segments};
    enter(r, kind == WORK_TRAIN ? PHASE_FORWARD : PHASE_EVALUATE);
    int code = recorded_run(&r->recorded, &key, name, body, &work);
    r->waiting = NULL;
    return code;
}

int replica_train(struct replica *r, const struct segments *segments) {
    return run(r, WORK_TRAIN, "forward and backward", train, segments);
}

int replica_evaluate(struct replica *r, const struct segments *segments) {
    return run(r, WORK_EVALUATE, "forward", evaluate, segments);
}

int replica_finish(struct replica *r) {
    const struct recorded_key key = {.kind = WORK_UPDATE};
    enter(r, PHASE_OPTIMIZER);
    return recorded_run(&r->recorded, &key, "optimizer", finish, r);
}

static int read_log(struct replica *r, const struct tensor *log, int rows, void *host) {
    if (!host || !log->data) return OK;
    size_t bytes = (size_t)rows * (size_t)log->dims[1] * dtype_bytes(log->dtype);
    return copy_to_host(enter(r, PHASE_NONE), host, log->data, bytes);
}

int replica_read_logs(struct replica *r, int rows, double *losses, int64_t *hits,
                      uint64_t *hashes) {
    if (rows < 0 || rows > r->config.log_rows)
        return fail(ERR_FAILED, "logs: %d rows: %s keeps %d", rows, device_name(r->device),
                    r->config.log_rows);
    CHECK(read_log(r, &r->losses, rows, losses));
    CHECK(read_log(r, &r->hits, rows, hits));
    CHECK(read_log(r, &r->hashes, rows, hashes));
    return stream_sync(device_compute(r->device));
}
