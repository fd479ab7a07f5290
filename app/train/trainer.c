/* The trainer: one loop for all strategies.
 *
 *     for each epoch:
 *         draw the order, and prepare batches ahead
 *         for each batch:
 *             the strategy enqueues the step
 *             the previous step's batch is released when that step is done
 *             from time to time the host reads losses and hashes
 *         all devices evaluate the test set
 *
 * Only the number of steps determines when the logs are read, so all ranks do it together. They are
 * read after steps 1, 2, 4, ... of an epoch, which shows early that training works, and when the
 * log is full. */
#include "train/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "train/feed.h"
#include "train/files/checkpoint.h"
#include "train/files/output.h"
#include "train/progress.h"
#include "train/remarks.h"
#include "train/session.h"
#include "train/step_log.h"

struct loop {
    struct session *s;
    struct outputs outputs;
    struct checkpoint *checkpoint; /* NULL: not requested, or this is not rank 0 */
    struct progress progress;
    struct feed feed;
    int step;                         /* the next step, counted from the start of the run */
    int stopped;                      /* 1: a signal has requested the end, so no step follows */
    int last_step;                    /* the run ends before this step */
    int logged;                       /* steps enqueued since the logs were read */
    struct logged_step log[LOG_ROWS]; /* [logged] a description of each */
    struct optimizer_config update;
    int64_t epoch_start_ns;
};

/* ---- a step ---- */

/* One pass of a step: forward and backward of one batch, and after the last pass the update. more:
 * another batch of this epoch follows. */
static int one_pass(struct loop *l, struct step_block *step, int more) {
    struct session *s = l->s;
    struct batch *batch;
    s->step = (int)step->step;
    CHECK(feed_next(&l->feed, s->train_loader, more, &batch));
    int code = s->strategy->step(s, step, batch);
    if (!code) code = feed_hold(&l->feed, s->train_loader, batch);
    if (code) feed_drop(&l->feed, s->train_loader, batch);
    return code;
}

/* The divisor for the mean loss over these global batches: the number of samples, without those
 * whose labels are ignored; a sample's loss is the mean over its positions. Every rank knows all
 * labels, so no rank asks another. */
static double weight_of(const struct session *s, const struct loader *loader, int batch,
                        int count) {
    int ignored = s->model.ignored;
    if (!ignored) return loader_samples(loader, batch, count);
    return (double)loader_labels(loader, batch, count, ignored) /
           dataset_answer_count(&s->train_set);
}

/* A step, whose first batch is number `batch` of the epoch. A sample has the weight that it would
 * have in one batch as large as all of them, so gradients need only be added. Without
 * --no-sync-steps there is one pass. */
static int one_step(struct loop *l, int batch) {
    struct session *s = l->s;
    int most = s->config->update.passes, left = loader_steps(s->train_loader) - batch;
    struct logged_step logged = {.passes = left < most ? left : most};
    logged.samples = loader_samples(s->train_loader, batch, logged.passes);
    logged.divisor = weight_of(s, s->train_loader, batch, logged.passes);
    for (int pass = 0; pass < logged.passes; pass++) {
        struct step_block step = {.seed = s->config->seed,
                                  .step = (uint64_t)l->step * (uint64_t)most + (uint64_t)pass,
                                  .weight = 1.0f / (float)logged.divisor,
                                  .row = l->logged * most + pass,
                                  .add_grads = pass > 0,
                                  .more_passes = pass + 1 < logged.passes};
        optimizer_schedule(&step, &l->update, l->s->config->update.lr, l->step);
        int last = step.more_passes ? 0 : l->step + 1 == l->last_step;
        CHECK(one_pass(l, &step, !last && batch + pass + 1 < loader_steps(s->train_loader)));
    }
    s->record->samples += logged.samples;
    l->log[l->logged++] = logged;
    l->step++;
    return OK;
}

/* Returns the same on all ranks. */
static int look_for_stop(struct loop *l) {
    if (!l->s->config->stoppable || !l->s->comm) return OK;
    return comm_look_for_stop(l->s->comm, &l->stopped);
}

static void checkpoint_if_due(struct loop *l) {
    int every = l->s->config->files.checkpoint_every;
    if (every && l->step % every == 0 && l->step != l->last_step)
        checkpoint_take(l->checkpoint, l->step, 0);
}

static int sync_devices(struct session *s) {
    for (int i = 0; i < s->device_count; i++) {
        CHECK(stream_sync(device_compute(s->device[i])));
        CHECK(stream_sync(device_comm(s->device[i])));
        CHECK(stream_sync(device_copy(s->device[i])));
    }
    return OK;
}

static int read_logs(struct loop *l, int epoch, int final) {
    struct session *s = l->s;
    struct run_record *r = s->record;
    if (!l->logged) return OK;
    int first = r->steps;
    CHECK(sync_devices(s));
    measure_count(s); /* excludes the reading of losses and hashes from training time */
    CHECK(step_log_read(s, l->log, l->logged));
    measure_mark(s);
    measure_spans(s, 1);
    l->logged = 0;
    if (!session_leads(s)) return OK;
    if (first == 0) r->first_step_seconds = (double)(now_ns() - s->config->started_ns) * 1e-9;
    for (int i = first; i < r->steps; i++)
        progress_loss(&l->progress, r->first_step + i, r->losses[i]);
    double seconds = r->training_seconds + (double)(now_ns() - l->epoch_start_ns) * 1e-9;
    curves_steps(&l->outputs.curves, r, first, seconds);
    if (!final)
        progress_step(&l->progress, epoch, r->first_step + r->steps, r->losses[r->steps - 1],
                      r->samples, seconds);
    return OK;
}

static int train_epoch(struct loop *l, int epoch) {
    struct session *s = l->s;
    int batches = loader_steps(s->train_loader), passes = s->config->update.passes;
    int first = (l->step - epoch * session_steps(s)) * passes, in_epoch = 0;
    CHECK(loader_start_epoch(s->train_loader, epoch, first));
    if (s->comm) CHECK(comm_barrier(s->comm, "start of epoch"));
    measure_mark(s);
    l->epoch_start_ns = now_ns();
    for (int batch = first; l->step < l->last_step && batch < batches; batch += passes) {
        CHECK(look_for_stop(l));
        if (l->stopped) break;
        CHECK(one_step(l, batch));
        checkpoint_if_due(l);
        in_epoch++;
        int full = (l->logged + 1) * passes > session_log_rows(s) || l->logged == LOG_ROWS;
        if (full || !(in_epoch & (in_epoch - 1))) /* after 1, 2, 4, ... steps */
            CHECK(read_logs(l, epoch, 0));
    }
    CHECK(feed_finish(&l->feed));
    CHECK(sync_devices(s));
    if (s->comm) CHECK(comm_barrier(s->comm, "end of epoch"));
    CHECK(read_logs(l, epoch, 1));
    measure_count(s);
    return OK;
}

/* ---- evaluation ---- */

/* Batch `number` of the test set, from 0. Random numbers in evaluation differ from batch to batch;
 * `step` is the one in its spans. */
static int evaluate_batch(struct loop *l, struct batch *batch, int number) {
    struct session *s = l->s;
    struct step_block step = {.seed = s->config->seed + (uint64_t)number,
                              .step = (uint64_t)l->step * (uint64_t)s->config->update.passes,
                              .weight = 1,
                              .row = number % LOG_ROWS};
    int code = s->strategy->evaluate(s, &step, batch);
    if (!code) code = feed_hold(&l->feed, s->test_loader, batch);
    if (code) feed_drop(&l->feed, s->test_loader, batch);
    return code;
}

/* Evaluates the current parameters on the whole test set, by all ranks together. */
static int evaluate(struct loop *l, double *accuracy, double *valid_loss) {
    struct session *s = l->s;
    int64_t hits = 0;
    int rows = 0, batches = 0;
    double loss = 0;
    struct batch *batch;
    *accuracy = -1, *valid_loss = NAN;
    if (!s->test_loader) return OK;
    if (l->stopped) return OK;
    CHECK(loader_start_epoch(s->test_loader, 0, 0));
    for (;;) {
        CHECK(look_for_stop(l));
        if (l->stopped) break;
        CHECK(feed_next(&l->feed, s->test_loader, 0, &batch));
        if (batch) {
            CHECK(evaluate_batch(l, batch, batches++));
            rows++;
        }
        if (rows && (!batch || rows == LOG_ROWS)) {
            CHECK(step_log_tests(s, rows, &hits, &loss));
            rows = 0;
        }
        if (!batch) break;
    }
    CHECK(feed_finish(&l->feed));
    CHECK(sync_devices(s));
    measure_spans(s, 1);
    if (l->stopped) return OK;
    double divisor = weight_of(s, s->test_loader, 0, loader_steps(s->test_loader)),
           labels = divisor * dataset_answer_count(&s->test_set);
    if (labels > 0) *accuracy = (double)hits / labels;
    *valid_loss = isfinite(loss / divisor) ? loss / divisor : NAN; /* JSON lacks infinity */
    return OK;
}

/* ---- the whole run ---- */

static int add_epoch(struct loop *l, int epoch) {
    struct run_record *r = l->s->record;
    double seconds = (double)(now_ns() - l->epoch_start_ns) * 1e-9, accuracy, valid_loss;
    int n = r->epoch_count;
    double **lists[] = {&r->epoch_seconds, &r->accuracy, &r->valid_loss, &r->epoch_lr};
    for (int i = 0; i < 4; i++) {
        double *longer = realloc(*lists[i], (size_t)(n + 1) * sizeof *longer);
        if (!longer) return fail(ERR_MEMORY, "run record: out of host memory");
        *lists[i] = longer;
    }
    r->training_seconds += seconds;
    CHECK(evaluate(l, &accuracy, &valid_loss));
    r->epoch_seconds[n] = seconds, r->epoch_lr[n] = l->s->config->update.lr;
    r->accuracy[n] = accuracy, r->valid_loss[n] = valid_loss;
    r->epoch_count = n + 1;
    CHECK(curves_epoch(&l->outputs.curves, l->s));
    if (session_leads(l->s) && r->steps)
        progress_epoch(&l->progress, epoch, r->first_step + r->steps, r->losses[r->steps - 1],
                       accuracy, valid_loss, r->samples, r->training_seconds);
    return OK;
}

static int add_name(char **names, int *count, const char *name) {
    names[*count] = strdup(name);
    return names[(*count)++] ? OK : fail(ERR_MEMORY, "run record: out of host memory");
}

static int name_parameters(struct session *s) {
    struct run_record *r = s->record;
    const struct model *m = &s->model;
    r->names = calloc((size_t)m->param_count + 1, sizeof *r->names);
    r->buffer_names = calloc((size_t)m->buffer_count + 1, sizeof *r->buffer_names);
    const int machines = comm_is_spread(s->comm) ? s->ranks : 0;
    r->machines = calloc((size_t)machines + 1, sizeof *r->machines);
    if (!r->names || !r->buffer_names || !r->machines)
        return fail(ERR_MEMORY, "run record: out of host memory");
    while (r->machine_count < machines)
        CHECK(add_name(r->machines, &r->machine_count, comm_machine(s->comm, r->machine_count)));
    while (r->parameters < m->param_count)
        CHECK(add_name(r->names, &r->parameters, m->params[r->parameters].name));
    while (r->buffers < m->buffer_count)
        CHECK(add_name(r->buffer_names, &r->buffers, m->buffers[r->buffers].name));
    return OK;
}

/* Says where the run resumes. A complete run is only evaluated. */
static int start_resumed(struct loop *l, int per_epoch) {
    struct session *s = l->s;
    int done = l->step >= l->last_step;
    if (l->progress.shown && done)
        fprintf(stderr, "%-6s resumed after step %d: no step is left\n", l->progress.title,
                l->step);
    else if (l->progress.shown)
        fprintf(stderr, "%-6s resumed after step %d of %d\n", l->progress.title, l->step,
                l->last_step);
    if (!done) return OK;
    l->epoch_start_ns = now_ns();
    measure_mark(s);
    return add_epoch(l, (l->step - 1) / per_epoch);
}

/* The reduced gradients of the last step, if requested. */
static int record_grads(struct session *s) {
    struct run_record *r = s->record;
    struct param_set *set = &s->replicas[0]->params->set;
    if (!s->config->dump_grads || (!session_leads(s) && !set->shard)) return OK;
    float *to = r->grads = malloc(r->parameter_count * sizeof *to);
    if (!to) return fail(ERR_MEMORY, "run record: out of host memory");
    for (int i = 0; i < s->model.param_count; to += set->param[i++].count)
        CHECK(param_read_grad(set, i, to));
    return OK;
}

static int run_loop(struct loop *l) {
    struct session *s = l->s;
    const struct run_config *c = s->config;
    int per_epoch = session_steps(s);
    int64_t all = (int64_t)per_epoch * c->epochs;
    int64_t last = c->steps && c->steps < all ? c->steps : all;
    l->step = s->first_step;
    l->last_step = last > INT32_MAX - 1 ? INT32_MAX - 1 : (int)last;
    l->update = run_optimizer(c);
    CHECK(name_parameters(s));
    CHECK(sync_devices(s)); /* the end of set-up; its spans belong to no step */
    measure_spans(s, 0);
    CHECK(feed_open(&l->feed, s));
    progress_start(&l->progress, mode_title(c->mode), per_epoch, l->last_step,
                   c->quiet || (c->unremarked && !isatty(STDERR_FILENO)) || !session_leads(s));
    l->progress.first = l->step;
    l->progress.untimed = *c->clock.gpu != 0;
    if (*c->files.resume) CHECK(start_resumed(l, per_epoch));
    for (int epoch = l->step / per_epoch; l->step < l->last_step && !l->stopped; epoch++) {
        int before = l->step;
        CHECK(train_epoch(l, epoch));
        if (l->step > before) CHECK(add_epoch(l, epoch));
    }
    if (l->step > s->first_step) checkpoint_take(l->checkpoint, l->step, 1);
    CHECK(record_grads(s));
    CHECK(step_log_final(s));
    if (s->strategy->describe) s->strategy->describe(s);
    remarks_print(s, &l->progress);
    return measure_finish(s);
}

/* Closes everything. Closing may fail, too: the text of the first failure stays. Returns 1, or 0 if
 * something is left in use. */
static int close_all(struct loop *l, int code) {
    struct failures first = {0};
    failures_add(&first, code);
    outputs_abandon(&l->outputs);
    checkpoint_free(l->checkpoint);
    int closed = !(code && session_is_stuck(l->s));
    if (closed) feed_close(&l->feed);
    closed = closed && session_close(l->s);
    failures_end(&first);
    return closed;
}

int trainer_run(const struct run_config *config, struct comm *comm, struct run_record *record,
                struct failures *unwritten, int *in_use) {
    int code = OK;
    *in_use = 0;
    /* not on the stack: it may have to outlive this call */
    struct session *session = calloc(1, sizeof *session);
    struct loop loop = {.s = session};
    if (!session) return fail(ERR_MEMORY, "trainer: out of host memory");
    if (!comm || comm_rank(comm) == 0) CHECK_GOTO(outputs_open(&loop.outputs, config), code, done);
    CHECK_GOTO(session_open(session, config, comm, record), code, done);
    CHECK_GOTO(checkpoint_init(&loop.checkpoint, session), code, done);
    CHECK_GOTO(run_loop(&loop), code, done);
    /* without a step, keep the old files */
    int takes_part = session_leads(session) || session->replicas[0]->params->set.shard;
    if (takes_part && !(loop.stopped && !record->steps))
        outputs_commit(&loop.outputs, session, unwritten);
    checkpoint_finish(loop.checkpoint, unwritten);
done:
    /* abort before anything here waits for a peer */
    if (code && comm) comm_abort(comm, code, error_message());
    *in_use = !close_all(&loop, code);
    if (!*in_use) free(session);
    return code;
}
