/* Shared by the tests of DDP: a job of real processes that train, and its results in shared memory.
 *
 * The test fills in a struct job, launches run_rank (or a variant of it) on every rank, and
 * reads job->out. Ranks draw the same data from the same seed and take their shares by the rule
 * of docs/design.md section 2.
 */
#ifndef TESTS_DDP_JOB_H
#define TESTS_DDP_JOB_H

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "ddp/ddp.h"
#include "models/replica.h"
#include "tests/ddp/indices.h"
#include "tests/harness/ranks.h"

enum { WORLD_MOST = 4, STEPS_MOST = 8, PIXELS = 28 * 28, PARAMS_MOST = 16 };

/* One rank's results. */
struct rank_out {
    int code;
    char text[600];
    int64_t ended_ns;
    char sizes[2][200], indices[2][200]; /* buckets of the first and of the last step */
    uint64_t hashes[STEPS_MOST][2 * PARAMS_MOST];
    uint64_t into[WORLD_MOST]; /* bytes from device i during ddp_init */
};

struct job {
    int world, v;                 /* v: virtual devices, 0: as many as ranks */
    int steps, batch, last_batch; /* global batch; that of the last step, 0: the same */
    const char *model;
    int hidden_count, hidden[3]; /* mlp */
    struct ddp_config config;
    enum device_kind kind;
    int spans, seed_per_rank;
    int comm_first;   /* 1: the communication stream is the first to be waited for after a step */
    int one_looks;    /* 1: rank 0 alone waits for the end of each step */
    double timeout_s; /* of comm; 0: 10 */
    uint64_t memory;  /* 0: 64 MiB */
    void (*change_model)(struct model *model, int rank);                       /* NULL: none */
    int (*before_ddp)(const struct job *job, struct device *device, int rank); /* NULL: none */
    struct rank_out *out;                                                      /* [world], shared */
    float *grads;        /* [world][steps][elements of the model], shared; NULL: do not read them */
    float *first_values; /* [world][elements], shared, after ddp_init; NULL: do not read them */
    size_t elements;
};

/* Objects that a rank has open. */
struct worker {
    struct comm *comm;
    struct device *device;
    struct model model;
    struct replica replica;
    struct duet_ddp *ddp;
    float *pixels;
    int32_t *labels;
};

static inline struct job job_default(void) {
    struct job job = {.world = 2,
                      .steps = 3,
                      .batch = 12,
                      .model = "mlp",
                      .hidden_count = 2,
                      .hidden = {64, 32, 24},
                      .config = ddp_config_default()};
    job.config.bucket_cap_mb = 0.001; /* three buckets: a layer each */
    return job;
}

static inline int open_model(const struct job *job, struct model *model, int rank) {
    struct model_options options = {.dropout = -1, .hidden_count = job->hidden_count};
    memcpy(options.hidden, job->hidden, sizeof job->hidden);
    CHECK(model_open(model, job->model, &options));
    if (job->change_model) job->change_model(model, rank);
    return OK;
}

/* The summed gradients that a rank saw in a step. */
static inline float *grads_of(const struct job *job, int rank, int step) {
    return job->grads + ((size_t)rank * (size_t)job->steps + (size_t)step) * job->elements;
}

/* ---- data: the same on every rank ---- */

static inline int batch_of(const struct job *job, int step) {
    return step + 1 == job->steps && job->last_batch ? job->last_batch : job->batch;
}

/* Each sample, p of step s, is drawn from a stream of random numbers of its own. */
static inline void draw_sample(int step, int p, float *pixels, int32_t *label) {
    struct rng engine;
    rng_seed(&engine, 1000 * (uint64_t)step + (uint64_t)p);
    rng_uniform(&engine, pixels, PIXELS, -1, 1);
    *label = (int32_t)(rng_u32(&engine) % 10);
}

/* The share of device r of w: the segments v = r, r + w, ... below V, positions p mod V = v. */
static inline void draw_share(const struct job *job, int step, int r, int w, float *pixels,
                              int32_t *labels, struct segments *segments) {
    int v_count = job->v ? job->v : job->world, batch = batch_of(job, step);
    memset(segments, 0, sizeof *segments);
    for (int v = r; v < v_count; v += w) {
        struct segment *segment = &segments->seg[segments->count++];
        segment->v = v;
        for (int p = v; p < batch; p += v_count, segment->n++, segments->n++)
            draw_sample(step, p, pixels + (size_t)segments->n * PIXELS, &labels[segments->n]);
    }
}

static inline struct step_block step_of(const struct job *job, int step) {
    struct step_block block = {.step = (uint64_t)step,
                               .weight = 1.0f / (float)batch_of(job, step),
                               .learning_rate = 0.5f,
                               .first_update = step == 0,
                               .row = step};
    return block;
}

/* ---- a rank ---- */

static inline int worker_model(struct worker *w, const struct job *job, int rank) {
    struct device_config device = {.kind = job->kind,
                                   .index = rank,
                                   .rank = rank,
                                   .memory_bytes = job->memory ? job->memory : 64 << 20,
                                   .check_operands = 1,
                                   .spans = job->spans,
                                   /* longer than that of comm, whose error says what is missing */
                                   .timeout_s = 20};
    struct replica_config replica = {.max_samples = job->batch,
                                     .log_rows = job->steps,
                                     .log_segments = job->v ? job->v : 1,
                                     .hashes = 1,
                                     .optimizer = 1,
                                     .update.momentum = 0.9};
    float **values;
    CHECK(open_model(job, &w->model, rank));
    CHECK(device_open(&w->device, &device));
    CHECK(model_values_init(&w->model, job->seed_per_rank ? 7 + (uint64_t)rank : 7, &values));
    int code = replica_init(&w->replica, w->device, &w->model, &replica, values);
    model_values_free(values);
    /* room for all steps, so that no batch is overwritten */
    size_t samples = (size_t)job->steps * (size_t)job->batch;
    w->pixels = calloc(samples * PIXELS, sizeof *w->pixels);
    w->labels = calloc(samples, sizeof *w->labels);
    return code ? code : w->pixels && w->labels ? OK : fail(ERR_MEMORY, "no memory for the batch");
}

static inline int worker_open(struct worker *w, const struct job *job) {
    struct comm_options options = {.timeout_s = job->timeout_s ? job->timeout_s : 10};
    memset(w, 0, sizeof *w);
    CHECK(comm_open(&w->comm, &options));
    int rank = comm_rank(w->comm), code = worker_model(w, job, rank);
    if (!code && job->before_ddp) code = job->before_ddp(job, w->device, rank);
    if (code) comm_abort(w->comm, code, error_message()); /* from here on ddp aborts */
    return code ? code : ddp_init(&w->ddp, w->comm, w->replica.params, NULL, &job->config);
}

static inline void worker_free_ddp(struct worker *w) {
    duet_ddp_free(w->ddp);
    w->ddp = NULL;
}

static inline void worker_close(struct worker *w) {
    worker_free_ddp(w);
    replica_free(&w->replica);
    device_close(w->device);
    model_free(&w->model);
    comm_close(w->comm);
    free(w->pixels);
    free(w->labels);
}

/* All values or all gradients, parameter by parameter in registration order. */
static inline int read_all(struct replica *r, int grads, float *to) {
    for (int i = 0; i < r->params->set.count; to += r->params->set.param[i++].count)
        CHECK(grads ? param_read_grad(&r->params->set, i, to)
                    : param_read_value(&r->params->set, i, to));
    return OK;
}

static inline void note_buckets(struct worker *w, struct rank_out *out, int which) {
    bucket_sizes(ddp_buckets(w->ddp), out->sizes[which], sizeof out->sizes[which]);
    bucket_indices(ddp_buckets(w->ddp), out->indices[which], sizeof out->indices[which]);
}

static inline int train(struct worker *w, const struct job *job) {
    int rank = comm_rank(w->comm);
    struct rank_out *out = &job->out[rank];
    for (int i = 0; i < WORLD_MOST; i++)
        out->into[i] = device_traffic(w->device)->bytes[i][rank];
    if (job->first_values)
        CHECK(read_all(&w->replica, 0, job->first_values + (size_t)rank * job->elements));
    for (int s = 0; s < job->steps; s++) {
        struct step_block block = step_of(job, s);
        float *pixels = w->pixels + (size_t)s * (size_t)job->batch * PIXELS;
        int32_t *labels = w->labels + (size_t)s * (size_t)job->batch;
        struct batch batch = {.pixels = pixels, .labels = labels};
        draw_share(job, s, rank, job->world, pixels, labels, &batch.segments);
        CHECK(replica_step(&w->replica, &block, &batch));
        if (job->one_looks && rank == 0) CHECK(stream_sync(device_compute(w->device)));
        if (job->comm_first) CHECK(stream_sync(device_comm(w->device)));
        if (s == 0 || s + 1 == job->steps) note_buckets(w, out, s != 0);
        if (job->grads) CHECK(read_all(&w->replica, 1, grads_of(job, rank, s)));
    }
    uint64_t *hashes = calloc((size_t)job->steps * 2 * PARAMS_MOST, sizeof *hashes);
    int code = replica_read_logs(&w->replica, job->steps, NULL, NULL, hashes);
    size_t row = 2 * (size_t)w->model.param_count;
    for (int s = 0; s < job->steps; s++)
        memcpy(out->hashes[s], hashes + (size_t)s * row, row * sizeof *hashes);
    free(hashes);
    return code;
}

/* Notes how the rank ended and closes what it has open; returns its exit status. Where it failed
 * its peers are told, as the command does. */
static inline int note_end(const struct job *job, struct worker *w, int code) {
    int rank = atoi(getenv("RANK"));
    struct rank_out *out = &job->out[rank];
    out->code = code;
    out->ended_ns = now_ns();
    snprintf(out->text, sizeof out->text, "%s", code ? error_message() : "");
    if (code && w->comm) comm_abort(w->comm, code, out->text);
    worker_close(w);
    return error_exit_status(code);
}

static inline int run_rank(void *context) {
    const struct job *job = context;
    struct worker w;
    int code = worker_open(&w, job);
    if (!code) code = train(&w, job);
    return note_end(job, &w, code);
}

/* Launches `entry` on every rank; job->out is made here, and freed by job_end. */
static inline int job_run(struct job *job, int (*entry)(void *context),
                          struct launch_result *result) {
    job->out = share(WORLD_MOST * sizeof *job->out);
    return launch_all(job->world, entry, job, result);
}

static inline void job_end(struct job *job) {
    munmap(job->out, WORLD_MOST * sizeof *job->out);
    job->out = NULL;
}

#endif
